build2/shim/poll.o: shim/poll.c shim/poll.h shim/subscriber.h \
 shim/filter.h shim/lapse.h shim/lock.h shim/sys.h shim/pool.h \
 shim/queue.h shim/inflight.h shim/range.h
shim/poll.h:
shim/subscriber.h:
shim/filter.h:
shim/lapse.h:
shim/lock.h:
shim/sys.h:
shim/pool.h:
shim/queue.h:
shim/inflight.h:
shim/range.h:
