build2/rcache/uring.o: rcache/uring.c rcache/lapse_rcache_backends.h \
 rcache/lapse_rcache.h rcache/pieces.h
rcache/lapse_rcache_backends.h:
rcache/lapse_rcache.h:
rcache/pieces.h:
