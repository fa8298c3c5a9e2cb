# SPDX-License-Identifier: Apache-2.0
"""Sandboxes of runc and crun, as the service has them: what holds in one of `local` holds in these."""

import os
import pathlib
import re
import shutil
import signal
import stat
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "e2e"))

from carrykit import RUNSC_NEW  # noqa: E402
from helpers import PATIENCE, wait_until  # noqa: E402
from jailkit import needs_root  # noqa: E402
from service import Daemon  # noqa: E402

LAYERS = ("user_ns mount_ns pid_ns net_ns ipc_ns uts_ns cgroup_ns uid_range caps no_new_privs seccomp landlock "
          "root_readonly proc fds memory cpu pids disk inodes").split()


FORKS = ("import os, time\n"
         "for i in range(1000):\n"
         "    if os.fork() == 0: time.sleep(600)\n")


def comm(pid):
    with open(f"/proc/{pid}/comm", encoding="utf-8") as f:
        return f.read().strip()


def leaves(box):
    """Every cgroup of this sandbox, in any hierarchy."""
    found = []
    for top, dirs, _ in os.walk("/sys/fs/cgroup"):
        found += [os.path.join(top, d) for d in dirs if box in d]
    return found


def members(box):
    """The pids in its cgroups."""
    found = set()
    for leaf in leaves(box):
        try:
            with open(f"{leaf}/cgroup.procs", encoding="ascii") as f:
                found |= {int(pid) for pid in f.read().split()}
        except FileNotFoundError:
            pass
    return found


class Carried:
    """The tests, for each runtime."""

    LIMIT_SECONDS = 180
    CONFIG = ""

    @classmethod
    def setUpClass(cls):
        cls.share = os.path.realpath(f"/var/tmp/brig-runner-{os.getpid()}-{cls.PROVIDER}")
        os.makedirs(f"{cls.share}/in")
        os.makedirs(f"{cls.share}/templates/small/bin")
        shutil.copy(shutil.which("busybox") or "/bin/true", f"{cls.share}/templates/small/bin/sh")
        os.symlink("/proc/1", f"{cls.share}/templates/small/dev")  # a link where ours must be
        cls.d = Daemon(f'[manager]\nprovider = "{cls.PROVIDER}"\n[sandbox]\nbind_roots = "{cls.share}"\n'
                       f'templates = "{cls.share}/templates"\n{cls.CONFIG}')

    @classmethod
    def tearDownClass(cls):
        cls.d.close()
        shutil.rmtree(cls.share)

    def box(self, **members_):
        made = self.d.create(**members_)
        self.assertEqual(made["provider"], self.PROVIDER)
        self.addCleanup(self.d.ask, "DELETE", f"/v1/sandboxes/{made['id']}")
        return made["id"]

    def init_of(self, box):
        """pid 1 of it: the member whose parent is in none of its cgroups."""
        inside = members(box)
        for pid in inside:
            with open(f"/proc/{pid}/status", encoding="ascii") as f:
                if re.search(r"^NSpid:.*\t1$", f.read(), re.M):
                    return pid
        raise AssertionError(f"no pid 1 among {inside}")

    def runner(self):
        return self.d.children()[f"brig-r-{self.PROVIDER}"]

    def gone(self, box, pid):
        wait_until("nothing of it is left", lambda: not leaves(box) and not os.path.exists(f"/proc/{pid}")
                   and not os.path.exists(f"{self.d.dir}/run/runner-{self.PROVIDER}/{box}"))

    def certificate(self, box):
        return self.d.ask("GET", f"/v1/certificates/{box}").json

    # ---- what it is ----

    def test_every_layer_is_read_back_and_is_what_an_observer_sees(self):
        made = self.d.create(require=LAYERS)
        box = made["id"]
        for name in LAYERS:
            self.assertTrue(made["protection"]["layers"][name]["on"], name)
        self.assertTrue(made["protection"]["complete"])
        pid = self.init_of(box)
        for name in ("user", "mnt", "pid", "net", "ipc", "uts", "cgroup"):
            self.assertNotEqual(os.readlink(f"/proc/{pid}/ns/{name}"), os.readlink(f"/proc/self/ns/{name}"), name)
        with open(f"/proc/{pid}/uid_map", encoding="ascii") as f:
            inside, outside, count = (int(n) for n in f.read().split())
        self.assertEqual((inside, count), (0, 65536))
        self.assertGreaterEqual(outside, 0x70000000)
        with open(f"/proc/{pid}/status", encoding="ascii") as f:
            status = f.read()
        self.assertIn("CapBnd:\t00000000000801e0", status)
        self.assertIn("NoNewPrivs:\t1", status)
        # No other user of the host can speak to brig-init, whatever the service's umask is.
        self.assertEqual(stat.S_IMODE(os.lstat(f"{self.d.dir}/run/runner-{self.PROVIDER}/{box}/s").st_mode), 0o600)
        # Nothing else of the runtime stays, and the runner has no other child.
        self.assertEqual({comm(p) for p in members(box)}, {"brig-init"})
        self.d.ask("DELETE", f"/v1/sandboxes/{box}")
        self.gone(box, pid)
        self.assertEqual(self.certificate(box)["cause"], "deleted")

    def test_processes_files_and_a_terminal(self):
        box = self.box()
        done = self.d.sh(box, "echo out; echo err >&2; exit 7")
        self.assertEqual((done["stdout"], done["stderr"], done["outcome"]["exit_code"]), ("out\n", "err\n", 7))
        self.assertEqual(done["provider"], self.PROVIDER)
        self.assertEqual(self.d.ask("PUT", f"/v1/sandboxes/{box}/files?path=/workspace/a", b"x" * 100000).status, 200)
        self.assertEqual(self.d.sh(box, "wc -c < /workspace/a; id -un; hostname")["stdout"],
                         f"100000\nuser\n{box}\n")
        self.assertNotEqual(self.d.sh(box, "echo x > /usr/x")["outcome"]["exit_code"], 0)

    def test_a_required_layer_that_cannot_be_is_refused(self):
        answer = self.d.ask("POST", "/v1/sandboxes", {"require": ["own_kernel"]})
        self.assertGreaterEqual(answer.status, 400)
        self.assertIn("own_kernel", answer.json["error"]["message"])
        self.assertIn(self.PROVIDER, answer.json["error"]["message"])

    # ---- limits and causes ----

    def test_memory_pids_and_disk_are_limits_with_typed_causes(self):
        box = self.box(limits={"memory": "64m", "pids": 20, "disk": "8m", "inodes": 500})
        done = self.d.run(box, "python3", "-c", "x = b'x' * (200 << 20)")
        self.assertEqual(done["outcome"]["cause"], "oom")
        done = self.d.sh(box, "for i in $(seq 60); do sleep 5 & done; wait")
        self.assertIn("pids", done["outcome"]["limits_hit"])
        done = self.d.sh(box, "head -c 20000000 /dev/zero > /workspace/big")
        self.assertIn("disk", done["outcome"]["limits_hit"])
        self.assertLessEqual(os.path.getsize(f"/proc/{self.init_of(box)}/root/workspace/big"), 8 << 20)
        self.assertEqual(self.d.sh(box, "rm /workspace/big; echo fine")["stdout"], "fine\n")
        done = self.d.sh(box, "mkdir /workspace/d; cd /workspace/d; for i in $(seq 600); do : > $i || exit 3; done")
        self.assertEqual(done["outcome"]["exit_code"], 2)

    def test_pause_and_counters(self):
        box = self.box()
        self.d.sh(box, "true")  # gVisor may not survive a pause in its first moments (docs/PROVIDERS.md)
        self.assertEqual(self.d.ask("POST", f"/v1/sandboxes/{box}/pause").status, 200)
        pid = self.init_of(box)
        self.assertEqual(self.d.ask("GET", f"/v1/sandboxes/{box}").json["state"], "paused")
        frozen = [leaf for leaf in leaves(box) if os.path.exists(f"{leaf}/cgroup.freeze")]
        if frozen:
            with open(f"{frozen[0]}/cgroup.events", encoding="ascii") as f:
                self.assertIn("frozen 1", f.read())
        self.assertEqual(self.d.ask("POST", f"/v1/sandboxes/{box}/resume").status, 200)
        done = self.d.sh(box, "echo thawed")
        self.assertEqual(done["stdout"], "thawed\n", done)
        self.assertEqual(self.init_of(box), pid)
        stats = self.d.ask("GET", f"/v1/sandboxes/{box}/metrics").json
        self.assertGreater(stats["memory_bytes"], 0)
        self.assertGreaterEqual(stats["pids"], 1)

    # ---- roots ----

    def test_binds(self):
        with open(f"{self.share}/in/given", "w", encoding="utf-8") as f:
            f.write("given\n")
        box = self.box(binds=[{"source": f"{self.share}/in", "target": "/data", "read_only": False}])
        self.assertEqual(self.d.sh(box, "cat /data/given; echo made > /data/made && cat /data/made")["stdout"],
                         "given\nmade\n")
        self.assertEqual(os.stat(f"{self.share}/in/made").st_uid, os.stat(f"{self.share}/in").st_uid)
        only = self.box(binds=[{"source": f"{self.share}/in", "target": "/data", "read_only": True}])
        self.assertEqual(self.d.sh(only, "cat /data/given; echo x > /data/no")["outcome"]["exit_code"], 2)
        self.assertFalse(os.path.exists(f"{self.share}/in/no"))
        answer = self.d.ask("POST", "/v1/sandboxes", {"binds": [{"source": "/etc", "target": "/e"}]})
        self.assertGreaterEqual(answer.status, 400, answer)

    def test_a_directory_as_root_and_a_writable_root(self):
        box = self.box(template="small")
        done = self.d.run(box, "/bin/sh", "-c",
                          "echo hi > /tmp/a; read x < /tmp/a; echo $x; test -c /dev/null && echo null")
        self.assertEqual(done["stdout"], "hi\nnull\n")
        box = self.box(writable_root=True, limits={"disk": "64m"})
        self.assertEqual(self.d.sh(box, "test -d /usr && echo ok")["stdout"], "ok\n")
        self.root_inside()

    def root_inside(self):
        root_box = self.box(writable_root=True, user="root", limits={"disk": "64m"})
        self.assertEqual(self.d.sh(root_box, "echo x > /usr/new && cat /usr/new && id -u")["stdout"], "x\n0\n")

    # ---- recovery ----

    def test_a_killed_brigd_loses_nothing(self):
        box = self.box()
        started = self.d.ask("POST", f"/v1/sandboxes/{box}/processes",
                             {"argv": ["/bin/sh", "-c", "echo before; exec sleep 1000"]})
        self.assertEqual(started.status, 201, started)
        number = started.json["number"]
        pid = self.init_of(box)
        os.kill(self.d.children()["brigd"], signal.SIGKILL)
        self.d.wait_ready()
        self.assertEqual(self.init_of(box), pid)
        self.assertEqual(self.d.sh(box, "echo again")["stdout"], "again\n")
        found = self.d.ask("GET", f"/v1/sandboxes/{box}/processes/{number}").json
        self.assertTrue(found["running"], found)

    def test_a_killed_runner_takes_no_sandbox_with_it(self):
        box, other = self.box(), self.box()
        pid = self.init_of(box)
        runner = self.runner()
        os.kill(runner, signal.SIGKILL)
        self.assertEqual(self.d.sh(box, "echo on")["stdout"], "on\n")  # its stream is brigd's
        wait_until("another runner", lambda: self.d.children().get(f"brig-r-{self.PROVIDER}", runner) != runner)
        third = None
        def made():
            nonlocal third
            answer = self.d.ask("POST", "/v1/sandboxes", {})
            third = answer.json.get("id") if answer.status == 201 else None
            return third
        wait_until("it makes sandboxes", made)
        self.addCleanup(self.d.ask, "DELETE", f"/v1/sandboxes/{third}")
        self.assertEqual(self.init_of(box), pid)
        self.assertEqual(self.d.ask("POST", f"/v1/sandboxes/{box}/pause").status, 200)
        self.assertEqual(self.d.ask("POST", f"/v1/sandboxes/{box}/resume").status, 200)
        self.assertEqual(self.d.sh(box, "echo still")["stdout"], "still\n")
        dead = self.init_of(other)
        self.assertEqual(self.d.ask("DELETE", f"/v1/sandboxes/{other}").status, 204)
        self.gone(other, dead)
        os.kill(self.d.children()["brigd"], signal.SIGKILL)
        self.d.wait_ready()
        self.assertEqual(self.d.sh(box, "echo both")["stdout"], "both\n")

    def test_what_ends_while_no_runner_watches_has_a_certificate(self):
        box = self.box()
        pid = self.init_of(box)
        runner = self.runner()
        os.kill(runner, signal.SIGSTOP)
        os.kill(runner, signal.SIGKILL)
        os.kill(pid, signal.SIGKILL)
        wait_until("it has a certificate", lambda: self.d.ask("GET", f"/v1/certificates/{box}").status == 200)
        self.assertIn(self.certificate(box)["cause"], ("sandbox-gone",))
        self.gone(box, pid)

    def test_pid_1_that_is_killed_is_told(self):
        box = self.box()
        pid = self.init_of(box)
        os.kill(pid, signal.SIGKILL)
        wait_until("it has a certificate", lambda: self.d.ask("GET", f"/v1/certificates/{box}").status == 200)
        self.assertEqual(self.certificate(box)["cause"], "sandbox-gone")
        self.gone(box, pid)

    def test_check(self):
        answer = self.d.ask("POST", f"/v1/providers/{self.PROVIDER}/check")
        self.assertEqual(answer.status, 200, answer)
        self.assertTrue(answer.json["usable"], answer)
        version = subprocess.run([self.PROVIDER, "--version"], capture_output=True, text=True, check=True,
                                 timeout=PATIENCE).stdout
        self.assertIn(answer.json["version"], version)
        self.assertTrue(set(LAYERS) <= set(answer.json["layers"]), answer.json)


class OnTheHostsKernel(Carried):
    def test_memory_that_no_cgroup_counts(self):
        box = self.box()
        many = "import socket; held = [socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) for _ in range(200)]"
        self.d.ask("POST", f"/v1/sandboxes/{box}/processes", {"argv": ["python3", "-c", f"{many}\nwhile True: pass"]})
        wait_until("it has a certificate", lambda: self.d.ask("GET", f"/v1/certificates/{box}").status == 200)
        self.assertEqual(self.certificate(box)["cause"], "oom")


@needs_root
@unittest.skipUnless(shutil.which("runc"), "runc is not installed: tools/setup.sh providers")
class InRunc(OnTheHostsKernel, unittest.TestCase):
    PROVIDER = "runc"


@needs_root
@unittest.skipUnless(shutil.which("crun"), "crun is not installed: tools/setup.sh providers")
class InCrun(OnTheHostsKernel, unittest.TestCase):
    PROVIDER = "crun"


class Runsc(Carried):
    """Another kernel answers: what is inside is read by brig-init, and the namespaces are those of that kernel."""

    PROVIDER = "runsc"
    ON = "mount_ns pid_ns net_ns ipc_ns uts_ns user_ns uid_range caps no_new_privs seccomp fds memory cpu".split()

    SPACES = ("user", "mnt", "pid", "net", "ipc", "uts")

    def root_inside(self):
        answer = self.d.ask("POST", "/v1/sandboxes", {"user": "root", "writable_root": True})
        self.assertEqual((answer.status, answer.json["error"]["message"]),
                         (422, "the provider runsc has no root inside"))

    def test_the_socket_of_brig_init_is_on_a_file_system_of_its_own(self):
        """It is sealed before a program runs, and no directory of the host is shared for it."""
        box = self.box()
        place = next(p for p in (f"/proc/{pid}/root/.brig/run" for pid in members(box)) if os.path.exists(p))
        self.assertTrue(os.statvfs(place).f_flag & os.ST_RDONLY)
        done = self.d.run(box, "python3", "-c", "import socket; socket.socket(socket.AF_UNIX).connect('/.brig/run/s')")
        self.assertIn("PermissionError", done["stderr"])
        of_host = os.listdir(f"{self.d.dir}/run/runner-{self.PROVIDER}/{box}")
        self.assertEqual(set(of_host) - {"s"}, {"state"})
        for name in ("brigd", f"brig-r-{self.PROVIDER}"):  # what comes after finds it, and the socket is the same
            old = self.d.children()[name]
            os.kill(old, signal.SIGKILL)
            wait_until("another one", lambda: self.d.children().get(name, old) != old)
            self.d.wait_ready()
            wait_until("it answers again",
                       lambda: self.d.ask("POST", f"/v1/sandboxes/{box}/run", {"argv": ["true"]}).status == 200)

    def init_of(self, box):
        """The sentry."""
        for pid in members(box):
            with open(f"/proc/{pid}/cmdline", encoding="utf-8", errors="replace") as f:
                if "boot" in f.read().split("\0"):
                    return pid
        raise AssertionError(f"no sentry among {members(box)}")

    def test_every_layer_is_read_back_and_is_what_an_observer_sees(self):
        made = self.d.create(require=["own_kernel", *self.ON])
        box, layers = made["id"], made["protection"]["layers"]
        self.addCleanup(self.d.ask, "DELETE", f"/v1/sandboxes/{box}")
        self.assertEqual([n for n in self.ON if not layers[n]["on"]], [])
        self.assertEqual((layers["own_kernel"]["on"], layers["own_kernel"]["by"]), (True, self.KERNEL))
        self.assertFalse(layers["landlock"]["on"])
        self.assertEqual(layers["landlock"]["why"], "this kernel does not have it")
        pid = self.init_of(box)
        for name in self.SPACES:
            self.assertNotEqual(os.readlink(f"/proc/{pid}/ns/{name}"), os.readlink(f"/proc/self/ns/{name}"), name)
        self.assertIn("gvisor" if self.KERNEL == "gvisor systrap" else "4.4.0",
                      self.d.sh(box, "cat /proc/version")["stdout"])
        self.d.ask("DELETE", f"/v1/sandboxes/{box}")
        self.gone(box, pid)
        self.assertEqual(self.certificate(box)["cause"], "deleted")

    def test_a_required_layer_that_cannot_be_is_refused(self):
        answer = self.d.ask("POST", "/v1/sandboxes", {"require": ["landlock"]})
        self.assertEqual(answer.status, 422, answer)
        self.assertIn("required layer landlock: the provider runsc cannot show it", answer.json["error"]["message"])

    def test_memory_pids_and_disk_are_limits_with_typed_causes(self):
        """What is over the limit is the sentry's memory: the whole sandbox ends."""
        box = self.box(limits={"memory": "256m", "disk": "8m"})
        done = self.d.sh(box, "head -c 20000000 /dev/zero > /workspace/big; wc -c < /workspace/big")
        self.assertLessEqual(int(done["stdout"]), 8 << 20)
        self.d.sh(box, "rm /workspace/big")
        self.d.ask("POST", f"/v1/sandboxes/{box}/run", {"argv": ["python3", "-c", "x = b'x' * (600 << 20)"]})
        wait_until("it has a certificate", lambda: self.d.ask("GET", f"/v1/certificates/{box}").status == 200)
        self.assertEqual(self.certificate(box)["cause"], "oom")
        for limits, code, cause in (({"memory": "256m"}, "x = b'x' * (600 << 20)", "oom"),
                                    ({"pids": 60}, FORKS, "pids-limit")):
            ran = self.d.ask("POST", "/v1/run", {"language": "python", "code": code, "limits": limits})
            self.assertEqual((ran.status, ran.json["receipt"]["outcome"]["cause"]), (200, cause), ran)

    def test_binds(self):
        with open(f"{self.share}/in/given", "w", encoding="utf-8") as f:
            f.write("given\n")
        bind = {"source": f"{self.share}/in", "target": "/data", "read_only": True}
        box = self.box(binds=[bind])
        self.assertEqual(self.d.sh(box, "cat /data/given; echo x > /data/no || echo refused")["stdout"],
                         "given\nrefused\n")
        self.assertFalse(os.path.exists(f"{self.share}/in/no"))
        answer = self.d.ask("POST", "/v1/sandboxes", {"binds": [{**bind, "read_only": False}]})
        self.assertGreaterEqual(answer.status, 400)
        self.assertIn("/data: the provider runsc has no writable binds", answer.json["error"]["message"])

    def test_the_gate_holds_a_stack_of_its_own(self):
        """Names come from the gate, every address is the gate, and what the policy does not name is refused."""
        box = self.box(network={"rules": [{"action": "allow", "domain": "example.com", "ports": [443]}]})
        text = ("import errno, socket\n"
                "print(socket.getaddrinfo('example.com', 443, socket.AF_INET)[0][4][0].split('.')[:2])\n"
                "try: print(socket.getaddrinfo('example.org', 443))\n"
                "except OSError: print('no name')\n"
                "for port in (443, 81):\n"
                "    s = socket.socket(); print(errno.errorcode.get(s.connect_ex(('93.184.216.34', port)), 'there'))\n")
        done = self.d.run(box, "python3", "-I", "-c", text)
        self.assertEqual(done["stdout"], "['198', '19']\nno name\nthere\nECONNREFUSED\n", done["stderr"])
        none = self.box()
        text = "import errno, socket; print(errno.errorcode[socket.socket().connect_ex(('93.184.216.34', 443))])"
        self.assertEqual(self.d.run(none, "python3", "-I", "-c", text)["stdout"], "ENETUNREACH\n")

    def test_the_bundle_of_brokered_secrets_is_where_libraries_look(self):
        self.assertEqual(self.d.ask("PUT", "/v1/secrets/TOKEN", {"value": "a-value-of-a-secret", "broker": {
            "hosts": ["api.example.com"], "header": "Authorization", "format": "Bearer %s"}}).status, 201)
        box = self.box(network={"rules": [{"action": "allow", "domain": "api.example.com"}]},
                       secrets=[{"name": "TOKEN", "env": "TOKEN"}])
        text = ("import os, ssl\n"
                "print(os.environ['TOKEN'][:12], os.environ['SSL_CERT_FILE'])\n"
                "names = [dict(x[0] for x in c['subject']) for c in ssl.create_default_context().get_ca_certs()]\n"
                "print(sum('brig' in str(n) for n in names))\n"
                "try: open('/etc/ssl/certs/ca-certificates.crt', 'a')\n"
                "except OSError as e: print(type(e).__name__)\n")
        done = self.d.run(box, "python3", "-I", "-c", text)
        self.assertRegex(done["stdout"],
                         r"^brig-secret- /etc/ssl/certs/ca-certificates.crt\n1\n(Permission|OS)Error\n$", done)

    def test_check(self):
        answer = self.d.ask("POST", f"/v1/providers/{self.PROVIDER}/check")
        self.assertEqual(answer.status, 200, answer)
        self.assertTrue(answer.json["usable"], answer)
        self.assertRegex(answer.json["version"], self.VERSION)
        self.assertTrue({"own_kernel", *self.ON} <= set(answer.json["layers"]), answer.json)


@needs_root
@unittest.skipUnless(os.path.exists(RUNSC_NEW), f"there is no {RUNSC_NEW}: tools/runsc.sh build")
class InRunsc(Runsc, unittest.TestCase):
    CONFIG = f'[runsc]\npath = "{RUNSC_NEW}"\n[secrets]\ninsecure_plaintext = true\n'
    KERNEL, VERSION = "gvisor systrap", r"^0\.0\.0-20"


@needs_root
@unittest.skipUnless(os.path.exists("/usr/bin/runsc"), "runsc is not installed: tools/setup.sh providers")
class InOldRunsc(Runsc, unittest.TestCase):
    """Of 2022, as Debian 12 has it."""

    CONFIG = '[runsc]\npath = "/usr/bin/runsc"\n'
    KERNEL, VERSION = "gvisor ptrace", r"^0\.0~20"
    ON = [name for name in Runsc.ON if name not in ("pid_ns", "uid_range")]  # its sentry has neither
    SPACES = ("user", "mnt", "net", "ipc", "uts")

    def test_the_bundle_of_brokered_secrets_is_where_libraries_look(self):
        self.skipTest("brokered secrets need a network, which this runsc does not have here")

    def test_the_gate_holds_a_stack_of_its_own(self):
        """It refuses to be given a network of ours, so we refuse before it is asked."""
        answer = self.d.ask("POST", "/v1/sandboxes", {"network": {"rules": [{"action": "allow", "domain": "a.test"}]}})
        self.assertGreaterEqual(answer.status, 400)
        self.assertIn("has no network here: a newer one is needed", answer.json["error"]["message"])


if __name__ == "__main__":
    unittest.main()
