# SPDX-License-Identifier: BSD-3-Clause
"""What `make run` runs: gives memory back in most ways a program does."""
import ctypes
import mmap
import os
import threading

libc = ctypes.CDLL(None)
libc.dlclose.argtypes = [ctypes.c_void_p]


def mappings():
    for _ in range(20):
        with mmap.mmap(-1, 1 << 20) as area:
            area.write(b"x" * 8192)


def heap():
    blocks = [bytes(3000) for _ in range(3000)]
    large = [bytearray(1 << 21) for _ in range(4)]
    del blocks, large
    libc.malloc_trim(0)


def main():
    mappings()
    heap()
    threads = [threading.Thread(target=heap) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for _ in range(3):
        libc.dlclose(ctypes.CDLL("libresolv.so.2")._handle)
    print("python3: mapped, freed, trimmed, unloaded", flush=True)
    child = os.fork()
    if child == 0:
        mappings()
        os._exit(0)
    os.waitpid(child, 0)


main()
