# SPDX-License-Identifier: Apache-2.0
"""The lanes of the driver: a cgroup each, so that a test sees nothing that another lane leaves or uses.

There are twice as many as cores: most tests wait more than they compute.  Half as many again begin a module only
while the cores have time left, so a quiet machine is used well and a busy one does not get busier.  A module runs in
one lane, one test at a time; any two modules may run at the same time, so no test looks outside of its own cgroup, its
own directories and its own processes.
"""

import os
import re
import time

COUNT = 2 * (os.cpu_count() or 1)
MORE = os.cpu_count() or 1
IDLE_SHARE = 0.2  # of the time of all cores, over LOOK_SECONDS: what must be left for one of the further lanes to begin
LOOK_SECONDS = 1
# Unit tests at once: the longest of them wait nearly all of their time.  Beside the lanes, half as many.
PROGRAMS_PER_CORE = 2

# The longest, in seconds on a quiet machine of two cores: these begin first, so that no lane ends long after the
# others.
SECONDS = {
    "hostile:run.py": 240, "e2e:test_service_keep.py": 89, "e2e:test_jail_disks.py": 60,
    "e2e:test_template_pool.py": 46, "e2e:test_jail_layers.py": 39, "e2e:test_sets_killed.py": 38,
    "e2e:test_jail_root.py": 35, "e2e:test_library_network.py": 33, "e2e:test_role_matrix.py": 31,
    "e2e:test_letta_api.py": 29, "lint:test_sources.py": 28, "e2e:test_gate_clients.py": 27, "e2e:test_store.py": 27,
    "e2e:test_jail_service.py": 26, "e2e:test_zygote.py": 26, "e2e:test_gate_load.py": 25, "e2e:test_truth.py": 24,
    "e2e:test_cli_run_daemon.py": 24, "e2e:test_gate_attacks.py": 23, "e2e:test_jail_disk_tidy.py": 23,
    "e2e:test_hostile_images.py": 21, "e2e:test_disks.py": 21, "lint:test_driver.py": 21,
    "e2e:test_runtime_node.py": 20, "e2e:test_service_hostile_inside.py": 19, "e2e:test_tools_attacks.py": 19,
    "e2e:test_templates_tools.py": 18, "e2e:test_build_faults.py": 18, "e2e:test_runtime_python.py": 16,
    "e2e:test_jail_gate.py": 16, "e2e:test_service_faults.py": 16, "e2e:test_run_network.py": 16,
    "e2e:test_build_bounds.py": 16, "e2e:test_guest.py": 15, "e2e:test_tools_bad.py": 15, "lint:test_promises.py": 15,
    "e2e:test_egress_ways.py": 15, "e2e:test_tables.py": 15, "e2e:test_jail_outcomes.py": 15,
    "e2e:test_disk_faults.py": 15, "e2e:test_build_copy.py": 15, "e2e:test_jail_disk_faults.py": 14,
    "e2e:test_jail_limits.py": 14, "e2e:test_build.py": 14, "e2e:test_broker_clients.py": 14,
    "e2e:test_roles_tools.py": 14, "e2e:test_jail_inject.py": 13, "e2e:test_templates_pull.py": 13,
    "e2e:test_jail_death.py": 13, "e2e:test_service_network.py": 13, "e2e:test_webhook.py": 12,
    "e2e:test_secrets_api.py": 12, "e2e:test_cli_tools.py": 12, "e2e:test_template_settings.py": 12,
    "e2e:test_jail_disk_places.py": 12, "e2e:test_library.py": 11, "e2e:test_cli_run.py": 11, "lint:test_waits.py": 11,
    "e2e:test_service_life.py": 11, "e2e:test_jail_rootless.py": 10, "e2e:test_cli_service.py": 10,
    "e2e:test_jail_wall.py": 10, "unit:test_guest_worker": 17, "unit:test_guest_files": 15, "unit:test_audit": 14,
    "unit:test_guest_shell": 13, "unit:test_registry_blob": 12, "unit:test_guest_watch": 12,
    "unit:test_store_faults": 9, "unit:test_registry_documents": 8, "unit:test_audit_verify": 7,
    "unit:test_tool_sets": 7, "unit:test_process": 5, "unit:test_server_limits": 5,
}


def longest_first(work, name):
    """A list of what is in `work`; name(item) is its id.  Those that are not in SECONDS follow in their order."""
    return sorted(work, key=lambda item: -SECONDS.get(name(item), 0))


def homes():
    """Our own cgroup in every hierarchy: the lanes are below it."""
    with open("/proc/self/cgroup", encoding="utf-8") as lines:
        for line in lines:
            _, controllers, path = line.rstrip("\n").split(":", 2)
            for root in (f"/sys/fs/cgroup/{controllers}",) if controllers else ("/sys/fs/cgroup/unified",
                                                                                "/sys/fs/cgroup"):
                if os.path.exists(root + path + "/cgroup.procs"):
                    yield root + path
                    break


def dirs(lane):
    return [os.path.join(home, f"brig-lane-{lane}") for home in homes()]


def inherit(path, name):
    """A knob of the parent's, where there is such a knob: a cpuset without CPUs and memory takes no process."""
    if os.path.exists(f"{path}/{name}"):
        with open(f"{os.path.dirname(path)}/{name}", encoding="ascii") as parent, \
                open(f"{path}/{name}", "w", encoding="ascii") as own:
            own.write(parent.read())


def enter(lane):
    """A test that looks for cgroups left below its own sees none of another lane's."""
    for path in dirs(lane):
        try:
            os.makedirs(path, exist_ok=True)
            inherit(path, "cpuset.cpus")
            inherit(path, "cpuset.mems")
            with open(path + "/cgroup.procs", "w", encoding="ascii") as f:
                f.write(str(os.getpid()))
        except OSError:
            pass  # a hierarchy that we may not change


def cpu_seconds(lane):
    """What everything in the lane used so far, 0 where no controller counts it."""
    for path in dirs(lane):
        try:
            with open(path + "/cpuacct.usage", encoding="ascii") as usage:
                return int(usage.read()) / 1e9
        except OSError:
            pass  # another hierarchy, or no test entered the lane yet
    return 0.0


def core_times():
    """(idle, all) of the cores together, in ticks since the machine started."""
    with open("/proc/stat", encoding="ascii") as stat:
        ticks = [int(n) for n in stat.readline().split()[1:9]]  # what guests used is in the first two already
    return ticks[3] + ticks[4], sum(ticks)


def time_is_left():
    """Whether the cores were idle for long enough in the last LOOK_SECONDS."""
    before = core_times()
    time.sleep(LOOK_SECONDS)
    idle, whole = (now - then for now, then in zip(core_times(), before))
    return whole > 0 and idle >= IDLE_SHARE * whole


def remove(top):
    """All of it that is empty: a cgroup with a process stays."""
    for path, _, _ in os.walk(top, topdown=False):
        try:
            os.rmdir(path)
        except OSError:
            pass


def leave(run):
    for lane in range(1, COUNT + MORE + 1):
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
        # v2 alone: a cgroup with processes has no children with controllers
        hybrid = any(not line.startswith("0:") for line in lines)
    return os.geteuid() == 0 and hybrid and (os.cpu_count() or 1) > 1
