# SPDX-License-Identifier: Apache-2.0
"""zygote.py: the text that a zygote's interpreter is started with (jail/zygote.h).

Loads the runtime, puts what exists out of the garbage collector's sight (its pages stay shared with the children), and goes into the library, which
comes back once in every child: pid 2 of a sandbox of its own, with every layer on.  Nothing of a tenant is in sight here, nor ever will be.
"""

import ctypes
import gc
import os
import sys
import types

LIBRARY, RUNTIME = 21, 22  # zygote_msg.h


def load():
    text = os.pread(RUNTIME, os.fstat(RUNTIME).st_size, 0)  # others may read by the same descriptor
    runtime = types.ModuleType("brig_runtime")
    exec(compile(text, "<brig runtime>", "exec", dont_inherit=True), runtime.__dict__)
    runtime.load()
    return runtime


def main():
    serve = ctypes.PyDLL(f"/proc/self/fd/{LIBRARY}").brig_zygote_serve  # keeps the interpreter's lock: the child has it, too
    before, after = ctypes.pythonapi.PyOS_BeforeFork, ctypes.pythonapi.PyOS_AfterFork_Child
    before.restype = after.restype = None
    runtime = load()
    sys.dont_write_bytecode = False
    gc.collect()
    gc.freeze()
    before()  # once: nothing but children comes after it
    serve()
    after()
    runtime._refresh()
    runtime.park(3)
    os._exit(0)


main()
