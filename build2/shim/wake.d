build2/shim/wake.o: shim/wake.c shim/wake.h shim/subscriber.h \
 shim/filter.h shim/lapse.h shim/lock.h shim/sys.h shim/pool.h \
 shim/queue.h
shim/wake.h:
shim/subscriber.h:
shim/filter.h:
shim/lapse.h:
shim/lock.h:
shim/sys.h:
shim/pool.h:
shim/queue.h:
