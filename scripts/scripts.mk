# SPDX-License-Identifier: BSD-3-Clause
# The programs: lapse here, torture in a file of its own.

LAPSE_SRC := scripts/lapse_main scripts/lapse_run scripts/lapse_report \
             scripts/lapse_json scripts/reports scripts/symbols \
             scripts/supervise scripts/inspect scripts/preload

$(BUILD)/lapse: $(call objects,$(LAPSE_SRC))
	$(call say,LD,$@)
	$(Q)$(CC) $(SANFLAGS) $(LDFLAGS) -o $@ $^

$(BUILD)/lapse-cp: $(BUILD)/scripts/lapse_cp.o $(BUILD)/liblapse-rcache.a $(LIB)
	$(call say,LD,$@)
	$(Q)$(CC) -pthread $(SANFLAGS) $(LDFLAGS) -o $@ $(filter %.o %.a,$^) \
	    -L$(BUILD) -llapse -ldl -Wl,-rpath,'$$ORIGIN'

# A program of any Debian that releases memory in most ways there are: see
# what the report looks like without having a program of one's own.
run: all
	$(Q)$(BUILD)/lapse run -- /usr/bin/python3 scripts/example.py

-include scripts/torture.mk
