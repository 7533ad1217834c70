build2/shim/log.o: shim/log.c shim/log.h shim/sys.h
shim/log.h:
shim/sys.h:
