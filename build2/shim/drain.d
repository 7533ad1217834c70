build2/shim/drain.o: shim/drain.c shim/drain.h shim/poll.h \
 shim/subscriber.h shim/filter.h shim/lapse.h shim/lock.h shim/sys.h \
 shim/pool.h shim/queue.h shim/wake.h
shim/drain.h:
shim/poll.h:
shim/subscriber.h:
shim/filter.h:
shim/lapse.h:
shim/lock.h:
shim/sys.h:
shim/pool.h:
shim/queue.h:
shim/wake.h:
