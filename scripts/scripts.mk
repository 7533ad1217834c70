# SPDX-License-Identifier: BSD-3-Clause
# The programs: lapse here, torture in a file of its own.

LAPSE_SRC := scripts/lapse_main scripts/lapse_run scripts/lapse_report \
             scripts/lapse_json scripts/reports scripts/symbols \
             scripts/supervise scripts/inspect scripts/preload \
             scripts/command scripts/json scripts/lapse_audit \
             $(patsubst %.c,%,$(wildcard scripts/run_*.c)) scripts/text \
             $(patsubst %.c,%,$(wildcard scripts/audit_*.c))
# Reading traces, for those who show them.
TRACE_SRC := $(patsubst %.c,%,$(wildcard scripts/trace_*.c))
PAST_SRC  := $(patsubst %.c,%,$(wildcard scripts/past*.c \
             scripts/picture*.c)) scripts/space scripts/steps
UNWIND_SRC := $(patsubst %.c,%,$(wildcard scripts/unwind*.c)) scripts/symbols \
             scripts/build_id
# Debian's static one is not made for programs that move in memory (PIE).
UNWINDLIB := -lunwind-x86_64
LAPSE_SRC += $(TRACE_SRC) $(filter-out scripts/symbols,$(UNWIND_SRC)) \
             $(patsubst %.c,%,$(wildcard scripts/lapse_trace*.c)) \
             $(PAST_SRC)
LAPSE_SRC += scripts/lapse_stacks scripts/threads_print \
             $(patsubst %.c,%,$(wildcard scripts/remote*.c))
# The rows and judges of `lapse check`, which tests/oracle uses too.
CHECK_SRC := scripts/check_rows scripts/check_memory scripts/check_shm \
             scripts/check_file scripts/check_loader scripts/check_malloc \
             scripts/check_threads scripts/check_kernel scripts/uring \
             scripts/oracle scripts/oracle_uring scripts/oracle_pipe \
             scripts/oracle_pagemap scripts/check_shim scripts/check_plugin_file
LAPSE_SRC += scripts/lapse_check scripts/lapse_check_print \
             scripts/lapse_check_json scripts/check_run scripts/check_child \
             $(CHECK_SRC)

$(BUILD)/check_plugin.so: $(BUILD)/scripts/check_plugin.o
	$(Q)$(CC) -shared -o $@ $<
$(BUILD)/scripts/check_plugin_file.o: $(BUILD)/check_plugin.so
$(BUILD)/scripts/check_plugin_file.o: BASE += -DPLUGIN='"$(BUILD)/check_plugin.so"'

$(BUILD)/lapse: $(call objects,$(LAPSE_SRC))
	$(call say,LD,$@)
	$(Q)$(CC) $(SANFLAGS) $(LDFLAGS) -o $@ $^ -lunwind-ptrace $(UNWINDLIB) -lm

$(BUILD)/lapse-cp: $(call objects,scripts/lapse_cp scripts/lapse_cp_file) \
    $(BUILD)/liblapse-rcache.a $(LIB)
	$(call say,LD,$@)
	$(Q)$(CC) -pthread $(SANFLAGS) $(LDFLAGS) -o $@ $(filter %.o %.a,$^) \
	    -L$(BUILD) -llapse -ldl -Wl,-rpath,'$$ORIGIN'

# A program of any Debian that releases memory in most ways there are: see
# what the report looks like without having a program of one's own.
run: all
	$(Q)$(BUILD)/lapse run -- /usr/bin/python3 scripts/example.py

-include scripts/torture.mk

# Real programs, bare, under the library, and with a cache beside it.
$(BUILD)/zoo_subscriber.so: scripts/zoo_subscriber.c shim/lapse.h
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)$(CC) $(BASE) -shared -o $@ $<

zoo: $(LIB) $(BUILD)/lapse $(BUILD)/zoo_subscriber.so
	$(Q)BUILD=$(BUILD) scripts/zoo
.PHONY: zoo
