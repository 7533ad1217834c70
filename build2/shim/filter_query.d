build2/shim/filter_query.o: shim/filter_query.c shim/filter.h \
 shim/range.h
shim/filter.h:
shim/range.h:
