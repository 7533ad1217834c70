build2/rcache/pieces.o: rcache/pieces.c rcache/pieces.h
rcache/pieces.h:
