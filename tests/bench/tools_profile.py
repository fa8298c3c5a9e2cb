# SPDX-License-Identifier: Apache-2.0
"""Where the CPU time of a load goes: samples of every CPU (perf's cpu-clock), put together by who was running and in
which stage of a run's life.

A program's name says whose time it is; the interpreter's children and brig-init share theirs between the making and the
run, so there the kernel's functions tell: fork, exec, exit and their page faults are the life of a process, the rest is
its work.
"""

import collections
import pathlib
import re
import shutil
import subprocess

FREQUENCY = 1999
OURS = (("brigd", "brigd: HTTP, policy, request, receipt, audit, pool"),
        ("brig-spawner", "brig-spawner: sandboxes made, ended, counted"),
        ("brig-init", "brig-init: pid 1 of each sandbox"),
        ("brig-zygote", "brig-zygote: clones of the interpreter"), ("brig-reaper", "brig-reaper: cgroups removed"),
        ("brig-audit", "brigd: the audit log's thread"),
        ("brig-egress", "brig-egress"), ("brig", "brig serve"),
        ("python3", "Python: the children, from their clone to their end"), ("node", "Node"),
        ("tools_client", "the client"))
# The first that fits anywhere in the stack, outermost last. "" is everything else.
STAGES = (("end of processes", r"do_exit|do_group_exit|exit_mmap|release_task|zap_pid_ns"),
          ("fork", r"kernel_clone|copy_process"), ("exec", r"execve"),
          ("namespaces and mounts",
           r"unshare|create_new_namespaces|mount|umount|pivot_root|"
           r"copy_tree|cleanup_mnt|put_mnt_ns|copy_mnt_ns|setns|free_nsproxy"),
          ("network namespaces", r"cleanup_net|copy_net_ns|ops_undo"), ("cgroups", r"cgroup|css_|memcg_offline"),
          ("RCU", r"rcu_do_batch|rcu_exp|rcu_gp|sync_rcu"), ("page faults", r"page_fault|handle_mm_fault"),
          ("files",
           r"sys_(openat|open|stat|newfstatat|read|write|close|mkdir|unlink|getdents|readlink|lseek|pread|fcntl)"),
          ("sockets", r"sock|unix_stream|sys_send|sys_recv"), ("waiting", r"epoll|poll|schedule|futex"))


def stage_of(comm, stack, kernel):
    if not stack:  # the spawner's helper that makes network namespaces runs on a stack that perf does not follow
        return "network namespaces" if comm == "brig-spawner" else "not known"
    for name, pattern in STAGES:
        if re.search(pattern, stack):
            return name
    return "other work" if kernel and kernel_thread(comm) else "other system calls" if kernel else "own code"


def samples(data):
    """(pid, command, stack as text, whether the CPU was in the kernel), one per sample; ("fork", child, parent) for
    each that was born."""
    script = subprocess.Popen(["perf", "script", "-i", str(data), "--show-task-events", "-F",
                               "comm,pid,tid,event,ip,sym,dso"],
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, errors="replace")
    head, frames = None, []
    for line in script.stdout:
        born = re.search(r"PERF_RECORD_FORK\((\d+):\d+\):\((\d+):\d+\)", line)
        if born:
            yield "fork", int(born.group(1)), int(born.group(2))
        elif "PERF_RECORD_" in line:
            continue
        elif not line.strip():
            if head:
                yield int(head.group(2)), head.group(1), " ".join(frames), bool(frames) and "[kernel" in frames[0]
            head, frames = None, []
        elif head is None:
            head = re.match(r"\s*(.+?)\s+(-?\d+)/-?\d+\s", line)
        else:
            frames.append(line.strip())
    script.wait()


def who_of(comm):
    return next((words for name, words in OURS if comm == name), f"{comm}")


def kernel_thread(comm):
    return re.match(r"kworker|ksoftirqd|rcu|migration|kthread", comm)


def take(directory, seconds, pids, load):
    """[{who, stage, share, us}] of what load() (which returns how many runs it had) costs; us: CPU time per run. pids:
    the processes that count, with all they fork; and the kernel's threads."""
    if not shutil.which("perf"):
        raise RuntimeError("there is no perf (Debian: linux-perf)")
    data = pathlib.Path(directory) / "perf.data"
    perf = subprocess.Popen(["perf", "record", "-q", "-a", "-g", "-e", "cpu-clock", "-F", str(FREQUENCY), "-o",
                             str(data), "--", "sleep", str(seconds)],
                            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    runs = load()
    perf.wait()
    counts, total, known, pids = collections.Counter(), 0, set(pids), set(pids)
    for first, *rest in samples(data):
        if first == "fork":
            (pids.add if rest[1] in pids or rest[0] in known else pids.discard)(rest[0])
            continue
        comm, stack, kernel = rest
        if first not in pids and not kernel_thread(comm):
            continue
        total += 1
        counts["the kernel's own threads" if kernel_thread(comm) else who_of(comm), stage_of(comm, stack, kernel)] += 1
    data.unlink()
    if not total:
        raise RuntimeError("perf has no samples here")
    return [{"who": who, "stage": stage, "share": round(n / total, 4),
             "us": round(n / FREQUENCY * 1e6 / max(1, runs), 1)} for (who, stage),
            n in counts.most_common()]


def by_who(lines):
    """[(who, share, us, [(stage, us), ...])], most first."""
    whole = collections.defaultdict(lambda: [0.0, 0.0, []])
    for line in lines:
        one = whole[line["who"]]
        one[0] += line["share"]
        one[1] += line["us"]
        one[2].append((line["stage"], line["us"]))
    return sorted(((who, share, us, stages) for who, (share, us, stages) in whole.items()), key=lambda x: -x[1])


def report(lines):
    for who, share, us, stages in by_who(lines):
        print(f"{who:52} {share:6.1%} {us:8.0f} us/run   "
              + ", ".join(f"{name} {value:.0f}" for name, value in stages[:6]))
