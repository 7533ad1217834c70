build2/shim/start.o: shim/start.c shim/start.h shim/config.h shim/fork.h \
 shim/report.h shim/lapse.h
shim/start.h:
shim/config.h:
shim/fork.h:
shim/report.h:
shim/lapse.h:
