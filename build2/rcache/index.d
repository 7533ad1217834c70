build2/rcache/index.o: rcache/index.c rcache/index.h rcache/region.h \
 rcache/lapse_rcache.h rcache/pieces.h
rcache/index.h:
rcache/region.h:
rcache/lapse_rcache.h:
rcache/pieces.h:
