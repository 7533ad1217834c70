build2/rcache/mlock.o: rcache/mlock.c rcache/lapse_rcache_backends.h \
 rcache/lapse_rcache.h rcache/pieces.h
rcache/lapse_rcache_backends.h:
rcache/lapse_rcache.h:
rcache/pieces.h:
