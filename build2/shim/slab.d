build2/shim/slab.o: shim/slab.c shim/slab.h shim/lock.h shim/sys.h \
 shim/filter.h
shim/slab.h:
shim/lock.h:
shim/sys.h:
shim/filter.h:
