# SPDX-License-Identifier: BSD-3-Clause
# liblapse. Targets: all run check model bench torture zoo install clean deps.
# Options: V=1 shows commands; SAN=address|thread|undefined; BUILD=dir; CC=;
# of check: ONLY=text runs the tests whose names have it.

VERSION  := 0.1.0
SOVER    := 0
PREFIX   ?= /usr/local
LIBDIR   ?= $(PREFIX)/lib
SAN      ?=
BUILD    ?= build$(if $(SAN),-$(SAN))
CC       ?= gcc
Q        := $(if $(V),,@)
say       = $(if $(V),,@printf '  %-5s %s\n' '$(1)' '$(2)')

ZYDIS    := .deps/zydis
WARN     := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes \
            -Wvla -Wpointer-arith
CFLAGS   ?= -O2 -g
SANFLAGS := $(if $(SAN),-fsanitize=$(SAN) -fno-omit-frame-pointer)
BASE     := -std=gnu11 -D_GNU_SOURCE -fPIC -fvisibility=hidden -pthread \
            $(WARN) -MMD -MP $(CFLAGS)
# Code that runs inside other people's system calls: general registers only
# (G4), and no helper of a sanitizer or stack protector in the way.
HOOKFLAGS := -mgeneral-regs-only -fno-stack-protector -fcf-protection=none \
             -fno-sanitize=all -ftls-model=initial-exec -falign-functions=64

# The closed set of objects that a hook may run through (tests/closed_set.sh).
HOT      := shim/inflight shim/queue shim/pool shim/filter_query shim/release \
            shim/meet shim/wake shim/publish shim/report_caller \
            shim/trace_ring shim/trace_release hooks/snapshot hooks/account hooks/hook \
            hooks/advice hooks/caller hooks/shm_range hooks/huge_range \
            hooks/maps hooks/file hooks/file_range hooks/free_hook \
            hooks/backstop_range hooks/entry_x86_64
SHIM     := $(patsubst %.c,%,$(wildcard shim/*.c))
HOOKS    := $(patsubst %.c,%,$(wildcard hooks/*.c)) \
            $(patsubst %.S,%,$(wildcard hooks/*.S))
ZYOBJ    := $(addprefix $(BUILD)/zydis/,Decoder.o DecoderData.o SharedData.o)
# With ZYAN_NO_LIBC it would clear its structures byte by byte, and rep stos is
# slow to begin: most of the time of decoding.
ZYFLAGS  := -mstringop-strategy=unrolled_loop \
            -DZYDIS_STATIC_BUILD -DZYCORE_STATIC_BUILD \
            -DZYDIS_MINIMAL_MODE -DZYDIS_DISABLE_FORMATTER \
            -DZYDIS_DISABLE_ENCODER -DZYDIS_DISABLE_AVX512 -DZYDIS_DISABLE_KNC
LIBFLAGS := -Wl,-soname,liblapse.so.$(SOVER) \
            -Wl,--version-script=shim/lapse.map -Wl,-z,initfirst \
            -Wl,--build-id=sha1 -Wl,-z,nodelete,-z,now,-z,relro,-z,noexecstack -Wl,--no-undefined
objects   = $(patsubst %,$(BUILD)/%.o,$(1))
LIB      := $(BUILD)/liblapse.so
RCACHELIBS := $(BUILD)/liblapse-rcache.a $(BUILD)/liblapse-rcache.so
TOOLS    := $(BUILD)/lapse $(BUILD)/torture $(BUILD)/lapse-cp

.SECONDARY:

all: $(LIB) $(RCACHELIBS) $(TOOLS)

help:
	@sed -n '2,4p' Makefile

# The first thing that needs it brings the packages; see scripts/setup.
deps: .deps/ready
.deps/ready: scripts/setup
	$(Q)scripts/setup

$(BUILD)/%.o: %.c .deps/ready
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)$(CC) $(BASE) $(if $(filter $*,$(HOT)),$(HOOKFLAGS),$(SANFLAGS)) \
	    -iquote shim -iquote . -I$(ZYDIS)/include -DLAPSE_VERSION='"$(VERSION)"' -c $< -o $@
$(BUILD)/%.o: %.S .deps/ready
	@mkdir -p $(@D)
	$(call say,AS,$<)
	$(Q)$(CC) $(BASE) -iquote shim -iquote . -c $< -o $@
$(BUILD)/zydis/%.o: .deps/ready
	@mkdir -p $(@D)
	$(call say,CC,zydis/$*)
	$(Q)$(CC) -O2 -fPIC -fvisibility=hidden -w -I$(ZYDIS)/include \
	    -I$(ZYDIS)/src $(ZYFLAGS) -c $(ZYDIS)/src/$*.c -o $@

$(LIB): $(call objects,$(SHIM) $(HOOKS)) $(ZYOBJ) shim/lapse.map
	$(call say,LD,$@)
	$(Q)$(CC) -shared -pthread $(SANFLAGS) $(LDFLAGS) -o $@ $(filter %.o,$^) \
	    $(LIBFLAGS)
	$(Q)ln -sf liblapse.so $(BUILD)/liblapse.so.$(SOVER)

-include bridges/bridges.mk rcache/rcache.mk scripts/scripts.mk tests/tests.mk

install: all install-bridges
	install -d $(DESTDIR)$(LIBDIR)/pkgconfig $(DESTDIR)$(PREFIX)/bin \
	    $(DESTDIR)$(PREFIX)/include $(DESTDIR)$(PREFIX)/share/man/man1 \
	    $(DESTDIR)$(PREFIX)/share/man/man3 \
	    $(DESTDIR)$(PREFIX)/share/man/man5 \
	    $(DESTDIR)$(PREFIX)/share/man/man7
	install -m 755 $(LIB) $(DESTDIR)$(LIBDIR)/liblapse.so.$(VERSION)
	ln -sf liblapse.so.$(VERSION) $(DESTDIR)$(LIBDIR)/liblapse.so.$(SOVER)
	ln -sf liblapse.so.$(SOVER) $(DESTDIR)$(LIBDIR)/liblapse.so
	install -m 755 $(BUILD)/lapse $(DESTDIR)$(PREFIX)/bin/lapse
	install -m 644 shim/lapse.h $(DESTDIR)$(PREFIX)/include/lapse.h
	install -m 644 docs/man/*.1 $(DESTDIR)$(PREFIX)/share/man/man1/
	install -m 644 docs/man/*.3 $(DESTDIR)$(PREFIX)/share/man/man3/
	install -m 644 docs/man/*.5 $(DESTDIR)$(PREFIX)/share/man/man5/
	install -m 644 docs/man/*.7 $(DESTDIR)$(PREFIX)/share/man/man7/
	sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@LIBDIR@|$(LIBDIR)|' \
	    -e 's|@VERSION@|$(VERSION)|' shim/lapse.pc.in \
	    > $(DESTDIR)$(LIBDIR)/pkgconfig/lapse.pc
	$(Q)$(MAKE) -s install-rcache

clean:
	rm -rf build build-*

.PHONY: all help deps run check bench torture install clean
.DELETE_ON_ERROR:
-include $(shell find $(BUILD) -name '*.d' 2>/dev/null)
