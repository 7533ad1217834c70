# SPDX-License-Identifier: BSD-3-Clause
"""Plays a terminal and a shell with job control to `lapse run`, or audit.

usage: run_cmd_tty.py intr|stop LAPSE OUTPUT [audit]
intr: ^C must reach the command exactly once. stop: ^Z must stop both, lapse
last and by SIGTSTP, and SIGCONT to the group must continue both.
Prints "good", or what went wrong.
"""
import os
import pty
import select
import signal
import sys
import time

COMMAND = r"""
trap 'echo INTERRUPT' INT
trap 'echo CONTINUED' CONT
echo READY
n=0
while [ $n -lt 15 ]; do sleep 0.1; n=$((n + 1)); done
exit 5
"""


def shell(lapse, output):
    """Runs lapse as a foreground job; says on the terminal how it fares."""
    job = os.fork()
    if job == 0:
        os.setpgid(0, 0)
        signal.signal(signal.SIGTTOU, signal.SIG_IGN)
        os.tcsetpgrp(0, os.getpid())
        signal.signal(signal.SIGTTOU, signal.SIG_DFL)
        os.execv(lapse, [lapse, (sys.argv[4:] or ["run"])[0], "--output", output, "--",
                         "sh", "-c", COMMAND])
    while True:
        _, status = os.waitpid(job, os.WUNTRACED)
        if os.WIFSTOPPED(status):
            print("STOPPED", os.WSTOPSIG(status), flush=True)
            time.sleep(0.3)
            os.killpg(job, signal.SIGCONT)
        else:
            print("ENDED", os.waitstatus_to_exitcode(status), flush=True)
            os._exit(0)


def terminal(fd, key):
    seen = b""
    pressed = False
    deadline = time.time() + 20
    while time.time() < deadline:
        if not select.select([fd], [], [], 0.5)[0]:
            continue
        try:
            data = os.read(fd, 4096)
        except OSError:
            break
        if not data:
            break
        seen += data
        if b"READY" in seen and not pressed:
            pressed = True
            time.sleep(0.3)
            os.write(fd, key)
    return seen.decode(errors="replace")


def main():
    kind, lapse, output = sys.argv[1:4]
    pid, fd = pty.fork()
    if pid == 0:
        shell(lapse, output)
    seen = terminal(fd, b"\x03" if kind == "intr" else b"\x1a")
    os.waitpid(pid, 0)
    if kind == "intr":
        good = seen.count("INTERRUPT") == 1
    else:
        good = seen.count(f"STOPPED {int(signal.SIGTSTP)}") == 1
        good = good and 1 <= seen.count("CONTINUED") <= 2
    print("good" if good and "ENDED 5" in seen else f"saw {seen!r}")


main()
