# SPDX-License-Identifier: Apache-2.0
"""The provider `vm`: programs, files, tools, limits, network, ends and restarts of sandboxes that are virtual machines,
emulated by a real QEMU with Debian's own kernel."""

import os
import pathlib
import platform
import signal

from vmkit import VmTest, wait_until

JAIL = "user_ns mount_ns pid_ns net_ns ipc_ns uts_ns cgroup_ns uid_range memory cpu".split()
GUEST = "caps no_new_privs seccomp landlock root_readonly proc fds pids disk inodes".split()


class Machine(VmTest):
    """One machine for what leaves it as it was."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.box = cls.d.create(provider="vm", require=["all", "own_kernel"])["id"]

    def test_a_kernel_of_its_own(self):
        release = self.d.run(self.box, "uname", "-r")["stdout"].strip()
        self.assertIn("cloud-amd64", release)
        self.assertNotEqual(release, platform.release())
        found = self.d.ask("GET", f"/v1/sandboxes/{self.box}").json
        layers = found["protection"]["layers"]
        self.assertEqual((found["provider"], found["protection"]["complete"]), ("vm", True))
        self.assertEqual(layers["own_kernel"], {"on": True, "by": "qemu tcg"})
        self.assertEqual([name for name in JAIL + GUEST if not layers[name]["on"]], [])

    def test_the_statement_is_what_the_program_has(self):
        status = self.d.sh(self.box, "cat /proc/self/status; id -u; touch /usr/x")
        for line in ("CapEff:\t0000000000000000", "CapBnd:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2"):
            self.assertIn(line, status["stdout"])
        self.assertTrue(status["stdout"].endswith("1000\n"))
        self.assertIn("Read-only file system", status["stderr"])

    def test_qemu_is_alone_in_a_jail(self):
        inside = self.processes(self.box)
        self.assertEqual(sorted(name[:4] for name in inside.values()), ["brig", "qemu"], inside)
        pid = self.qemu(self.box)
        status = dict(line.split(":\t", 1) for line in
                      pathlib.Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines() if ":\t" in line)
        self.assertEqual((status["Seccomp"], status["NoNewPrivs"], status["CapEff"]), ("2", "1", "0" * 16))
        self.assertNotIn("0", status["Uid"].split())
        for name in "user mnt pid net ipc uts cgroup".split():
            self.assertNotEqual(os.readlink(f"/proc/{pid}/ns/{name}"), os.readlink(f"/proc/self/ns/{name}"), name)

    def test_the_sandbox_around_it_is_nobodys(self):
        listed = self.d.ask("GET", "/v1/sandboxes").json["sandboxes"]
        self.assertEqual([s["id"] for s in listed if s["id"] == self.box], [self.box])
        self.assertEqual({s["provider"] for s in listed if s["id"] == self.box}, {"vm"})

    def test_files(self):
        data = os.urandom(300_000)
        path = f"/v1/sandboxes/{self.box}/files?path=/workspace/data"
        self.assertIn(self.d.ask("PUT", path, data).status, (200, 201, 204))
        self.assertEqual(self.d.ask("GET", path).body, data)
        self.assertEqual(self.d.run(self.box, "wc", "-c", "/workspace/data")["stdout"].split()[0],
                         str(len(data)))

    def test_disk_is_bounded(self):
        disk = self.d.ask("GET", f"/v1/sandboxes/{self.box}").json["limits"]["disk"]
        got = self.d.sh(self.box, f"head -c {disk + (1 << 20)} /dev/zero > /tmp/full; rm /tmp/full")
        self.assertIn("No space left", got["stderr"])

    def test_pids_are_bounded(self):
        got = self.d.run(self.box, "python3", "-c", "import os, signal\n"
                         "n = 0\n"
                         "try:\n"
                         "    while n < 500:\n"
                         "        if os.fork() == 0: signal.pause()\n"
                         "        n += 1\n"
                         "except BlockingIOError:\n"
                         "    print(n)\n")
        self.assertTrue(0 < int(got["stdout"]) < 128, got)

    def test_memory_of_the_guest(self):
        got = self.d.run(self.box, "python3", "-c", "b = []\nwhile True: b.append(bytearray(16 << 20))")
        self.assertEqual((got["outcome"]["cause"], got["outcome"]["limits_hit"]), ("oom", ["memory"]), got["outcome"])
        self.assertEqual(self.d.run(self.box, "echo", "alive")["stdout"], "alive\n")

    def test_pause(self):
        self.assertEqual(self.d.ask("POST", f"/v1/sandboxes/{self.box}/pause").json["state"], "paused")
        self.assertEqual(self.d.ask("POST", f"/v1/sandboxes/{self.box}/resume").json["state"], "running")
        self.assertEqual(self.d.run(self.box, "echo", "again")["stdout"], "again\n")


class Others(VmTest):
    MORE = '[sandbox]\nbind_roots = "/srv"\n'

    def test_check(self):
        found = self.d.ask("POST", "/v1/providers/vm/check").json
        if "within" not in found.get("missing", ""):  # a host that is too busy for the 10 s says that
            self.assertTrue(found["usable"], found)
            self.assertEqual([name for name in JAIL + GUEST + ["own_kernel"] if name not in found["layers"]], [])
        self.assertEqual(self.d.ask("GET", "/v1/sandboxes").json["sandboxes"], [])

    def test_a_tool(self):
        answer = self.d.ask("POST", "/v1/run", {"language": "python", "code": "print(1 + 2)", "provider": "vm"},
                            timeout=300)
        self.assertEqual(answer.status, 200, answer)
        receipt = answer.json["receipt"]
        self.assertEqual((answer.json["stdout"], receipt["provider"]), ("3\n", "vm"), answer)
        self.assertEqual(receipt["protection"]["layers"]["own_kernel"]["by"], "qemu tcg")

    def test_the_network_is_the_gates(self):
        box = self.machine(network={"default": "deny", "rules": [{"action": "allow", "domain": "a.invalid"}]})
        got = self.d.run(box, "python3", "-c", "import socket\n"
                         "def name(n):\n"
                         "    try: return socket.getaddrinfo(n, 80)[0][4][0]\n"
                         "    except OSError: return 'no such name'\n"
                         "def ask(*a):\n"
                         "    s = socket.socket(); s.settimeout(60)\n"
                         "    try:\n"
                         "        s.connect(a); s.sendall(b'GET / HTTP/1.0\\r\\n\\r\\n')\n"
                         "        return s.recv(99).split()[1].decode()\n"
                         "    except ConnectionRefusedError: return 'refused'\n"
                         "print(name('a.invalid')); print(name('b.invalid'))\n"
                         "print(ask('192.0.2.1', 80)); print(ask('10.0.2.2', 2744)); print(ask('127.0.0.1', 2744))\n")
        said = got["stdout"].splitlines()
        self.assertTrue(said and said[0].startswith("198.1"), got)
        self.assertEqual(said[1:], ["no such name", "403", "refused", "refused"], got)

    def test_without_a_network_there_is_no_card(self):
        box = self.machine()
        self.assertEqual(self.d.sh(box, "cat /proc/self/net/dev | grep -c :")["stdout"], "1\n")

    def test_a_brigd_that_dies(self):
        box = self.machine()
        self.d.sh(box, "mkfifo /workspace/go")
        started = self.d.ask("POST", f"/v1/sandboxes/{box}/processes",
                             {"argv": ["sh", "-c", "seq 1000; read line < go; echo $line"]})
        self.assertEqual(started.status, 201, started)
        before = self.processes(box)
        self.kill_brigd()
        self.assertEqual(self.processes(box), before)
        found = self.d.ask("GET", f"/v1/sandboxes/{box}").json
        self.assertEqual((found["state"], found["provider"]), ("running", "vm"))
        self.assertEqual(found["protection"]["layers"]["own_kernel"], {"on": True, "by": "qemu tcg"})
        self.assertEqual([s["id"] for s in self.d.ask("GET", "/v1/sandboxes").json["sandboxes"]], [box])
        self.d.sh(box, "echo gone on > go")
        got = self.d.ask("GET", f"/v1/sandboxes/{box}/processes/{started.json['number']}/wait").json
        self.assertEqual((got["outcome"]["cause"], got["outcome"]["exit_code"]), ("exited", 0), got)
        self.assertEqual(self.d.ask("DELETE", f"/v1/sandboxes/{box}").status, 204)
        wait_until("nothing of it is left", lambda: not self.processes(box))
        kept = pathlib.Path(self.d.dir) / "state/service/vm/boxes"
        self.assertEqual([p.name for p in kept.iterdir()], [])

    def test_a_qemu_that_dies(self):
        box = self.machine()
        os.kill(self.qemu(box), signal.SIGKILL)
        end = self.certificate(box)
        self.assertEqual(end["cause"], "sandbox-gone", end)
        self.assertIn("QEMU died of signal 9", str(end))
        wait_until("nothing of it is left", lambda: not self.processes(box))

    def test_refusals(self):
        for members, said in (({"limits": {"memory": "64m"}}, "a virtual machine needs at least"),
                              ({"user": "root"}, "the provider vm has no root inside"),
                              ({"binds": [{"source": "/srv", "target": "/x", "read_only": True}]},
                               "the provider vm has no binds"),
                              ({"limits": {"memory": "256m", "disk": "200m"}}, "at most half of memory")):
            answer = self.d.ask("POST", "/v1/sandboxes", {"provider": "vm", **members})
            self.assertGreaterEqual(answer.status, 400, answer)
            self.assertIn(said, answer.json["error"]["message"])


class Kvm(VmTest):
    MORE = 'accel = "kvm"\n'

    def test_it_is_not_emulated(self):
        answer = self.d.ask("POST", "/v1/sandboxes", {"provider": "vm"}, timeout=300)
        self.assertGreaterEqual(answer.status, 400, answer)
        self.assertIn("QEMU ended with status 1", answer.json["error"]["message"])
