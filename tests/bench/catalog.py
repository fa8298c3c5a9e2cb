# SPDX-License-Identifier: Apache-2.0
"""The numbers of `make bench`: their ids (those of tests/PROMISES.md), where `brig bench` prints them, and how they are
taken.

The bounds are not here: `brig bench` knows them, so the command and the page cannot differ.
"""

import collections

# id, name of its row in `brig bench -o json`, group (`brig bench --only`), what it is, how it is measured (Markdown).
Number = collections.namedtuple("Number", "id row group what how")

NUMBERS = [
    Number(
        "standalone", "brig run", "standalone", "`brig run -- /bin/true`",
        "The command as a user types it, from `posix_spawn` to its exit status, with every layer on (checked "
        "before with "
        "`--require all`). Against `bwrap --unshare-all --ro-bind / / /bin/true`, which sets no limits, no system call "
        "filter and no "
        "overlay. All commands of the group take turns in an order that changes every round, with 20 ms between two "
        "of them.",
    ),
    Number(
        "library_pooled", "library, pooled", "library", "library: create, run `/bin/true`, destroy; pooled slot",
        "`brig_run_start`, `brig_run_wait`, `brig_run_destroy` with the engine up and 8 sandboxes parked. The refill "
        "of the pool is "
        "waited for between two runs and is not in the number; nor is what the reaper removes (cgroups, mounts) after "
        "the run is destroyed.",
    ),
    Number("library_pool_off", "library, pool off", "library", "the same, pool off",
           "The same calls on an engine without a pool, in turns with the above."),
    Number(
        "burst_pooled", "100 at once, pooled", "burst", "100 at once, pool of 100",
        "100 × `brig_run_start`, then wait for and destroy all, the time of everything; the pool holds 100 and is "
        "full. Against 100 × "
        "`posix_spawn` of `/bin/true`, then wait for all. In turns, in changing order, with 100 ms between two bursts, "
        "so that no burst "
        "runs while the kernel takes the last one apart.",
    ),
    Number("burst_pool_off", "100 at once, pool off", "burst", "100 at once, pool off",
           "The same on an engine without a pool. Reported; the promise is that of a full pool."),
    Number("python", "python3, library", "python", "library: `python3 -I -S -c pass`",
           "Through the library, from the pool, in turns with the same program by `posix_spawn`."),
    Number(
        "memory", "idle sandbox", "memory", "an idle sandbox, kernel included",
        "MemAvailable before and with 1,000 parked sandboxes, by 1,000; caches dropped, each reading once it has "
        "settled. The median of "
        "3 rounds; beside it the highest.",
    ),
    Number("cpu", "cpu, inside", "throughput", "CPU loop",
           "xorshift64 for 25 ms, the same machine code inside and outside, in turns; a sandbox per run."),
    Number("getppid", "getppid, inside", "throughput", "`getppid` loop",
           "The same with a system call that the filter lets pass without looking at arguments."),
    Number("pread", "pread, inside", "throughput", "1-byte `pread` loop",
           "The same with a system call that does a little work. Reported, beside the next."),
    Number("checked", "checked, inside", "throughput", "argument-checked `fcntl` loop",
           "The same with `fcntl(F_GETFD)`: the filter compares the second argument."),
    Number(
        "files", "files, inside", "throughput", "file loop, store in memory",
        "Create, write 4 KiB, close, unlink in the working directory; outside on `/dev/shm`, a tmpfs as well.",
    ),
    Number(
        "files_on_disk", "files on disk, inside", "throughput", "file loop, store on disk",
        "The same for a run that asks for disk and gets an ext4 image; outside on an ext4 image made and mounted with "
        "the same options.",
    ),
]

# The same for the service: `row` and `group` are those of service.py, which knows the bounds.
SERVICE = [
    Number(
        "service_cycle", "service: cycle", "commands", "create, run `/bin/true`, delete",
        "Three requests on one keep-alive connection to the unix socket, from the first byte sent to the last "
        "received; the slot pool is full. "
        "Ten back to back, then one `docker run` and one `docker exec`, and again.",
    ),
    Number("service_docker_run", "service: cycle to docker", "commands", "the same, times faster than `docker run`",
           "Against `docker run --rm --network none IMAGE /bin/true` on a private engine with overlay2."),
    Number("service_paused", "service: paused", "commands", "the same after half a second of quiet",
           "The first of each ten; it is not in the number above. The kernel moves a process to another cgroup only "
           "after a grace period of RCU unless it has just done so."),
    Number("service_exec", "service: exec", "commands", "`/bin/true` in a live sandbox",
           "One request; ten back to back."),
    Number("service_docker_exec", "service: exec to docker", "commands", "the same, times faster than `docker exec`",
           "Against `docker exec CONTAINER /bin/true`."),
    Number("service_exec_paused", "service: exec paused", "commands", "the same after 0.2 s of quiet",
           "The first of each ten, as above."),
    Number(
        "service_burst", "service: 100 at once", "burst", "100 × create, run, delete at once",
        "100 connections, opened before, all requests sent as soon as they can be; the time until the last answer; a "
        "pool of 100, full. Against 100 × `posix_spawn` of `/bin/true`, in turns.",
    ),
    Number(
        "service_healthz", "service: healthz", "healthz", "`GET /healthz`",
        "`wrk -t1 -c64` for 2 s, five times, in turns with nginx (one worker, no log, the same answer and keep-alive). "
        "Both servers on CPU 0, wrk on CPU 1.",
    ),
    Number("service_output", "service: output", "transfers", "1 GiB of a program's output",
           "From the go the program is given to the last byte; five times, in turns with the next."),
    Number("service_upload", "service: upload", "transfers", "1 GiB into a file",
           "A store in memory; against `cp` of 1 GiB from tmpfs to tmpfs."),
    Number("service_download", "service: download", "transfers", "1 GiB out of a file", "The same file."),
    Number("service_flat", "service: brigd grows", "transfers", "brigd's memory meanwhile",
           "Its largest resident size during the transfers above that before them, looked at every 10 ms."),
    Number(
        "service_memory", "service: idle sandbox", "idle", "an idle sandbox, everything included",
        "MemAvailable before and with 2,000 sandboxes, by 2,000; caches dropped, each reading once it has settled; the "
        "median of 3 rounds.",
    ),
    Number("service_brigd", "service: brigd", "idle", "brigd with 2,000 sandboxes", "Its resident size."),
    Number("service_list", "service: list", "idle", "`GET /v1/sandboxes?limit=100` with 2,000",
           "One request on the keep-alive connection, 100 times per round."),
]

# Of the gate: gate.py measures them. One process of the bench answers brig-egress's questions about names, with a TTL
# of 60 s.
GATE = [
    Number(
        "gate_setup", "gate: set-up", "setup", "connect, a byte there, a byte back",
        "From `socket` to the byte that came back; to the address that the gate gave for a name, by a rule with "
        "`protocol: tcp`. 50 back to back, then 50 direct, and again.",
    ),
    Number("gate_question", "gate: question", "setup", "a name's address, by DNS inside",
           "One datagram to the gate and one back, in turns with the above."),
    Number(
        "gate_down_shared", "gate: down, shared CPU", "bulk", "bytes to the sandbox, all on one CPU",
        "One connection, 256 KiB a call, for 3 s or 2 GiB; five times. Client, server and brig-egress on the same CPU; "
        "direct: client and server on it.",
    ),
    Number("gate_down_own", "gate: down, own CPU", "bulk", "the same, brig-egress on a CPU of its own",
           "Client and server share the other CPU, as they do direct."),
    Number("gate_up_shared", "gate: up, shared CPU", "bulk", "bytes from the sandbox, all on one CPU",
           "As above; until the server has counted them all."),
    Number("gate_up_own", "gate: up, own CPU", "bulk", "the same, brig-egress on a CPU of its own", "As above."),
    Number(
        "gate_rate", "gate: connections", "rate", "short connections",
        "Connect, a byte there, a byte back, the server's end, by 8 processes in one sandbox for 3 s, five times.",
    ),
    Number("gate_rate_direct", "gate: connections, direct", "rate", "the same, direct", "In turns with the above."),
    Number("gate_rate_log", "gate: not in the log", "rate", "of their events, dropped by the audit log", "A connection "
           "has two, its decision and its end; the log counts those beyond its rate instead of writing them."),
    Number("gate_idle", "gate: idle", "idle", "brig-egress with open idle connections",
           "Its proportional set size (Pss) with so many connections of one sandbox open, as the next line says."),
    Number("gate_idle_count", "gate: idle connections", "idle", "how many they were",
           "8,000, or as many as brig-egress's limit of descriptors allows, at two each."),
    Number("gate_idle_before", "gate: idle, before", "idle", "brig-egress without them",
           "After a few connections, all closed."),
    Number(
        "gate_broker", "gate: request", "broker", "a brokered HTTPS request, times faster than by mitmproxy",
        "A connection for each: TCP, TLS, a GET whose Authorization holds a placeholder, its answer; the server says "
        "200 only to the real value. Against mitmdump in its mode "
        "`reverse` with `--modify-headers`, on the same CPU as brig-egress. In turns, 50 back to back.",
    ),
    Number("gate_broker_kept", "gate: request, kept", "broker", "the same on a connection that is kept",
           "As above; connection and TLS are not in the time."),
    Number("gate_broker_direct", "gate: request, direct", "broker",
           "the request without anybody between, a connection each", "In turns with the above."),
    Number("gate_broker_kept_direct", "gate: request, kept, direct", "broker", "the same on a connection that is kept",
           "In turns with the above."),
    Number(
        "gate_attach", "gate: create", "attach", "create a sandbox with a policy",
        "`POST /v1/sandboxes` from a full pool on one keep-alive connection, with a policy and without in turns, each "
        "deleted at once; the pool is full again after every 16, and the first two "
        "after that pause are not counted.",
    ),
]

# Of tools: tools.py measures them. Each run has a fresh sandbox, used once.
TOOLS = [
    Number(
        "tools_warm", "tools: warm", "warm", "a registered Python tool with two arguments",
        "`POST /v1/tools/add/run` on one keep-alive connection to the unix socket, from the first byte sent to the "
        "last received; 16 children are parked. Between two runs the client waits until "
        "as many are parked again, as they are in a service that is not busy; the making of the next child is not in "
        "the time. Ten, then ten back to back, then one of each peer, and again.",
    ),
    Number("tools_warm_p99", "tools: warm, p99", "warm", "the same, its p99", "The same runs."),
    Number("tools_back_to_back", "tools: back to back", "warm", "the same without waiting",
           "Ten on the connection, one after the other: the sandboxes of the last ones are taken apart meanwhile."),
    Number("tools_refill", "tools: refill", "warm", "until the pool is full again",
           "From the answer to the moment that the client sees it, looking every 2 ms."),
    Number("tools_bwrap", "tools: warm to bwrap", "warm", "times faster than bubblewrap", "Against `bwrap "
           "--unshare-all --ro-bind / / python3 -I -S -c 'print(2 + 3)'`: no limits, no filter, no receipt."),
    Number("tools_docker_exec", "tools: warm to docker exec", "warm", "times faster than `docker exec`",
           "Against `docker exec CONTAINER /bin/true` (no Python, no fresh sandbox) on a private engine with "
           "overlay2."),
    Number("tools_docker_run", "tools: warm to docker run", "warm", "times faster than `docker run`",
           "Against `docker run --rm --network none IMAGE /bin/true` (no Python) on that engine."),
    Number("tools_sustained", "tools: sustained", "sustained", "fresh sandboxes per second",
           "60 s, 8 connections, each with the next run as soon as its last is answered; at most 64 parked; client and "
           "service share all CPUs. Any failure ends it."),
    Number("tools_sustained_each", "tools: sustained, each", "sustained", "a run of them",
           "As its client saw it. Beside p50 only the p99 is kept."),
    Number(
        "tools_left", "tools: left behind", "sustained", "left behind by them",
        "Processes below the service, its cgroups, mounts and descriptors of its daemons, with 64 children parked "
        "before and after: what there is more, all kinds together. Not counted is the one network namespace that the "
        "spawner keeps ready, which is there or not whatever has run.",
    ),
    Number("tools_burst_full", "tools: burst, full pool", "burst", "100 at once, pool of 100",
           "100 connections, opened before; each time is from before the first request was sent to that connection's "
           "answer; the percentiles are of all of them, the promise is of the p99."),
    Number("tools_burst_empty", "tools: burst, empty pool", "burst", "100 at once, nothing parked",
           "The same with `pool_max = 0`: every child is made when its run asks for it. The zygote is up."),
    Number("tools_node", "tools: node", "node", "a registered JavaScript tool",
           "As the first, with 4 children parked."),
    Number(
        "tools_cold", "tools: cold, 20 packages", "cold", "Python with 20 packages, nothing parked",
        "The dependency set is built, `pool_max = 0`; the tool imports all 20 packages (small wheels from a "
        "directory, `[tools] find_links`). Against `python3 -c 'import ...'` with the same modules "
        "on `PYTHONPATH`, compiled already. In turns.",
    ),
    Number("tools_parked", "tools: parked child", "parked", "a parked Python child, unshared",
           "`Private_*` of `/proc/PID/smaps_rollup` of the interpreter and of its brig-init; 20 children of one "
           "zygote. What the kernel keeps for them is in `service_memory`."),
    Number("tools_parked_init", "tools: its brig-init", "parked", "brig-init's part of it", "The same."),
    Number("tools_humaneval", "tools: HumanEval passed", "humaneval", "HumanEval, canonical solutions that pass",
           "Each task a run of one registered tool that has program and tests as its argument; 4 connections. Data: "
           "`BRIG_TEST_DATA`."),
    Number("tools_humaneval_rate", "tools: HumanEval", "humaneval", "HumanEval, tasks per second", "The same runs."),
]

# The same for templates.py.
TEMPLATES = [
    Number("templates_pull", "templates: pull", "pull", "pull and unpack an image of 10 layers, 500 MB",
           "`POST /v1/templates/pull` from Debian's registry on loopback until the template is there, gzip layers; "
           "before each turn nothing of the image is there. Against `docker pull` of the same."),
    Number("templates_create", "templates: create, ten layers", "create", "create a sandbox from 10 layers",
           "`POST /v1/sandboxes` without a pool, in turns with the same from `host`; the promise is of what it takes "
           "more."),
    Number("templates_pooled", "templates: create, ten layers, pooled", "create", "the same, kept ready",
           "The same where four sandboxes of the template wait (`[pool] templates`), against the host with four that "
           "wait (`[manager] pool`); both are full before each create."),
    Number("templates_run", "templates: RUN true", "build", "a step `RUN true` of a build",
           "`brig template build` of 20 such steps, none of them cached, by their number. Against `docker build` "
           "(BuildKit) of the same file."),
    Number("templates_cached", "templates: cached build", "build", "a build of 20 steps, all cached",
           "The same command once more."),
    Number("templates_fork", "templates: fork", "fork", "fork a sandbox with 1 GiB of files",
           "`POST /v1/sandboxes/ID/fork` over HTTP until the fork runs; nothing is dirty, and there is a pause of "
           "0.3 s before each."),
    Number("templates_ten_forks", "templates: ten forks", "fork", "ten forks of it at once",
           "The same with a count of 10."),
    Number("templates_fork_blocks", "templates: new blocks of a fork", "fork", "new blocks for each of these forks",
           "What is in use of the pool after the forks, less what was before, both after `sync`, by their number."),
    Number("templates_commit", "templates: commit", "fork", "make a template of it",
           "`POST /v1/sandboxes/ID/commit`, on the same terms."),
    Number("templates_writing", "templates: ten forks write", "writing", "ten forks write at once",
           "64 MiB and `fsync` in each of ten forks at the same time, all together in MiB/s; in turns with ten "
           "forkable sandboxes that are no forks."),
    Number("templates_generations", "templates: fork, tenth generation", "generations", "fork after ten generations",
           "1,000 random writes of 4 KiB and `fsync`, a fork, the same in the fork, ten times; the last fork counts."),
    Number("templates_files", "templates: file loop, pool", "files", "file loop in a store of the pool",
           "Create 4 KiB, read, rename, remove by a Python program; in turns with the same program in a directory of "
           "the host's file system."),
]

FIRST = "`POST /v1/sandboxes` and the end of `/bin/true` by `POST .../run` in it, in turns with "
LIVE = "`/bin/true` by `POST /v1/sandboxes/ID/run`, ten for each turn of "
WARM = ("`POST /v1/tools/add/run` of a Python function; where the provider has a pool of parked interpreters, it is "
        "full before each run")
PARKED = "The proportional memory of all processes in the sandbox's cgroup, a second after it was made."
PROVIDERS = [
    Number("docker_first", "providers: docker, first command", "docker", "docker: create to the end of the first "
           "command", FIRST + "`docker run --rm --network none` of the same image."),
    Number("docker_command", "providers: docker, command", "docker", "docker: a command in a live sandbox",
           LIVE + "`docker exec` in a container of the same image."),
    Number("docker_warm", "providers: docker, warm tool run", "docker", "docker: warm tool run", WARM + "."),
    Number("runc_first", "providers: runc, first command", "oci", "runc: create to the end of the first command",
           FIRST + "`runc run` of `/bin/true`."),
    Number("crun_first", "providers: crun, first command", "oci", "crun: the same",
           FIRST + "`crun run` of `/bin/true`."),
    Number("runc_parked", "providers: runc, parked", "oci", "runc: a sandbox without a program", PARKED),
    Number("runc_processes", "providers: runc, parked, processes", "oci", "runc: its processes", "All of them."),
    Number("crun_parked", "providers: crun, parked", "oci", "crun: a sandbox without a program", PARKED),
    Number("crun_processes", "providers: crun, parked, processes", "oci", "crun: its processes", "All of them."),
    Number("runsc_first", "providers: runsc, first command", "runsc", "runsc: create to the end of the first command",
           FIRST + "`runsc run` of `/bin/true`, without a network."),
    Number("runsc_command", "providers: runsc, command", "runsc", "runsc: a command in a live sandbox",
           LIVE + "`docker exec` in a container of an engine with that runtime."),
    Number("runsc_warm", "providers: runsc, warm tool run", "runsc", "runsc: warm tool run", WARM + "."),
    Number("runsc_warm_ratio", "providers: runsc, warm tool run to docker", "runsc", "runsc: the same",
           WARM + "; in turns with `docker exec` as above."),
    Number("runsc_parked", "providers: runsc, parked", "runsc", "runsc: a sandbox without a program", PARKED),
    Number("runsc_bulk", "providers: runsc, bulk", "gate", "gate: bulk from a sandbox of runsc",
           "One connection through brig-egress, down, by the client of `tests/bench/gate_peer.c`; in turns with the "
           "same from a sandbox of `local`."),
    Number("runsc_connect", "providers: runsc, connect", "gate", "gate: connect from a sandbox of runsc",
           "Connect, a byte there, a byte back, as above; the promise is of what it takes more."),
    Number("vm_first", "providers: vm, first command", "vm", "vm: cold create to the end of the first command",
           FIRST + "a QEMU with the same words, kernel, initrd and root that no sandbox is around; there a client of "
           "brig-init's protocol asks."),
    Number("vm_restored", "providers: vm, restored", "vm", "vm: the same, from a snapshot",
           "The same creates, one after the other, where snapshots are on."),
    Number("vm_warm", "providers: vm, warm tool run", "vm", "vm: warm tool run", WARM + "."),
    Number("vm_memory", "providers: vm, beside the guest's memory", "vm", "vm: memory beside the guest's",
           "The proportional memory of all processes in the cgroup around a guest of 256 MiB, less these."),
    Number("vm_idle", "providers: vm, idle", "vm", "vm: CPU of an idle machine",
           "CPU time of all processes in that cgroup in 5 s, of one core."),
    *(Number(f"{name}_cycles", f"providers: {name}, left by cycles", "cycles", f"{name}: what 200 sandboxes leave",
             "Descriptors of the service's processes, cgroups and entries of the run directory after 200 times create "
             "and delete, less those before.") for name in ("local", "runc", "crun", "runsc")),
]

# Row, command, what it sets up. brig first.
PEERS = [
    ("brig run", "brig run -- /bin/true",
     "all layers: 7 namespaces, own ids, overlay root, limits by cgroup, seccomp, Landlock, each read back"),
    ("bwrap", "bwrap --unshare-all --ro-bind / / /bin/true", "namespaces, a bind of the root; no limits, no seccomp"),
    ("firejail", "firejail --quiet --noprofile /bin/true",
     "mount, pid, ipc and uts namespaces; no network namespace, no limits, no seccomp"),
    ("runc", "runc run (bundle: /usr bound read-only)", "5 namespaces, empty cgroups; no limits, no seccomp"),
    ("docker run", "docker run --rm --network none IMAGE /bin/true",
     "namespaces, overlay, cgroups, seccomp, by a daemon that is up"),
]
