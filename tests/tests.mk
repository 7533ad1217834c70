# SPDX-License-Identifier: BSD-3-Clause
# make check: everything that can say no; make bench: figures.
# Criterion programs: of a noun of shim/ (linked with its objects, no hooks),
# of a noun of hooks/ (linked with hooks that only count). api_*.c are clients
# of lapse.h, example_*.c too; victims/ know nothing of it; case_*.c reproduce
# what others met, see cases.sh.

# What hooks run through is not instrumented in the library, since it runs on
# threads and stacks that a sanitizer does not know; in unit tests it is.
UNITSHIM := $(if $(SAN),$(SHIM:%=$(BUILD)/seen/%.o),$(call objects,$(SHIM)))
HOOKNOUN := site window patch arch module coverage relocate patched
CRITERION := $(patsubst tests/%.c,$(BUILD)/tests/%,$(wildcard tests/test_*.c))
LINKED   := a b1 e1 f1 j1 j4
API      := $(patsubst tests/%.c,$(BUILD)/tests/%,$(wildcard tests/api_*.c \
            tests/example_*.c) tests/step.c tests/fuzz_api.c \
            tests/threads_victim.c tests/watchdog_client.c \
            tests/probes_client.c) \
            $(LINKED:%=$(BUILD)/tests/case_%)
CASEPART := tests/case_uring.c tests/case_foreign.c
CASES    := $(filter-out $(API) $(CASEPART:tests/%.c=$(BUILD)/tests/%),$(patsubst \
            tests/%.c,$(BUILD)/tests/%,$(wildcard tests/case_*.c)))
VICTIM   := $(patsubst tests/victims/%.c,%,$(wildcard tests/victims/*.c))
VICTIMS  := $(addprefix $(BUILD)/tests/victims/, \
            $(filter-out lib_%,$(VICTIM)) \
            $(addsuffix .so,$(filter lib_%,$(VICTIM)) lib_malloc lib_first))
# Of a noun of rcache/, and clients of it.
RCACHETEST := $(filter $(BUILD)/tests/test_rcache%,$(CRITERION))
RCACHEAPI := $(filter $(BUILD)/tests/api_rcache% $(BUILD)/tests/api_threads \
    $(BUILD)/tests/example_rcache%,$(API))
BENCHES  := $(patsubst tests/%.c,$(BUILD)/tests/%,$(wildcard tests/bench_*.c))
TESTLIB  := $(BUILD)/liblapse-test.so
STACKS   := $(BUILD)/tests/stacks_dump $(BUILD)/tests/stacks_victim
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
    coverage backstop_open patched namespace entry_x86_64 relocate \
    arch_x86_64_relocate detour_x86_64)) $(ZYOBJ)
	$(call say,LD,$@)
	$(Q)$(CC) -pthread $(SANFLAGS) -o $@ $^ $(LCRITERION) -ldl

$(filter-out %_storm %_between,$(RCACHETEST)): $(BUILD)/liblapse-rcache.a
# With pauses in the narrow places.
$(filter %_storm %_between,$(RCACHETEST)): $(RCACHE:%=$(BUILD)/delayed/%.o)
$(BUILD)/tests/test_rcache_index: $(call objects,rcache/index rcache/cursor rcache/pieces)
FAKECUDA := $(BUILD)/tests/libfake_cuda.so $(BUILD)/tests/libfake_cudart.so
$(FAKECUDA): tests/lib_fake_cuda.c
	@mkdir -p $(@D)
	$(Q)$(CC) $(PLAIN) $(if $(findstring cudart,$@),-DRUNTIME) -fPIC -shared \
	    -o $@ $<
$(BUILD)/tests/api_rcache_backends: | $(FAKECUDA)
$(RCACHEAPI): $(BUILD)/liblapse-rcache.a
$(RCACHEAPI): RCACHELIB := $(BUILD)/liblapse-rcache.a


$(BUILD)/tests/test_maps: $(BUILD)/tests/test_maps.o $(call objects,hooks/maps)
	$(call say,LD,$@)
	$(Q)$(CC) -pthread $(SANFLAGS) -o $@ $^ $(LCRITERION)

TRACETEST := $(filter $(BUILD)/tests/test_trace_read%,$(CRITERION))
$(TRACETEST): %: %.o $(call objects,$(TRACE_SRC))
	$(call say,LD,$@)
	$(Q)$(CC) -pthread $(SANFLAGS) -o $@ $^ $(LCRITERION)

$(BUILD)/tests/test_snapshot: $(BUILD)/tests/test_snapshot.o \
    $(call objects,hooks/snapshot hooks/maps)
	$(call say,LD,$@)
	$(Q)$(CC) -pthread $(SANFLAGS) -o $@ $^ $(LCRITERION)

# What lapse report finds in records, and how it draws that.
PASTTEST := $(BUILD)/tests/test_past $(BUILD)/tests/test_space
$(BUILD)/tests/test_space: $(BUILD)/scripts/space.o
$(BUILD)/tests/test_past: $(call objects,$(filter-out %_read %_report, \
    $(PAST_SRC)) scripts/reports scripts/text scripts/json)
$(PASTTEST): %: %.o
	$(call say,LD,$@)
	$(Q)$(CC) -pthread $(SANFLAGS) -o $@ $^ $(LCRITERION) -lm

$(filter-out $(HOOKNOUN:%=$(BUILD)/tests/test_%) $(TRACETEST) $(PASTTEST) \
    $(addprefix $(BUILD)/tests/test_,maps snapshot),$(CRITERION)): \
    $(BUILD)/tests/%: $(BUILD)/tests/%.o $(UNITSHIM)
	$(call say,LD,$@)
	$(Q)$(CC) -pthread $(SANFLAGS) -o $@ $^ $(LCRITERION) -ldl

$(BUILD)/tests/test_kept: $(BUILD)/bridges/kept.o

# Loads the library by itself, when somebody else has been there.
ALONE    := $(BUILD)/tests/api_foreign
$(ALONE): $(BUILD)/tests/%: $(BUILD)/tests/%.o $(LIB)
	$(call say,LD,$@)
	$(Q)$(CC) -pthread $(SANFLAGS) -o $@ $< -ldl

# With the cache as a library of its own, whose notes gdb finds.
$(BUILD)/tests/probes_client: RCACHELIB := -L$(BUILD) -llapse-rcache
$(BUILD)/tests/probes_client: $(BUILD)/liblapse-rcache.so
$(filter-out $(ALONE),$(API)): $(BUILD)/tests/%: $(BUILD)/tests/%.o $(LIB)
	$(call say,LD,$@)
	$(Q)$(CC) -pthread $(SANFLAGS) -o $@ $(filter %.o,$^) $(RCACHELIB) -L$(BUILD) \
	    -llapse $(LDLIBS) -Wl,-rpath,'$$ORIGIN/..' -ldl
# What it calls last shall not take the place of who calls it.
$(BUILD)/tests/threads_victim.o: BASE += -fno-optimize-sibling-calls
$(BUILD)/tests/case_f1: $(BUILD)/tests/case_uring.o
$(BUILD)/tests/api_trace_read: $(call objects,$(TRACE_SRC))
$(BUILD)/tests/api_stacks: $(call objects,$(TRACE_SRC) $(UNWIND_SRC))
$(BUILD)/tests/api_stacks: LDLIBS += $(UNWINDLIB)

# Run by sandbox.sh and faults.sh; honest has the library preloaded.
SANDBOX  := $(addprefix $(BUILD)/tests/,confine honest faults)
$(SANDBOX): $(BUILD)/tests/%: tests/%.c .deps/ready
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)$(CC) $(PLAIN) -o $@ -Wl,-z,dynamic-undefined-weak $<

# Not linked with the library: without it preloaded they are the controls.
$(CASES): $(BUILD)/tests/%: tests/%.c $(CASEPART) .deps/ready
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)$(CC) $(PLAIN) -DCASE_PRELOADED -o $@ \
	    -Wl,-z,dynamic-undefined-weak \
	    $(filter %.c,$^) -ldl

$(BUILD)/tests/api_bridge $(BUILD)/tests/api_bridge_threads: $(BRIDGE)
$(BUILD)/tests/api_bridge $(BUILD)/tests/api_bridge_threads: \
    LDLIBS += -llapse-jemalloc

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
$(BUILD)/tests/victims/lib_malloc.so $(BUILD)/tests/victims/lib_first.so: \
    tests/victims/allocating_malloc.c
	@mkdir -p $(@D)
	$(Q)$(CC) $(PLAIN) -fPIC -shared -o $@ $< -ldl \
	    $(if $(findstring first,$@),-DFIRST_ONLY=1)
$(BUILD)/tests/victims/lib_threads.so: tests/victims/lib_threads.c \
    $(BUILD)/liblapse-rcache.a
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)$(CC) $(PLAIN) -fPIC -shared -o $@ $^ -ldl
$(BUILD)/tests/victims/constructor: tests/victims/constructor.c \
    $(BUILD)/tests/victims/lib_early.so
	$(call say,CC,$<)
	$(Q)$(CC) $(PLAIN) -o $@ $< -Wl,--no-as-needed \
	    -L$(@D) -l:lib_early.so -Wl,-rpath,'$$ORIGIN' -ldl
$(filter-out %/bench_rcache,$(BENCHES)): $(BUILD)/tests/%: $(BUILD)/tests/%.o
	$(Q)$(CC) -pthread -o $@ $^ $(LDLIBS) -ldl
$(BUILD)/tests/bench_release: $(BUILD)/tests/compare.o
$(BUILD)/tests/bench_jemalloc: $(LIB)
$(BUILD)/tests/bench_jemalloc: LDLIBS += -Wl,-rpath,'$$ORIGIN/..'
$(BUILD)/tests/bench_rcache: $(BUILD)/tests/bench_rcache.o \
    $(BUILD)/liblapse-rcache.so
	$(Q)$(CC) -pthread -o $@ $< -L$(BUILD) -llapse-rcache -llapse \
	    -Wl,--disable-new-dtags,-rpath,'$$ORIGIN/..'

# The rows of `lapse check` under a cache, and against the kernel's events.
ORACLE   := $(BUILD)/tests/oracle/protocol $(BUILD)/tests/oracle/events
$(ORACLE): $(BUILD)/tests/oracle/%: $(call objects,$(CHECK_SRC)) \
    $(BUILD)/tests/oracle/%.o
	$(call say,LD,$@)
	$(Q)$(CC) -pthread $(SANFLAGS) -o $@ $^

check: all $(CRITERION) $(API) $(VICTIMS) $(CASES) $(TESTLIB) $(ORACLE) \
    $(SANDBOX) $(BUILD)/zoo_subscriber.so $(STACKS)
	$(Q)BUILD=$(BUILD) SAN=$(SAN) CC=$(CC) tests/check.sh

# At length, with `make torture`.
torture: torture-process
torture-process: $(API) $(VICTIMS) $(TESTLIB) $(SANDBOX)
	$(Q)tests/torture_process.sh $(BUILD)
.PHONY: torture-process

model:
	$(Q)CC=$(CC) tests/model/run.sh

bench: all $(BENCHES)
	$(Q)BUILD=$(BUILD) scripts/bench

print-hot:
	@echo $(HOT)
.PHONY: print-hot model

$(BUILD)/tests/stacks_dump: $(call objects,tests/stacks_dump $(TRACE_SRC) \
    $(UNWIND_SRC))
	$(call say,LD,$@)
	$(Q)$(CC) -pthread $(SANFLAGS) -o $@ $^ $(UNWINDLIB)

# Only tables lead back through it.
$(BUILD)/tests/stacks_victim: tests/stacks_victim.c .deps/ready
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)$(CC) -std=gnu11 -D_GNU_SOURCE -O2 -fomit-frame-pointer -fexceptions -g \
	    -Wall -Wextra -pthread -o $@ $<
