# SPDX-License-Identifier: BSD-3-Clause
# The programs: lapse here, torture in a file of its own.

LAPSE_SRC := scripts/lapse_main scripts/lapse_run scripts/lapse_report \
             scripts/lapse_json scripts/reports scripts/symbols \
             scripts/supervise scripts/inspect scripts/preload \
             scripts/command scripts/json scripts/lapse_audit \
             $(patsubst %.c,%,$(wildcard scripts/audit_*.c))

$(BUILD)/lapse: $(call objects,$(LAPSE_SRC))
	$(call say,LD,$@)
	$(Q)$(CC) $(SANFLAGS) $(LDFLAGS) -o $@ $^

# A program of any Debian that releases memory in most ways there are: see
# what the report looks like without having a program of one's own.
run: all
	$(Q)$(BUILD)/lapse run -- /usr/bin/python3 scripts/example.py

-include scripts/torture.mk
