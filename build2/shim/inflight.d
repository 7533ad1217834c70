build2/shim/inflight.o: shim/inflight.c shim/inflight.h shim/range.h \
 shim/release.h shim/lapse.h shim/report.h
shim/inflight.h:
shim/range.h:
shim/release.h:
shim/lapse.h:
shim/report.h:
