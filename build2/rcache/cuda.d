build2/rcache/cuda.o: rcache/cuda.c rcache/lapse_rcache_backends.h \
 rcache/lapse_rcache.h rcache/pieces.h
rcache/lapse_rcache_backends.h:
rcache/lapse_rcache.h:
rcache/pieces.h:
