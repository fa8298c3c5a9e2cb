# SPDX-License-Identifier: Apache-2.0
"""Limits with their causes, pauses, networks, secrets, roots, recovery and refusals, on every provider: the checks, and
what each must see. Each has sandboxes of its own."""

import os
import signal

from helpers import steady, wait_until
from rows import ENGINES, GVISOR, differs, on, refuses, row

EAT = "x = b'x' * (600 << 20)"
EAT_IN_PIECES = "x = [bytes([1]) * (8 << 20) for _ in range(75)]"  # a small machine refuses the whole at once
FORKS = """
import os, signal
n = 0
try:
    while n < 500:
        if os.fork() == 0: signal.pause()
        n += 1
    print('no limit')
except BlockingIOError:
    print('refused')
"""
GET = """
import sys, urllib.request
try:
    print(urllib.request.urlopen(sys.argv[1], timeout=60).read().decode(), end='')
except Exception as why:
    print(type(getattr(why, 'reason', why)).__name__, getattr(why, 'code', ''))
"""
NAMES = """
import errno, socket, sys
def name(n):
    try: return socket.getaddrinfo(n, 80, socket.AF_INET)[0][4][0].split('.')[0]
    except OSError: return 'no such name'
def ask(address, port):
    s = socket.socket(); s.settimeout(60)
    try:
        s.connect((address, port)); s.sendall(b'GET / HTTP/1.0\\r\\n\\r\\n')
        return s.recv(99).split()[1].decode()
    except OSError as why: return errno.errorcode.get(why.errno, str(why))
print(name('api.test'), name('other.test'), ask('192.0.2.1', int(sys.argv[1])), ask('192.0.2.1', 9), sep=', ')
"""
WITH_SECRET = """
import os, sys, urllib.request
asked = urllib.request.Request(sys.argv[1], headers={'Authorization': 'Bearer ' + os.environ['API_TOKEN']})
print(urllib.request.urlopen(asked, timeout=60).status)
"""
VALUE = "real-value-51c0ffee"
NOT_READ = "the kernel does not read back what was set"
OFF = {"time_ns": "it was not asked for", "io": "it was not asked for",
       "own_kernel": "its system calls are answered by the host's kernel"}
IN_DOCKER = {**OFF, "user_ns": NOT_READ, "uid_range": NOT_READ}
NO_SUCH = "this kernel does not have it"
IN_GVISOR = {"cgroup_ns": NOT_READ, "landlock": NO_SUCH, "root_readonly": NOT_READ, "proc": NOT_READ, "disk": NOT_READ,
             "inodes": NOT_READ, "time_ns": NO_SUCH, "io": "it was not asked for"}
NOT_IN_GVISOR = "`cgroup_ns`, `landlock`, `root_readonly`, `proc`, `disk` and `inodes`"
OFF_ELSEWHERE = {
    "docker": differs("`user_ns` and `uid_range` are off too", IN_DOCKER),
    "podman": differs("`user_ns`, `uid_range` and `cgroup_ns` are off too", {**IN_DOCKER, "cgroup_ns": NOT_READ}),
    "runsc": differs(f"`own_kernel` is on; {NOT_IN_GVISOR} are off too", IN_GVISOR),
    "runsc-2022": differs(f"`own_kernel` is on; `pid_ns`, `uid_range`, {NOT_IN_GVISOR} are off too",
                          {**IN_GVISOR, "pid_ns": NOT_READ, "uid_range": NOT_READ}),
    "vm": differs("`own_kernel` is on", {name: why for name, why in OFF.items() if name != "own_kernel"}),
}
NO_NETWORK = refuses("its network stack takes no device of ours",
                     "runsc 0.0~20221219.0 has no network here: a newer one is needed")


class Limits:
    """How a program ends that meets a limit, and what its receipt says."""

    @row("more memory than the limit: the cause is `oom`, and the sandbox lives on", ["oom", ["memory"], "alive"],
         on_gvisor=on(GVISOR, differs("the memory is that of gVisor's kernel, and the whole sandbox ends",
                                      ["the sandbox ends"])))
    def test_memory(self):
        box = self.make(limits={"memory": "256m"})
        eat = EAT_IN_PIECES if self.COLUMN == "vm" else EAT
        ran = self.d.ask("POST", f"/v1/sandboxes/{box}/run", {"argv": ["python3", "-c", eat]})
        if self.d.ask("POST", f"/v1/sandboxes/{box}/run", {"argv": ["true"]}).status == 200:
            outcome = ran.json["outcome"]
            return [outcome["cause"], outcome["limits_hit"], "alive"]
        wait_until("it has a certificate", lambda: self.d.ask("GET", f"/v1/certificates/{box}").status == 200)
        return ["the sandbox ends"]

    @row("more processes than the limit are refused, and the receipt says so", ["refused\n", "exited", ["pids"]],
         on_gvisor=on(GVISOR, differs("threads of gVisor's kernel count, and it ends when it cannot have another: the "
                                      "cause is `pids-limit`", ["", "pids-limit", ["pids"]])),
         vm=differs("the receipt does not name it", ["refused\n", "exited", []]))
    def test_pids(self):
        done = self.d.run(self.make(limits={"pids": 100}), "python3", "-c", FORKS)
        return [done["stdout"], done["outcome"]["cause"], done["outcome"]["limits_hit"]]

    @row("CPU time of a sandbox that stays",
         ("refused", 422, "limits.cpu_time: nothing counts it in a long-lived sandbox; use cpus and timeout"))
    def test_cpu_time(self):
        return self.make(limits={"cpu_time": 1})

    @row("more CPU time than a tool run may have: the cause is `cpu-limit`", ["cpu-limit", ["cpu_time"]])
    def test_cpu_time_of_a_run(self):
        ran = self.run_once(language="python", code="while True: pass", limits={"cpu_time": 1})
        return [ran["receipt"]["outcome"]["cause"], ran["receipt"]["outcome"]["limits_hit"]]

    @row("a tool run that takes too long: the cause is `timeout`", ["timeout", ["timeout"]])
    def test_timeout_of_a_run(self):
        ran = self.run_once(language="python", code="import time; time.sleep(1000)", timeout=3)
        return [ran["receipt"]["outcome"]["cause"], ran["receipt"]["outcome"]["limits_hit"]]

    @row("a program that takes too long: the cause is `timeout`, and what it wrote is kept",
         ["timeout", ["timeout"], "first\n"])
    def test_timeout(self):
        done = self.d.sh(self.box, "echo first; sleep 1000", timeout=3)
        return [done["outcome"]["cause"], done["outcome"]["limits_hit"], done["stdout"]]

    @row("more output than the limit: cut, or ended with the cause `output-limit`",
         [1 << 16, True, "exited", "output-limit", ["output"]])
    def test_output_limit(self):
        cut = self.d.sh(self.box, "head -c 300000 /dev/zero | tr '\\0' x", output="64k")
        ended = self.d.sh(self.box, "yes", output="64k", on_output_limit="kill")["outcome"]
        return [len(cut["stdout"]), cut["truncated"]["stdout"], cut["outcome"]["cause"], ended["cause"],
                ended["limits_hit"]]

    @row("a full disk: the program gets ENOSPC, the receipt says `disk`", [True, True, ["disk"]],
         vm=differs("the receipt does not name it", [True, True, []]))
    def test_disk(self):
        box = self.make(limits={"memory": "256m", "disk": "8m"})
        done = self.d.sh(box, "head -c 20000000 /dev/zero > big; wc -c < big")
        return [int(done["stdout"]) <= 8 << 20, "No space left" in done["stderr"], done["outcome"]["limits_hit"]]

    @row("more files than the limit: the program gets ENOSPC", "No space left")
    def test_inodes(self):
        box = self.make(limits={"inodes": 300})
        text = self.d.sh(box, "mkdir d; cd d; for i in $(seq 600); do : > $i || exit 3; done")["stderr"]
        return "No space left" if "No space left" in text or "nonexistent" in text else text

    @row("metrics: what the sandbox uses", [True, True])
    def test_metrics(self):
        stats = self.asked("GET", f"/v1/sandboxes/{self.box}/metrics")
        return [stats["memory_bytes"] > 0, stats["pids"] >= 1]


class Life:
    @row("pause and resume: nothing runs meanwhile, and everything goes on", ["paused", True, "running", "goes on\n"])
    def test_pause(self):
        box = self.make()
        path = f"/v1/sandboxes/{box}"
        self.asked("POST", f"{path}/processes", {"argv": ["sh", "-c", "while :; do echo x >> beats; done"]})
        wait_until("it works", lambda: self.d.ask("GET", f"{path}/files?path=beats").status == 200)
        paused = self.asked("POST", f"{path}/pause")["state"]
        stands = bool(steady(lambda: self.ticks(box)))
        running = self.asked("POST", f"{path}/resume")["state"]
        return [paused, stands, running, self.d.sh(box, "echo goes on")["stdout"]]

    def ticks(self, box):
        """The time that each process in its cgroups has used, as the host counts it."""
        total = {}
        for pid in self.members(box):
            try:
                with open(f"/proc/{pid}/stat", encoding="utf-8") as f:
                    words = f.read().rsplit(")", 1)[1].split()
            except (FileNotFoundError, ProcessLookupError):
                continue  # it was on its way out when it was stopped
            total[pid] = int(words[11]) + int(words[12])
        return total

    @row("`kill -9` of brigd: sandbox, process and output go on", [True, "before\nafter\n", "exited", 0])
    def test_recovery(self):
        box = self.make()
        path = f"/v1/sandboxes/{box}"
        self.d.sh(box, "mkfifo go")
        number = self.asked("POST", f"{path}/processes",
                            {"argv": ["sh", "-c", "echo before; read line < go; echo $line"]})["number"]
        members = self.members(box)
        old = self.d.children()["brigd"]
        os.kill(old, signal.SIGKILL)
        wait_until("another brigd is there", lambda: self.d.children().get("brigd", old) != old)
        self.d.wait_ready()
        same = bool(members) and self.members(box) >= members
        self.d.sh(box, "echo after > go")
        end = self.asked("GET", f"{path}/processes/{number}/wait")["outcome"]
        text = self.output(f"{path}/processes/{number}")
        return [same, text, end["cause"], end["exit_code"]]

    @row("a sandbox whose first process dies has a certificate, and leaves nothing", ["sandbox-gone", True])
    def test_death(self):
        box = self.make()
        for pid in self.members(box):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass  # the first one took it along
        path = f"/v1/certificates/{box}"
        wait_until("it has a certificate", lambda: self.d.ask("GET", path).status == 200)
        wait_until("nothing of it is left", lambda: not self.members(box))
        return [self.d.ask("GET", path).json["cause"], True]

    @row("a sandbox that is deleted has a certificate, and leaves nothing", [204, "deleted", 404])
    def test_delete(self):
        box = self.make()
        status = self.d.ask("DELETE", f"/v1/sandboxes/{box}").status
        wait_until("nothing of it is left", lambda: not self.members(box))
        return [status, self.asked("GET", f"/v1/certificates/{box}")["cause"],
                self.d.ask("GET", f"/v1/sandboxes/{box}").status]

    @row("`brig provider check`: a real attempt", True)
    def test_check(self):
        found = self.asked("POST", f"/v1/providers/{self.provider}/check")
        return found["usable"] or "within" in found["missing"] or found  # a host may be too busy for the 10 s


class Network:
    def python(self, box, code, *argv):
        return self.d.run(box, "python3", "-I", "-c", code, *argv)["stdout"]

    @row("no network: no address is reached", "no such name, no such name, ENETUNREACH, ENETUNREACH\n",
         runsc_2022=differs("refused with EHOSTUNREACH", "no such name, no such name, EHOSTUNREACH, EHOSTUNREACH\n"))
    def test_none(self):
        return self.python(self.box, NAMES, "80")

    @row("an allowed name is reached through the gate, and counted", ["xxxxx", 1], runsc_2022=NO_NETWORK)
    def test_allowed(self):
        box = self.make(network=self.net.policy("api.test"))
        url = f"http://api.test:{self.net.http}/bytes/5"
        done = self.d.run(box, "python3", "-I", "-c", GET, url)
        return [done["stdout"], done["network"]["decisions"]["allowed"]]

    @row("another name has no address, another address is refused by the gate, another port by the kernel",
         "198, no such name, 403, ECONNREFUSED\n", runsc_2022=NO_NETWORK)
    def test_refused(self):
        return self.python(self.make(network=self.net.policy("api.test")), NAMES, str(self.net.http))

    @row("a brokered secret: the program holds a placeholder, the host that it is for gets the value",
         [True, "200\n", [f"Bearer {VALUE}"]],
         runsc_2022=NO_NETWORK,
         vm=refuses("not in this version", "brokered secrets: the provider vm has none in this version"))
    def test_secret(self):
        broker = {"hosts": [f"secret.test:{self.net.tls}"], "header": "Authorization", "format": "Bearer %s"}
        d = self.service.trusting
        self.asked("PUT", "/v1/secrets/TOKEN", {"value": VALUE, "broker": broker}, d)
        box = self.make(d, network=self.net.policy("secret.test"), secrets=[{"name": "TOKEN", "env": "API_TOKEN"}])
        held = d.sh(box, "echo $API_TOKEN")["stdout"]
        where = f"/{self.COLUMN}"
        said = d.run(box, "python3", "-c", WITH_SECRET, f"https://secret.test:{self.net.tls}{where}")
        came = [h["Authorization"] for _, _, path, h, _ in self.net.seen if path == where]
        return [held.startswith("brig-secret-") and VALUE not in held, said["stdout"] or said["stderr"], came]


class Roots:
    @row("the root cannot be written", "touch: cannot touch '/usr/x': Read-only file system\n",
         on_gvisor=on(GVISOR, differs("refused with EACCES", "touch: cannot touch '/usr/x': Permission denied\n")))
    def test_read_only(self):
        return self.d.sh(self.box, "touch /usr/x")["stderr"]

    @row("a writable root", "x\n", needs="writable_root")
    def test_writable_root(self):
        box = self.make(writable_root=True, limits={"disk": "64m"})
        return self.d.sh(box, "echo x > /workspace/x; cat /workspace/x")["stdout"]

    @row("root inside installs into a writable root", "x\n0\n", needs="root_inside")
    def test_root_inside(self):
        self.make(user="root")
        box = self.make(writable_root=True, user="root", limits={"disk": "64m"})
        return self.d.sh(box, "echo x > /usr/new && cat /usr/new && id -u")["stdout"]

    @row("a directory of the host, read-only", ["given\n", False], needs="binds")
    def test_bind(self):
        (self.service.share / "in/given").write_text("given\n", encoding="utf-8")
        box = self.make(binds=[{"source": f"{self.service.share}/in", "target": "/data", "read_only": True}])
        said = self.d.sh(box, "cat /data/given; echo x > /data/no")["stdout"]
        return [said, (self.service.share / "in/no").exists()]

    @row("a directory of the host that can be written", "made\n", needs="binds",
         on_gvisor=on(GVISOR, refuses("gVisor would write as another user",
                                      "bind /data: the provider runsc has no writable binds")))
    def test_writable_bind(self):
        place = self.service.share / self.COLUMN
        place.mkdir(exist_ok=True)
        box = self.make(binds=[{"source": str(place), "target": "/data", "read_only": False}])
        self.d.sh(box, "echo made > /data/made")
        return (place / "made").read_text(encoding="utf-8")

    @row("a directory outside of `bind_roots`",
         ("refused", 422, "bind source /etc: not in a directory that this service may share (bind_roots)"))
    def test_bind_outside(self):
        return self.make(binds=[{"source": "/etc", "target": "/data", "read_only": True}])

    @row("a template that is a directory", "hi\n", needs="rootfs")
    def test_directory(self):
        return self.d.run(self.make(template="small"), "/bin/sh", "-c", "echo hi")["stdout"]

    @row("a sandbox that can be forked", True, needs="disks")
    def test_forkable(self):
        return bool(self.make(forkable=True))

    @row("an image of an engine by its name", True, needs="image")
    def test_image(self):
        return bool(self.make(image="everything"))


class Statement:
    @row("layers that are off", OFF, **OFF_ELSEWHERE)
    def test_layers(self):
        layers = self.asked("GET", f"/v1/sandboxes/{self.box}")["protection"]["layers"]
        return {name: layer["why"] for name, layer in layers.items() if not layer["on"]}

    @row("`require: all`", True,
         on_engines=on(ENGINES, refuses("`user_ns` is off",
                                        "required layer user_ns: the provider docker cannot show it")),
         on_gvisor=on(GVISOR, refuses("`cgroup_ns` is off",
                                      "required layer cgroup_ns: the provider runsc cannot show it")))
    def test_require_all(self):
        return self.asked("GET", f"/v1/sandboxes/{self.make(require=['all'])}")["protection"]["complete"]

    @row("`require: own_kernel`", True, needs="own_kernel")
    def test_require_own_kernel(self):
        box = self.make(require=["own_kernel"])
        return self.asked("GET", f"/v1/sandboxes/{box}")["protection"]["layers"]["own_kernel"]["on"]

    @row("a program has no capability, no new privileges and a filter", ["0" * 16, "0" * 16, "1", "2"],
         runsc_2022=differs("its /proc does not show whether there are new privileges", ["0" * 16, "0" * 16, "", "2"]))
    def test_status(self):
        text = self.d.sh(self.box, "cat /proc/self/status")["stdout"]
        lines = dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line)
        return [lines.get(name, "").strip() for name in ("CapEff", "CapBnd", "NoNewPrivs", "Seccomp")]

