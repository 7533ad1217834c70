build2/rcache/cache.o: rcache/cache.c rcache/cache.h rcache/index.h \
 rcache/region.h rcache/lapse_rcache.h rcache/pieces.h shim/lapse.h \
 rcache/lru.h rcache/tally.h
rcache/cache.h:
rcache/index.h:
rcache/region.h:
rcache/lapse_rcache.h:
rcache/pieces.h:
shim/lapse.h:
rcache/lru.h:
rcache/tally.h:
