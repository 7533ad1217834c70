build2/shim/report_caller.o: shim/report_caller.c shim/report.h \
 shim/lapse.h
shim/report.h:
shim/lapse.h:
