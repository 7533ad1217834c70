build2/tests/test_rcache.o: tests/test_rcache.c tests/rcache.h \
 rcache/lapse_rcache.h tests/unit.h shim/lapse.h shim/start.h
tests/rcache.h:
rcache/lapse_rcache.h:
tests/unit.h:
shim/lapse.h:
shim/start.h:
