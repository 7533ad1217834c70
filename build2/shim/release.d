build2/shim/release.o: shim/release.c shim/release.h shim/inflight.h \
 shim/range.h shim/lapse.h shim/report.h shim/subscriber.h shim/filter.h \
 shim/lock.h shim/sys.h shim/pool.h shim/queue.h shim/wake.h
shim/release.h:
shim/inflight.h:
shim/range.h:
shim/lapse.h:
shim/report.h:
shim/subscriber.h:
shim/filter.h:
shim/lock.h:
shim/sys.h:
shim/pool.h:
shim/queue.h:
shim/wake.h:
