# SPDX-License-Identifier: Apache-2.0
"""Whatever ends a driver ends what it started.

    the command ──forks──▶ keeper ──forks──▶ the driver ──▶ tests ──▶ whatever they start

The command and the keeper are the same code, twice: a subreaper that waits for one child.  When that child has ended,
by itself or by SIGKILL, everything below is adopted by the subreaper, which sends SIGTERM, then SIGKILL, until nothing
is left.  When the command is killed the kernel tells the keeper (PR_SET_PDEATHSIG); when the keeper is killed the
command is left to do the same.  The keeper has a session of its own, so a signal to the command's process group or
terminal reaches it only as what the command hands on.

Signals that the caller ignored or blocked (nohup ignores SIGHUP, a shell's `&` SIGINT) stay without effect on the
driver, but nothing that it executes inherits that: a handler that does nothing is reset to the default by execve, an
ignored signal is not.
"""

import ctypes
import os
import signal
import sys
import time
import traceback

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
HANDED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
PARENT_DIED = signal.SIGUSR2
PATIENCE = ((signal.SIGTERM, 5), (signal.SIGKILL, 30))


def prctl(option, value):
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


def reset_signals():
    """Nothing is blocked, and nothing that is executed from here on ignores a signal.  Returns those that the caller
    ignored."""
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    ignored = set()
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, signal.SIGPIPE, signal.SIGXFSZ}:
        # Python itself ignores SIGPIPE and SIGXFSZ, and subprocess undoes it
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, lambda *_: None)
            ignored.add(number)
    signal.signal(PARENT_DIED, signal.SIG_DFL)
    return ignored


def descendants():
    """The pids of all living processes below this one."""
    children = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as f:
                    state, parent = f.read().rpartition(")")[2].split()[:2]
            except OSError:
                continue
            children.setdefault(int(parent), []).append((int(name), state))
    found, todo = [], [os.getpid()]
    while todo:
        below = children.get(todo.pop(), [])
        found += [pid for pid, state in below if state not in "ZX"]
        todo += [pid for pid, _ in below]
    return found


def reap():
    """Takes the statuses of all children that have ended."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def end_descendants():
    """Ends every process below this one; returns those that would not go."""
    for number, seconds in PATIENCE:
        told, end = set(), time.monotonic() + seconds
        while time.monotonic() < end:
            reap()
            living = descendants()
            if not living:
                return []
            for pid in living:
                if pid not in told or number == signal.SIGKILL:
                    told.add(pid)
                    try:
                        os.kill(pid, number)
                    except (ProcessLookupError, PermissionError):
                        pass
            time.sleep(0.02)
    return descendants()


def run_child(work, parent):
    prctl(PR_SET_PDEATHSIG, PARENT_DIED)
    if os.getppid() != parent:
        os._exit(1)
    status = 1
    try:
        status = work()
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
        status = 0 if end.code is None else end.code if isinstance(end.code, int) else 1
    except BaseException:  # nothing may return into the parent's code
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status or 0)


def guard(work, cleanup, ignored):
    """Runs work() in a child and returns its status; when the child has ended, so has all it started."""
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        run_child(work, parent)

    def hand_on(number, _frame):
        try:
            os.kill(child, signal.SIGKILL if number == PARENT_DIED else number)
        except ProcessLookupError:
            pass

    for number in {*HANDED_ON, PARENT_DIED} - ignored:
        signal.signal(number, hand_on)
    while True:
        pid, status = os.waitpid(-1, 0)  # orphans end here too
        if pid == child:
            break
    status = os.waitstatus_to_exitcode(status)
    left = end_descendants()
    if left:
        print(f"keeper: these processes would not end: {left}", file=sys.stderr, flush=True)
        status = status or 1
    cleanup()
    return status if status >= 0 else 128 - status


def keep(work, cleanup=lambda: None):
    """work(ignored) as the driver; `ignored` are the signals that its caller ignored.  Returns its status, or 128 + its
    signal. cleanup() is called when nothing of it lives any more, perhaps twice, in a process of its own."""
    ignored = reset_signals()

    def keeper():
        os.setsid()
        return guard(lambda: work(ignored), cleanup, ignored)

    return guard(keeper, cleanup, ignored)
