build2/shim/pool_open.o: shim/pool_open.c shim/pool.h shim/sys.h
shim/pool.h:
shim/sys.h:
