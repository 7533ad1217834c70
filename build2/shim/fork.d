build2/shim/fork.o: shim/fork.c shim/fork.h shim/drain.h shim/inflight.h \
 shim/range.h shim/report.h shim/lapse.h shim/slab.h shim/lock.h \
 shim/sys.h shim/subscriber.h shim/filter.h shim/pool.h shim/queue.h
shim/fork.h:
shim/drain.h:
shim/inflight.h:
shim/range.h:
shim/report.h:
shim/lapse.h:
shim/slab.h:
shim/lock.h:
shim/sys.h:
shim/subscriber.h:
shim/filter.h:
shim/pool.h:
shim/queue.h:
