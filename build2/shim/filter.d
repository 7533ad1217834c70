build2/shim/filter.o: shim/filter.c shim/filter.h shim/range.h \
 shim/slab.h shim/lock.h shim/sys.h
shim/filter.h:
shim/range.h:
shim/slab.h:
shim/lock.h:
shim/sys.h:
