build2/rcache/lru.o: rcache/lru.c rcache/lru.h rcache/region.h \
 rcache/lapse_rcache.h rcache/tally.h rcache/pieces.h
rcache/lru.h:
rcache/region.h:
rcache/lapse_rcache.h:
rcache/tally.h:
rcache/pieces.h:
