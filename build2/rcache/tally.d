build2/rcache/tally.o: rcache/tally.c rcache/tally.h rcache/region.h \
 rcache/lapse_rcache.h rcache/pieces.h
rcache/tally.h:
rcache/region.h:
rcache/lapse_rcache.h:
rcache/pieces.h:
