# SPDX-License-Identifier: BSD-3-Clause
"""Run by gdb: stops at every probe of provider lapse, prints NAME ARG..."""
import gdb

COUNTS = {"publish": 5, "deliver": 6, "overflow": 1, "watch": 3,
          "unwatch": 3, "hit": 4, "miss": 3, "evict": 2}


class Probe(gdb.Breakpoint):
    def __init__(self, name):
        super().__init__("-probe-stap lapse:" + name)
        self.name = name

    def stop(self):
        if int(gdb.parse_and_eval("$_probe_argc")) != COUNTS[self.name]:
            print("PROBE wrong number of arguments of", self.name)
        values = [int(gdb.parse_and_eval(f"$_probe_arg{i}")) % 2**64
                  for i in range(COUNTS[self.name])]
        print("PROBE", self.name, *values)
        return False


gdb.execute("set pagination off")
gdb.execute("break main")
gdb.execute("run > " + gdb.parse_and_eval("$client_out").string())
for probe in COUNTS:
    Probe(probe)
gdb.execute("continue")
