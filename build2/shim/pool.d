build2/shim/pool.o: shim/pool.c shim/pool.h
shim/pool.h:
