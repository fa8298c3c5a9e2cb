# SPDX-License-Identifier: Apache-2.0
"""First process of the outer namespaces that a run with layers switched off gets.

With the pid or mount namespace off, an attack that succeeds hits the caller's. So the caller is put into pid, mount,
uts and ipc namespaces of its own, and "the host" of such a run is this process's world: the sentinel lives here, the
namespace ids the probe compares with are ours, and when we end, everything that escaped ends too.
"""

import json
import os
import signal
import subprocess
import sys
import time

NAMESPACES = ("mnt", "pid", "net", "ipc", "uts", "cgroup", "user")


def drop_to(uid, gid):
    if uid != 0:
        os.setgroups([])
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)


def size_of(path):
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def main():
    with open(sys.argv[1], encoding="utf-8") as f:
        spec = json.load(f)
    uid, gid = spec["uid"], spec["gid"]
    # A mount whose name carries the harness's token, so that reading the host's mount table is seen.
    mark = spec["base"] + "/mnt"
    os.makedirs(mark, exist_ok=True)
    subprocess.run(["mount", "--bind", mark, mark], check=False)
    sentinel = subprocess.Popen(["sleep", "1000"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                stderr=subprocess.DEVNULL,
                                preexec_fn=lambda: drop_to(uid, gid), start_new_session=True)
    words = {"@SENTINEL@": str(sentinel.pid)}
    for ns in NAMESPACES:
        words[f"@NS_{ns}@"] = os.readlink(f"/proc/self/ns/{ns}")
    argv = []
    for arg in spec["argv"]:
        for word, value in words.items():
            arg = arg.replace(word, value)
        argv.append(arg)
    proc = subprocess.Popen(argv, close_fds=False, preexec_fn=lambda: drop_to(uid, gid))
    rc = proc.wait()
    status = {"rc": rc, "sentinel_alive": sentinel.poll() is None}
    if spec.get("watch"):
        first = size_of(spec["watch"])
        time.sleep(0.5)  # clock: the time of many beats of a heart that nobody announces
        status["grew"] = size_of(spec["watch"]) > first
    with open(spec["status"], "w", encoding="utf-8") as f:
        json.dump(status, f)
    sys.stdout.flush()
    os._exit(rc if rc >= 0 else 128 - rc)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    main()
