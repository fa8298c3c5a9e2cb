# SPDX-License-Identifier: Apache-2.0
"""The two lanes of the driver: a cgroup each, so that a test sees nothing that the other lane leaves or uses."""

import os


def dirs(lane):
    """Where the cgroups of a lane are: below our own, in every hierarchy."""
    with open("/proc/self/cgroup", encoding="utf-8") as lines:
        for line in lines:
            _, controllers, path = line.rstrip("\n").split(":", 2)
            for root in (f"/sys/fs/cgroup/{controllers}",) if controllers else ("/sys/fs/cgroup/unified", "/sys/fs/cgroup"):
                if os.path.exists(root + path + "/cgroup.procs"):
                    yield os.path.join(root + path, f"brig-lane-{lane}")
                    break


def enter(lane):
    """A test that looks for cgroups left below its own sees none of the other lane's. Where that cannot be had there is one lane."""
    for path in list(dirs(lane)):
        try:
            os.makedirs(path, exist_ok=True)
            with open(path + "/cgroup.procs", "w", encoding="ascii") as f:
                f.write(str(os.getpid()))
        except OSError:
            pass  # a hierarchy that wants more than a process (cpuset)


def leave(run):
    for lane in (1, 2):
        for top in dirs(f"{run}-{lane}"):
            for path, _, _ in os.walk(top, topdown=False):
                try:
                    os.rmdir(path)
                except OSError:
                    pass


def possible():
    with open("/proc/self/cgroup", encoding="utf-8") as lines:
        hybrid = any(not line.startswith("0:") for line in lines)  # v2 alone: a cgroup with processes has no children with controllers
    return os.geteuid() == 0 and hybrid and (os.cpu_count() or 1) > 1
