build2/shim/subscriber.o: shim/subscriber.c shim/subscriber.h \
 shim/filter.h shim/lapse.h shim/lock.h shim/sys.h shim/pool.h \
 shim/queue.h shim/config.h shim/drain.h shim/inflight.h shim/range.h \
 shim/poll.h shim/release.h shim/report.h shim/wake.h shim/watch.h
shim/subscriber.h:
shim/filter.h:
shim/lapse.h:
shim/lock.h:
shim/sys.h:
shim/pool.h:
shim/queue.h:
shim/config.h:
shim/drain.h:
shim/inflight.h:
shim/range.h:
shim/poll.h:
shim/release.h:
shim/report.h:
shim/wake.h:
shim/watch.h:
