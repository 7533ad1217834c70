# SPDX-License-Identifier: BSD-3-Clause
# The registration cache: a library of its own, on top of liblapse. Static for
# middleware that brings its own copy, shared for all others.
OBJCOPY ?= objcopy
RCACHE := $(patsubst %.c,%,$(wildcard rcache/*.c))

# The hit: one block of pushes at its entry is faster than two of pops.
$(BUILD)/rcache/get.o: BASE += -fno-shrink-wrap -falign-functions=64

# One object whose names, but for the API's, clash with nobody's. That of
# sys/sdt.h is the same for all who have probes, in a section that is kept once.
$(BUILD)/liblapse-rcache.a: $(call objects,$(RCACHE))
	$(call say,AR,$@)
	$(Q)$(LD) -r -o $(BUILD)/rcache.o $^
	$(Q)$(OBJCOPY) --localize-hidden $(BUILD)/rcache.o
	$(Q)$(OBJCOPY) --globalize-symbol=_.stapsdt.base $(BUILD)/rcache.o
	$(Q)$(OBJCOPY) --weaken-symbol=_.stapsdt.base $(BUILD)/rcache.o
	$(Q)rm -f $@
	$(Q)$(AR) rcs $@ $(BUILD)/rcache.o

# nodelete: its thread may be on its way out of it
$(BUILD)/liblapse-rcache.so: $(call objects,$(RCACHE)) $(LIB) \
    rcache/lapse-rcache.map
	$(call say,LD,$@)
	$(Q)$(CC) -shared -pthread $(SANFLAGS) $(LDFLAGS) -o $@ \
	    $(call objects,$(RCACHE)) -L$(BUILD) -llapse -ldl \
	    -Wl,-soname,liblapse-rcache.so.$(SOVER) \
	    -Wl,--version-script=rcache/lapse-rcache.map \
	    -Wl,-z,nodelete,-z,now,-z,relro,-z,noexecstack -Wl,--no-undefined
	$(Q)ln -sf liblapse-rcache.so $(BUILD)/liblapse-rcache.so.$(SOVER)

install-rcache: $(RCACHELIBS)
	install -m 755 $(BUILD)/liblapse-rcache.so \
	    $(DESTDIR)$(LIBDIR)/liblapse-rcache.so.$(VERSION)
	ln -sf liblapse-rcache.so.$(VERSION) \
	    $(DESTDIR)$(LIBDIR)/liblapse-rcache.so.$(SOVER)
	ln -sf liblapse-rcache.so.$(SOVER) \
	    $(DESTDIR)$(LIBDIR)/liblapse-rcache.so
	install -m 644 $(BUILD)/liblapse-rcache.a $(DESTDIR)$(LIBDIR)/
	install -m 644 rcache/lapse_rcache.h rcache/lapse_rcache_backends.h \
	    $(DESTDIR)$(PREFIX)/include/
	sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@LIBDIR@|$(LIBDIR)|' \
	    -e 's|@VERSION@|$(VERSION)|' rcache/lapse-rcache.pc.in \
	    > $(DESTDIR)$(LIBDIR)/pkgconfig/lapse-rcache.pc
.PHONY: install-rcache
