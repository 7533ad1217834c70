build2/shim/config.o: shim/config.c shim/config.h shim/log.h \
 shim/release.h shim/inflight.h shim/range.h shim/lapse.h shim/report.h
shim/config.h:
shim/log.h:
shim/release.h:
shim/inflight.h:
shim/range.h:
shim/lapse.h:
shim/report.h:
