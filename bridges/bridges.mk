# SPDX-License-Identifier: BSD-3-Clause
# Bridges to foreign systems: libraries of their own, clients of lapse.h.

BRIDGE   := $(BUILD)/liblapse-jemalloc.so
all: $(BRIDGE)

$(BRIDGE): $(call objects,bridges/jemalloc bridges/extent bridges/kept) $(LIB) \
    bridges/lapse_jemalloc.map
	$(call say,LD,$@)
	$(Q)$(CC) -shared -pthread $(SANFLAGS) $(LDFLAGS) -o $@ $(filter %.o,$^) \
	    -Wl,-soname,liblapse-jemalloc.so.$(SOVER) \
	    -Wl,--version-script=bridges/lapse_jemalloc.map \
	    -Wl,-z,nodelete,-z,now,-z,relro,-z,noexecstack -Wl,--no-undefined \
	    -L$(BUILD) -llapse -Wl,-rpath,'$$ORIGIN'
	$(Q)ln -sf liblapse-jemalloc.so $(BUILD)/liblapse-jemalloc.so.$(SOVER)

install-bridges: $(BRIDGE)
	install -d $(DESTDIR)$(LIBDIR) $(DESTDIR)$(PREFIX)/include
	install -m 755 $(BRIDGE) \
	    $(DESTDIR)$(LIBDIR)/liblapse-jemalloc.so.$(VERSION)
	ln -sf liblapse-jemalloc.so.$(VERSION) \
	    $(DESTDIR)$(LIBDIR)/liblapse-jemalloc.so.$(SOVER)
	ln -sf liblapse-jemalloc.so.$(SOVER) \
	    $(DESTDIR)$(LIBDIR)/liblapse-jemalloc.so
	install -m 644 bridges/lapse_jemalloc.h \
	    $(DESTDIR)$(PREFIX)/include/lapse_jemalloc.h
.PHONY: install-bridges
