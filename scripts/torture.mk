# SPDX-License-Identifier: BSD-3-Clause
# build/torture, the program behind scripts/torture.
TORTURE := $(patsubst %.c,%,$(wildcard scripts/torture*.c))

# The library is found next to the program, in whatever build directory.
$(BUILD)/torture: $(call objects,$(TORTURE)) $(BUILD)/liblapse-rcache.a $(LIB) \
    | $(BUILD)/torture-library.so
	$(call say,LD,$@)
	$(Q)$(CC) -pthread $(SANFLAGS) $(LDFLAGS) -o $@ $(filter %.o %.a,$^) \
	    -L$(BUILD) -llapse -ldl -Wl,-rpath,'$$ORIGIN' \
	    -lunwind-ptrace -lunwind-generic

# It goes into a dlmopen, too, where no sanitizer is.
$(BUILD)/scripts/lib_torture.o: SANFLAGS :=
$(BUILD)/torture-library.so: $(BUILD)/scripts/lib_torture.o
	$(Q)$(CC) -shared $(LDFLAGS) -o $@ $<

# Of each phase of the deadlock and the cache; the rest goes by counts.
SECONDS ?= 60
torture: $(BUILD)/torture $(BUILD)/tests/step $(BUILD)/tests/fuzz_api model \
    $(BUILD)/lapse $(BUILD)/zoo_subscriber.so
	$(Q)$(BUILD)/tests/step
	$(Q)for seed in 1 2 3; do $(BUILD)/tests/fuzz_api 10000000 $$seed || exit 1; done
	$(Q)$(BUILD)/torture deadlock --seconds $(SECONDS)
	$(Q)$(BUILD)/torture rcache --seconds $(SECONDS)
	$(Q)BUILD=$(BUILD) scripts/zoo
