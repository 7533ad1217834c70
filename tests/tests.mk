# SPDX-License-Identifier: BSD-3-Clause
# make check: everything that can say no; make bench: figures.
# Criterion programs: of a noun of shim/ (linked with its objects, no hooks),
# of a noun of hooks/ (linked with hooks that only count). api_*.c are clients
# of lapse.h, example_*.c too; victims/ know nothing of it.

# What hooks run through is not instrumented in the library, since it runs on
# threads and stacks that a sanitizer does not know; in unit tests it is.
UNITSHIM := $(if $(SAN),$(SHIM:%=$(BUILD)/seen/%.o),$(call objects,$(SHIM)))
HOOKNOUN := site window patch arch module coverage patched
CRITERION := $(patsubst tests/%.c,$(BUILD)/tests/%,$(wildcard tests/test_*.c))
API      := $(patsubst tests/%.c,$(BUILD)/tests/%,$(wildcard tests/api_*.c) \
            $(wildcard tests/example_*.c))
VICTIM   := $(patsubst tests/victims/%.c,%,$(wildcard tests/victims/*.c))
VICTIMS  := $(addprefix $(BUILD)/tests/victims/, \
            $(filter-out lib_%,$(VICTIM)) \
            $(addsuffix .so,$(filter lib_%,$(VICTIM)) lib_malloc))
BENCHES  := $(patsubst tests/%.c,$(BUILD)/tests/%,$(wildcard tests/bench_*.c))
TESTLIB  := $(BUILD)/liblapse-test.so
PLAIN    := -std=gnu11 -D_GNU_SOURCE -O1 -g -Wall -Wextra -pthread -MMD -MP -iquote . -iquote shim

# BoxFort does not start under ThreadSanitizer: tests/tsan has a stand-in.
LCRITERION := -lcriterion
ifeq ($(SAN),thread)
LCRITERION :=
$(BUILD)/tests/test_%.o: BASE += -Itests/tsan
endif

$(HOOKNOUN:%=$(BUILD)/tests/test_%): $(BUILD)/tests/test_%: \
    $(BUILD)/tests/test_%.o $(call objects,tests/fake_hooks shim/log \
    $(addprefix hooks/,site site_file place window patch arch_x86_64 module \
    coverage patched namespace entry_x86_64)) $(ZYOBJ)
	$(call say,LD,$@)
	$(Q)$(CC) -pthread $(SANFLAGS) -o $@ $^ $(LCRITERION) -ldl

$(BUILD)/tests/test_maps: $(BUILD)/tests/test_maps.o $(call objects,hooks/maps)
	$(call say,LD,$@)
	$(Q)$(CC) -pthread $(SANFLAGS) -o $@ $^ $(LCRITERION)

$(filter-out $(HOOKNOUN:%=$(BUILD)/tests/test_%) $(BUILD)/tests/test_maps, \
    $(CRITERION)): $(BUILD)/tests/%: $(BUILD)/tests/%.o $(UNITSHIM)
	$(call say,LD,$@)
	$(Q)$(CC) -pthread $(SANFLAGS) -o $@ $^ $(LCRITERION) -ldl

# Loads the library by itself, when somebody else has been there.
ALONE    := $(BUILD)/tests/api_foreign
$(ALONE): $(BUILD)/tests/%: $(BUILD)/tests/%.o $(LIB)
	$(call say,LD,$@)
	$(Q)$(CC) -pthread $(SANFLAGS) -o $@ $< -ldl

$(filter-out $(ALONE),$(API)): $(BUILD)/tests/%: $(BUILD)/tests/%.o $(LIB)
	$(call say,LD,$@)
	$(Q)$(CC) -pthread $(SANFLAGS) -o $@ $< -L$(BUILD) -llapse \
	    -Wl,-rpath,'$$ORIGIN/..' -ldl

$(BUILD)/seen/%.o: %.c .deps/ready
	@mkdir -p $(@D)
	$(Q)$(CC) $(BASE) $(SANFLAGS) -iquote shim -iquote . -c $< -o $@

# The library with delays before and after the system call, and a switch that
# takes redelivery out (LAPSE_TEST_*): to show that tests notice.
$(BUILD)/delayed/%.o: %.c .deps/ready
	@mkdir -p $(@D)
	$(Q)$(CC) $(BASE) $(if $(filter $*,$(HOT)),$(HOOKFLAGS),$(SANFLAGS)) \
	    -iquote shim -iquote . -I$(ZYDIS)/include -DLAPSE_TEST_HOOKS \
	    -c $< -o $@
$(BUILD)/delayed/%.o: %.S .deps/ready
	@mkdir -p $(@D)
	$(Q)$(CC) $(BASE) -iquote shim -iquote . -c $< -o $@
$(TESTLIB): $(patsubst %,$(BUILD)/delayed/%.o,$(SHIM) $(HOOKS)) $(ZYOBJ)
	$(call say,LD,$@)
	$(Q)$(CC) -shared -pthread $(SANFLAGS) -o $@ $^ $(LIBFLAGS)
	$(Q)mkdir -p $(BUILD)/delayed/lib
	$(Q)ln -sf ../../liblapse-test.so $(BUILD)/delayed/lib/liblapse.so.$(SOVER)

$(BUILD)/tests/victims/%: tests/victims/%.c .deps/ready
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)$(CC) $(PLAIN) -o $@ $< -ldl
$(BUILD)/tests/victims/lib_%.so: tests/victims/lib_%.c .deps/ready
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)$(CC) $(PLAIN) -fPIC -shared -o $@ $< -ldl
$(BUILD)/tests/victims/lib_malloc.so: tests/victims/allocating_malloc.c
	@mkdir -p $(@D)
	$(Q)$(CC) $(PLAIN) -fPIC -shared -o $@ $< -ldl
$(BUILD)/tests/victims/constructor: tests/victims/constructor.c \
    $(BUILD)/tests/victims/lib_early.so
	$(call say,CC,$<)
	$(Q)$(CC) $(PLAIN) -o $@ $< -Wl,--no-as-needed \
	    -L$(@D) -l:lib_early.so -Wl,-rpath,'$$ORIGIN' -ldl
$(BENCHES): $(BUILD)/tests/%: $(BUILD)/tests/%.o
	$(Q)$(CC) -pthread -o $@ $< -ldl

check: all $(CRITERION) $(API) $(VICTIMS) $(TESTLIB)
	$(Q)BUILD=$(BUILD) SAN=$(SAN) CC=$(CC) tests/check.sh

bench: all $(BENCHES)
	$(Q)BUILD=$(BUILD) scripts/bench

print-hot:
	@echo $(HOT)
.PHONY: print-hot
