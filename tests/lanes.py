# SPDX-License-Identifier: Apache-2.0
"""The two lanes of the driver: a cgroup each, so that a test sees nothing that the other lane leaves or uses."""

import os
import re


def homes():
    """Our own cgroup in every hierarchy: the lanes are below it."""
    with open("/proc/self/cgroup", encoding="utf-8") as lines:
        for line in lines:
            _, controllers, path = line.rstrip("\n").split(":", 2)
            for root in (f"/sys/fs/cgroup/{controllers}",) if controllers else ("/sys/fs/cgroup/unified", "/sys/fs/cgroup"):
                if os.path.exists(root + path + "/cgroup.procs"):
                    yield root + path
                    break


def dirs(lane):
    return [os.path.join(home, f"brig-lane-{lane}") for home in homes()]


def enter(lane):
    """A test that looks for cgroups left below its own sees none of the other lane's. Where that cannot be had there is one lane."""
    for path in dirs(lane):
        try:
            os.makedirs(path, exist_ok=True)
            with open(path + "/cgroup.procs", "w", encoding="ascii") as f:
                f.write(str(os.getpid()))
        except OSError:
            pass  # a hierarchy that wants more than a process (cpuset)


def remove(top):
    """All of it that is empty: a cgroup with a process stays."""
    for path, _, _ in os.walk(top, topdown=False):
        try:
            os.rmdir(path)
        except OSError:
            pass


def leave(run):
    for lane in (1, 2):
        for top in dirs(f"{run}-{lane}"):
            remove(top)


def sweep():
    """What drivers left whose processes were all killed at once. A driver that lives keeps its own."""
    for home in homes():
        for name in os.listdir(home):
            owner = re.fullmatch(r"brig-lane-(\d+)-\d+", name)
            if owner and not os.path.exists(f"/proc/{owner[1]}"):
                remove(os.path.join(home, name))


def possible():
    with open("/proc/self/cgroup", encoding="utf-8") as lines:
        hybrid = any(not line.startswith("0:") for line in lines)  # v2 alone: a cgroup with processes has no children with controllers
    return os.geteuid() == 0 and hybrid and (os.cpu_count() or 1) > 1
