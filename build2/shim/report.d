build2/shim/report.o: shim/report.c shim/report.h shim/lapse.h \
 shim/inflight.h shim/range.h shim/log.h shim/subscriber.h shim/filter.h \
 shim/lock.h shim/sys.h shim/pool.h shim/queue.h
shim/report.h:
shim/lapse.h:
shim/inflight.h:
shim/range.h:
shim/log.h:
shim/subscriber.h:
shim/filter.h:
shim/lock.h:
shim/sys.h:
shim/pool.h:
shim/queue.h:
