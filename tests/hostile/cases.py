# SPDX-License-Identifier: Apache-2.0
"""The table of hostile cases: groups F, P, R, I, C and S of the attack list, and U: root inside. S04 and S05 need a
daemon (served.py).

A case is held when its run ends as `expect` says, the probe reports no BREACH, no canary shows up anywhere, the host is
as it was, and nothing of brig is left. `off` names the layers that stop it: with all of them switched off (test build)
the same probe must report a real BREACH, or a canary must show. `off=None` means no layer of the list stops it; `why`
says what does. Ids with a suffix are siblings of the numbered case.
"""

from dataclasses import dataclass, field

ALL_MODES = ("root", "rootless1", "rootless2")
# The attacker is root inside, in a writable root: called by root, and by a plain user with subordinate ids.
INSIDE_MODES = ("inside", "inside2")
# In inside2 the programs are binds of the host's, which share locks and notifications, and no bind can be written.
OWN_PROGRAMS = ALL_MODES + ("inside",)
# What stands between a program and root's files and powers when the caller is root.
IDS = ("user_ns", "uid_range", "caps")
FILES = ("mount_ns", "landlock", *IDS)
ENGINE = "the engine's own bookkeeping, no layer"
KERNEL = "the kernel's own limits, no layer"


@dataclass(frozen=True)
class Expect:
    """How the receipt must look. None: not asserted. status is brig's own exit status; default: exit_code."""

    cause: tuple = ("exited",)
    exit_code: int = 0
    status: int = None
    signal: int = None
    limits_hit: tuple = ()
    lines: bool = True  # the probe must have said at least one "ok"


HELD = Expect()
OOM = Expect(("oom",), None, 137, lines=False)
TIMEOUT = Expect(("timeout",), None, 124, lines=False)


@dataclass(frozen=True)
class Case:
    id: str
    name: str
    probe: tuple = ()              # argv of the probe; default: the id
    command: tuple = ()            # instead of the probe
    flags: tuple = ()
    env: dict = field(default_factory=dict)
    expect: dict = field(default_factory=dict)  # mode -> Expect; "*" is the default
    needs: tuple = ()              # features of the mode, else skipped
    modes: tuple = ALL_MODES + INSIDE_MODES
    scenario: str = ""             # a function of scenarios.py instead of the plain run
    off: tuple = None
    off_mode: str = "root"
    off_probe: tuple = ()
    off_flags: tuple = None        # instead of flags: the limit itself is what is lifted
    off_causes: tuple = ()         # ends of the run that prove the bite as well as a BREACH does
    off_needs_cap: int = None      # a capability root must have here, or nothing can bite
    why: str = ""
    alone: bool = False            # R group: nothing else may run beside it

    def expectation(self, mode):
        return self.expect.get(mode, self.expect.get("*", HELD))

    @property
    def argv(self):
        return self.probe or (self.id,)


def any_mode(expect):
    return {"*": expect}


MB = 1 << 20
COMPAT = {"flags": ("--profile", "compat"), "env": {"HOSTILE_PROFILE": "compat"}}
PARANOID = {"flags": ("--profile", "paranoid"), "env": {"HOSTILE_PROFILE": "paranoid"}}

FILESYSTEM = (
    Case("F01", "dotdot-root", off=FILES),
    Case("F03", "proc-self-root", off=("proc", *FILES)),
    Case("F04", "proc-cwd-exe-fd", off=("proc", "landlock", *IDS)),
    Case("F04-interp", "self-exe-interpreter", scenario="self_exe_interpreter", why=ENGINE),
    Case("F06", "fd-leak", off=("fds",)),
    Case("F07", "dirfd-escape", off=("fds", *FILES)),
    Case("F09", "handle-open", off=("seccomp", "landlock", *IDS)),
    Case("F12", "hardlink-host", off=FILES),
    Case("F15", "overlay-whiteout", off=("seccomp", "landlock", *IDS)),
    Case("F15-root", "overlay-whiteout, writable root", probe=("F15",), flags=("--writable-root",),
         env={"HOSTILE_WRITABLE_ROOT": "1"}, off=("seccomp", "landlock", *IDS)),
    Case("F16", "overlay-work-access", off=("mount_ns", "landlock")),
    Case("F16-root", "overlay-work-access, writable root", probe=("F16",), flags=("--writable-root",),
         off=("mount_ns", "landlock")),
    Case("F18", "mountinfo-leak", modes=OWN_PROGRAMS, off=("mount_ns", "landlock")),
    Case("F19", "proc-sys-write", off=("proc", *FILES)),
    Case("F19-compat", "proc-sys-write, compat", probe=("F19",), off=("proc", *FILES), **COMPAT),
    Case("F21", "proc-kcore-kmsg", off=("proc", *FILES)),
    Case("F21-compat", "proc-kcore-kmsg, compat", probe=("F21",), off=("proc", *FILES), **COMPAT),
    Case("F22", "sysfs", off=("mount_ns", "landlock")),
    Case("F24", "cgroup-escape", off=("cgroup_ns", *FILES)),
    Case("F25", "mknod-disk", off=("seccomp", "landlock", *IDS)),
    Case("F27", "mount-all", off=("seccomp", "landlock", *IDS)),
    Case("F27-compat", "mount-all, compat", probe=("F27",), off=("seccomp", "landlock", *IDS), **COMPAT),
    Case("F28", "remount-rw", off=("seccomp", "landlock", *IDS)),
    Case("F30", "pivot", off=("seccomp", "landlock", *IDS)),
    # With root inside set-id bits may be set; that they give nothing is U15.
    Case("F31", "setuid-bin", modes=ALL_MODES, off=("seccomp", "no_new_privs", "landlock")),
    Case("F31-paranoid", "setuid-bin, paranoid", probe=("F31",), modes=ALL_MODES,
         off=("seccomp", "no_new_privs", "landlock"), **PARANOID),
    Case("F31-suid", "setuid-bin from the host", probe=("F31",), modes=ALL_MODES,
         off=("seccomp", "no_new_privs", "mount_ns", "landlock", *IDS), off_mode="rootless1"),
    Case("F33", "xattr-security", flags=("--inodes", 4096), off=IDS),
    # The root of those with root inside is writable; F34-private, U36 and U40 are about that.
    Case("F34", "ro-base-write", modes=ALL_MODES, off=("root_readonly", "landlock", *IDS)),
    Case("F34-compat", "ro-base-write, compat", probe=("F34",), modes=ALL_MODES,
         off=("root_readonly", "landlock", *IDS), **COMPAT),
    Case("F34-private", "writable root stays private", scenario="private_root", why="one upper per sandbox, no layer"),
    Case("F36", "cross-sandbox-file", scenario="cross_file", off=("mount_ns", "landlock")),
    Case("F37", "unix-sock-path", off=("mount_ns", "landlock")),
    Case("F38", "abstract-socket", off=("net_ns", "landlock")),
    Case("F38-sudo", "abstract-socket of sudo", why="nobody listens where the sandbox has no sudo, no layer"),
    Case("N03", "host-loopback, no gate", off=("net_ns", "landlock")),
    Case("F39", "inotify-host", modes=OWN_PROGRAMS, scenario="inotify_host", off=("mount_ns", "landlock")),
    Case("F40", "flock-covert", modes=OWN_PROGRAMS, scenario="flock_covert", off=("mount_ns", "landlock", "seccomp")),
    Case("F42", "weird-names", why=KERNEL),
    Case("F42-argv", "weird-bytes in arguments", scenario="weird_argv", why=ENGINE),
    Case("F45", "setup-symlink-rootfs", scenario="symlink_rootfs", why="set-up by descriptors, no layer"),
    Case("F45-tar", "setup-symlink-rootfs, tar", scenario="symlink_tar", why="set-up by descriptors, no layer"),
    Case("F46", "procfs-fake", scenario="fake_procfs", why="set-up by descriptors, no layer"),
)

PROCESSES = (
    Case("P01", "kill-host", off=("pid_ns", "landlock", *IDS)),
    Case("P02", "kill-init", expect=any_mode(Expect(("exited", "signalled", "sandbox-gone"), None, lines=False)),
         off=("pid_ns", "landlock", *IDS),
         off_causes=("sandbox-gone", "host-error")),
    Case("P04", "procmem", off=("proc", "landlock", *IDS)),
    Case("P05", "process_vm, pidfd_getfd, kcmp", off=("seccomp",)),
    Case("P07", "other-ns", off=("seccomp", "landlock", *IDS)),
    Case("P08", "clone-flags", off=("seccomp", "landlock", *IDS)),
    Case("P10", "seccomp-undo", off=("seccomp",)),
    Case("P11", "nnp and caps", off=("caps", "no_new_privs")),
    Case("P11-memfd", "nnp and caps, from a memfd", off=("caps", "no_new_privs")),
    Case("P13", "personality", off=("seccomp",)),
    Case("P14", "tiocsti", off=("seccomp",)),
    Case("P14-tty", "tiocsti, on a terminal", scenario="terminal", off=("seccomp",)),
    Case("P16", "keyring", off=("seccomp",)),
    Case("P17", "sysv and posix ipc", off=("ipc_ns", "seccomp", "mount_ns", "landlock")),
    Case("P19", "unix-scm", off=("seccomp", "landlock", *IDS)),
    Case("P20", "signals-to-parent", off=("pid_ns", "landlock")),
    Case("P22", "double-fork daemon", modes=OWN_PROGRAMS, scenario="daemon", off=("pid_ns", "memory", "cpu", "pids")),
    Case("P22-hang", "daemon, then timeout", modes=OWN_PROGRAMS, scenario="daemon_hang",
         off=("pid_ns", "memory", "cpu", "pids")),
    Case("P23", "orphan holding stdout", flags=("--timeout", "@30"), why=ENGINE),
    Case("P25", "self-stop", flags=("--timeout", "@1"), expect=any_mode(TIMEOUT), why=ENGINE),
    Case("P26", "vfork-hang", flags=("--timeout", "@1"), expect=any_mode(TIMEOUT), why=ENGINE),
    Case("P27", "ignores SIGTERM, partial output", scenario="partial_output", why=ENGINE),
    Case("P28", "exec storms, shebang loops, ELF fuzz", flags=("--timeout", "@60"), why=KERNEL),
    Case("P29", "core-dump", why="a resource limit, no layer"),
    Case("P29-pipe", "core-dump to the host's handler", scenario="core_pipe", why="a resource limit, no layer"),
    Case("P31", "sched", off=("seccomp", *IDS)),
    Case("P32", "landlock-escape", off=("mount_ns", "landlock", *IDS)),
    Case("P34", "hostname and clock", off=("uts_ns", "seccomp", *IDS)),
    Case("P35", "ns-fd leak", off=("user_ns", "seccomp")),
    Case("P37", "exploit shapes", off=("seccomp",)),
    Case("P37-paranoid", "exploit shapes, paranoid", probe=("P37",), off=("seccomp",), **PARANOID),
)

PIDS_HIT = {"*": Expect(limits_hit=("pids",)), "rootless1": HELD}
MEMORY = {"*": OOM, "rootless1": HELD}
DISK_HIT = any_mode(Expect(limits_hit=("disk",)))

RESOURCES = (
    Case("R01", "fork-bomb", probe=("R01", "64"), flags=("--pids", 64, "--timeout", "@30"), expect=PIDS_HIT,
         off=("pids",), alone=True),
    Case("R01-threads", "thread bomb", probe=("R01-threads", "64"), flags=("--pids", 64, "--timeout", "@30"),
         expect=PIDS_HIT, off=("pids",), alone=True),
    Case("R01-shell", "shell fork-bomb", command=("/bin/sh", "-c", "(b(){ b|b& };b); exec sleep 600"),
         flags=("--pids", 64, "--timeout", "@2"),
         expect={"*": Expect(("timeout",), None, 124, limits_hit=("pids",), lines=False), "rootless1": TIMEOUT},
         why="see R01", alone=True),
    Case("R01-end", "pids-limit as a cause", scenario="pids_cause", needs=("pids",), why="see R01", alone=True),
    Case("R03", "mem-bomb", probe=("R03", str(64 * MB), "10"), flags=("-m", "64m", "--timeout", "@60"), expect=MEMORY,
         off=("memory",), off_probe=("R03", str(64 * MB), "3"), alone=True),
    Case("R03-brk", "mem-bomb by brk", probe=("R03-brk", str(64 * MB), "10"), flags=("-m", "64m", "--timeout", "@60"),
         expect=MEMORY,
         off=("memory",), off_probe=("R03-brk", str(64 * MB), "3"), alone=True),
    Case("R03-peak", "oom is local and measured", scenario="oom_peak", needs=("memory",), why="see R03", alone=True),
    Case("R04-shared", "shared mmap", probe=("R04-shared", str(64 * MB), "10"), flags=("-m", "64m", "--timeout", "@60"),
         expect=MEMORY,
         off=("memory",), off_probe=("R04-shared", str(64 * MB), "3"), alone=True),
    Case("R04-memfd", "memfd", probe=("R04-memfd", str(64 * MB), "10"), flags=("-m", "64m", "--timeout", "@60"),
         expect=MEMORY, needs=("memory",),
         off=("memory",), off_probe=("R04-memfd", str(64 * MB), "3"), alone=True),
    Case("R04-many", "many processes", probe=("R04-many", str(64 * MB)), flags=("-m", "64m", "--timeout", "@60"),
         expect=MEMORY, needs=("memory",),
         off=("memory",), alone=True),
    Case("R04-kernel", "socket buffers", probe=("R04-kernel", str(64 * MB)), flags=("-m", "64m", "--timeout", "@60"),
         needs=("memory",),
         expect=any_mode(Expect(("oom", "exited"), None, lines=False)), off=("memory",), alone=True),
    Case("R04-devshm", "/dev/shm is the store", probe=("R04-devshm", str(16 * MB)),
         flags=("-m", "128m", "--disk", "16m"), expect=DISK_HIT,
         off=("disk",), alone=True),
    Case("R06", "disk-fill", probe=("R06", str(32 * MB)), flags=("-m", "128m", "--disk", "32m", "--timeout", "@60"),
         expect=DISK_HIT, off=("disk",), alone=True),
    Case("R06-root", "disk-fill, writable root", probe=("R06", str(32 * MB)),
         flags=("-m", "128m", "--disk", "32m", "--writable-root", "--timeout", "@60"),
         expect=DISK_HIT, off=("disk",), alone=True),
    Case("R06-file", "file-size", probe=("R06-file", str(MB)), flags=("--file-size", "1m"), off=(),
         off_flags=("--file-size", "64m"), alone=True),
    Case("R06-end", "disk-limit as a cause", scenario="disk_cause", why="see R06", alone=True),
    Case("R07", "inode-fill", probe=("R07", "2000"), flags=("--inodes", 2000, "--timeout", "@60"),
         expect=any_mode(Expect(limits_hit=("inodes",))), off=("inodes",), alone=True),
    Case("R07-deep", "deep directories", probe=("R07-deep", "10000"), flags=("--timeout", "@60"), why="see R07",
         alone=True),
    Case("R09", "fd-exhaust", probe=("R09", "256"), flags=("--open-files", 256), off=(),
         off_flags=("--open-files", 8192), alone=True),
    Case("R10", "pipe-buffers", off=IDS, alone=True),
    Case("R10-shared", "pipe pages are private", scenario="private_pipes", modes=("root",), needs=("private quotas",),
         off=("uid_range",), alone=True),
    Case("R12", "no-newline flood", scenario="output_flood", why=ENGINE, alone=True),
    Case("R12-kill", "output-limit kills", scenario="output_kill", why=ENGINE, alone=True),
    # few percent and many threads: without the limit they get more, however many others want the processors
    Case("R13", "cpu-spin threads", probe=("R13", "3", "16", "10"), flags=("-c", "0.1", "--timeout", "@60"),
         needs=("cpu",), off=("cpu",), alone=True),
    Case("R13-time", "cpu-time kills", probe=("R13", "600", "2"), flags=("--cpu-time", "1s", "--timeout", "@20"),
         expect={"*": Expect(("cpu-limit",), None, 137, lines=False),
                 # nothing counts there: refused, not ignored
                 "rootless1": Expect(("policy",), None, 125, lines=False)},
         why=ENGINE, alone=True),
    Case("R13-churn", "cpu-time counts the dead", probe=("R13-churn",), flags=("--cpu-time", "1s", "--timeout", "@60"),
         needs=("cpu",),
         expect=any_mode(Expect(("cpu-limit",), None, 137, lines=False)), off=(), off_probe=("R13-churn", "15"),
         off_flags=("--timeout", "@60"), alone=True),
    Case("R15", "mlock, huge pages, secretmem", off=("seccomp", *IDS), alone=True),
    Case("R16", "kernel objects", probe=("R16",), flags=("--timeout", "@60"), why=KERNEL, alone=True),
    Case("R16-shared", "inotify budget is private", scenario="private_inotify", modes=("root",),
         needs=("private quotas",), off=("user_ns", "uid_range"), alone=True),
    Case("R18", "page-cache thrash", probe=("R18", str(32 * MB), "10"), flags=("-m", "32m", "--timeout", "@120"),
         why="reclaim, no layer", alone=True),
    Case("R27", "cgroup-remnants", scenario="remnants", why=ENGINE, alone=True),
    Case("R28", "oom-score", scenario="oom_score", off=IDS, off_needs_cap=24, alone=True),
    Case("R30", "huge environments and arguments", scenario="huge_environment", why=ENGINE, alone=True),
)

INFORMATION = (
    Case("I01", "parent-environ", off=("pid_ns", "proc", *FILES)),
    Case("I02", "cmdline-secrets", scenario="cmdline_secret", off=("pid_ns", "proc", *FILES)),
    Case("I04", "dmesg", off=("seccomp", *IDS)),
    Case("I05", "kcore, mem, port and other devices", off=("mount_ns", "landlock")),
    Case("I07", "other tenants' names", scenario="other_tenants", off=("pid_ns", "proc", *FILES)),
    Case("I08", "uninitialised blocks and pages", scenario="fresh_blocks", why="file systems of our own, no layer"),
    Case("I11", "side channels", off=("seccomp", *IDS)),
    Case("I16", "environment of helpers", scenario="helper_environment", why=ENGINE),
    Case("I16-knob", "test knobs do nothing in a normal build", scenario="no_knobs", modes=ALL_MODES, why=ENGINE),
)

CHANNEL = (
    Case("C01", "marker-forge", scenario="marker_forge", why=ENGINE),
    Case("C03", "ctrl-socket find", off=("seccomp",)),
    Case("C04", "partial frame, then end", scenario="partial_frame", why=ENGINE),
    Case("C06", "bytes that are not text", scenario="odd_bytes", why=ENGINE),
    Case("C07", "interleave from 100", scenario="interleave", why=ENGINE),
    Case("C09", "exit-code games", scenario="exit_games", why=ENGINE),
    Case("C10", "fake claims", scenario="fake_claims", why=ENGINE),
    Case("C13", "end at the boundary", scenario="boundary", why=ENGINE),
)

HOARD = {"flags": ("-m", "32m", "--timeout", "@60"), "expect": any_mode(OOM), "off": ("memory",)}

# What the whole host shares: the table in SECURITY.md names the case of each row.
HOST = (
    Case("S01", "machine code of filters", off=("seccomp",)),
    Case("S01-compat", "machine code of filters, compat", probe=("S01",), off=("seccomp",), **COMPAT),
    Case("S01-paranoid", "machine code of filters, paranoid", probe=("S01",), off=("seccomp",), **PARANOID),
    Case("S02", "huge pages of the host's pool", scenario="huge_pages", off=("seccomp", "memory"), alone=True),
    Case("S03", "objects that the kernel counts once", off=("seccomp", *IDS)),
    Case("S03-netlink", "queues that nobody is charged for", flags=("--timeout", "@60"), expect=any_mode(OOM),
         off=("memory",)),
    Case("S03-locks", "locks that nobody is charged for", flags=("--timeout", "@60"), expect=any_mode(OOM),
         off=("memory",)),
    Case("S03-cork", "what UDP sockets hold back", probe=("S03-sockets", "0"), **HOARD),
    Case("S03-refused", "refusals in error queues", probe=("S03-sockets", "1"), **HOARD),
    Case("S03-sent", "copies of what TCP sent", probe=("S03-sockets", "2"), **HOARD),
    Case("S03-unlisted", "queues of sockets in no list", probe=("S03-sockets", "3"), **HOARD),
    Case("S03-epoll", "watches are memory", flags=("-m", "64m", "--timeout", "@60"), needs=("memory",),
         expect=any_mode(OOM),
         off=("memory",), alone=True),
    Case("S04", "shares of the shared processes", scenario="shared_process", why=ENGINE, alone=True),
    Case("S05", "trees that change under our hands", scenario="live_tree", why="files are worked on inside, no layer"),
    Case("S06", "page cache as a channel", modes=OWN_PROGRAMS, scenario="page_cache", off=("seccomp",)),
)

def inside(case_id, name, **more):
    """A case of root inside. It is never tried with the layers off: the host's root would really do it."""
    return Case(case_id, name, modes=INSIDE_MODES, why="the same calls bite in the groups F, P, R and I", **more)


ROOT_INSIDE = (
    inside("U01", "mounts"),
    inside("U02", "remounts"),
    inside("U03", "the new mount calls"),
    inside("U04", "chroot and pivot_root"),
    inside("U05", "device nodes and whiteouts"),
    inside("U06", "changes of /dev"),
    inside("U07", "whiteouts by rename"),
    inside("U08", "namespaces"),
    inside("U09", "exactly seven capabilities"),
    inside("U10", "capset"),
    inside("U11", "securebits"),
    inside("U12", "ambient capabilities"),
    inside("U13", "the bounding set"),
    inside("U14", "a change to an ordinary user"),
    inside("U15", "set-id files"),
    inside("U16", "file capabilities"),
    inside("U17", "ids that are not mapped"),
    inside("U18", "every id that is mapped"),
    inside("U19", "tracing pid 1"),
    inside("U20", "killing pid 1"),
    inside("U21", "crippling pid 1"),
    inside("U22", "/proc of the host"),
    inside("U23", "/proc/sys, compat", **COMPAT),
    inside("U24", "its own /proc"),
    inside("U25", "keys"),
    inside("U26", "programs of the kernel"),
    inside("U27", "clocks, swap, quotas, names"),
    inside("U28", "priorities and limits"),
    inside("U29", "file handles"),
    inside("U30", "cgroups"),
    inside("U31", "raw and strange sockets"),
    inside("U32", "netlink"),
    inside("U33", "socket options"),
    inside("U34", "ioctls of interfaces"),
    inside("U35", "low ports"),
    inside("U36", "xattrs of overlays"),
    inside("U37", "access lists"),
    inside("U38", "file flags and controls"),
    inside("U39", "leases and notifications"),
    inside("U40", "files of the host"),
    inside("U41", "processes of the host"),
    inside("U42", "forged credentials"),
    inside("U43", "no reserve for root", probe=("U43", str(16 * MB)), flags=("-m", "64m", "--disk", "16m"),
           expect=DISK_HIT),
    inside("U44", "a process for each id", probe=("U44", "64"), flags=("--pids", 64),
           expect=any_mode(Expect(("exited", "pids-limit"), None, limits_hit=("pids",)))),
    inside("U45", "links that point out"),
    inside("U46", "devices of the host"),
    inside("U47", "processes of its other users"),
    inside("U48", "places that the set-up mounted"),
    inside("U49", "numbers of its choice"),
    inside("U50", "prctl"),
)

CASES = FILESYSTEM + PROCESSES + RESOURCES + INFORMATION + CHANNEL + HOST + ROOT_INSIDE

# In the attack list, not here yet, and what each waits for.
LATER = {
    "F10": "files API", "F13": "files API (reset, cleanup)", "F42 list and download": "files API", "F43": "files API",
    "R19": "upload and extract", "R21": "the gate", "R22": "the gate; net limits", "R24": "streams of the API",
    "R25": "idle and lease limits of the daemon",
    "R27 with R22": "the gate", "R30 by API": "API limits", "I10": "warm interpreters", "I13": "daemon logs and audit",
    "I14": "API tokens",
    "C12": "language runtimes", "P29 with a pipe": "only where the harness may set core_pattern (--core-pattern)",
    "N, D, A groups": "the gate, installs, the API",
}
