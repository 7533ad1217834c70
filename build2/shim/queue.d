build2/shim/queue.o: shim/queue.c shim/queue.h shim/pool.h \
 shim/inflight.h shim/range.h
shim/queue.h:
shim/pool.h:
shim/inflight.h:
shim/range.h:
