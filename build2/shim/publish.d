build2/shim/publish.o: shim/publish.c shim/release.h shim/inflight.h \
 shim/range.h shim/lapse.h shim/report.h
shim/release.h:
shim/inflight.h:
shim/range.h:
shim/lapse.h:
shim/report.h:
