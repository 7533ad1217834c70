build2/shim/watch.o: shim/watch.c shim/inflight.h shim/range.h \
 shim/release.h shim/lapse.h shim/report.h shim/subscriber.h \
 shim/filter.h shim/lock.h shim/sys.h shim/pool.h shim/queue.h \
 shim/wake.h shim/watch.h
shim/inflight.h:
shim/range.h:
shim/release.h:
shim/lapse.h:
shim/report.h:
shim/subscriber.h:
shim/filter.h:
shim/lock.h:
shim/sys.h:
shim/pool.h:
shim/queue.h:
shim/wake.h:
shim/watch.h:
