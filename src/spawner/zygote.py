# SPDX-License-Identifier: Apache-2.0
# zygote.py: the text that a zygote's interpreter is started with, on its stdin (spawner/zygote.h).
#
# It loads the runtime, puts what exists out of the garbage collector's sight (so that its pages stay shared with the
# children), and goes into the library, which comes back once in every child: pid 2 of a sandbox of its own, with every
# layer on. Nothing of a tenant is in sight here, nor ever will be.


def zygote(space):
    import ctypes
    import fcntl  # noqa: F401 (park() wants it: a tenth of a millisecond in every child)
    import gc
    import os
    import select  # noqa: F401 (so does the answer)
    import sys

    library, runtime = 21, 22  # zygote_msg.h
    del space["zygote"]  # __main__ is then what it is where the runtime was executed
    # keeps the interpreter's lock: the child has it, too
    serve = ctypes.PyDLL(f"/proc/self/fd/{library}").brig_zygote_serve
    before, after = ctypes.pythonapi.PyOS_BeforeFork, ctypes.pythonapi.PyOS_AfterFork_Child
    serve.restype = before.restype = after.restype = None
    text = os.pread(runtime, os.fstat(runtime).st_size, 0)  # others may read by the same descriptor
    exec(compile(text, "<brig runtime>", "exec", dont_inherit=True), space)
    space["load"]()
    sys.argv[:] = ["-c"]
    sys.dont_write_bytecode = False
    del text
    gc.collect()
    gc.freeze()
    before()  # once: nothing but children comes after it
    serve()
    after()
    space["park"](3)


zygote(globals())
