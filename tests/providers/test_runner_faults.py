# SPDX-License-Identifier: Apache-2.0
"""A runner with a runtime that does not do its work, and with a brigd that was taken over."""

import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "e2e"))

from helpers import PATIENCE, environment, wait_until  # noqa: E402
from jailkit import needs_root  # noqa: E402
from service import Daemon  # noqa: E402

BUILD = os.environ.get("BRIG_BUILD_DIR", "build")
HELPERS = os.environ.get("BRIG_LIBEXEC_DIR", f"{BUILD}/src")
RUNNER_HOST = f"{BUILD}/tests/e2e/runner_host"
FAKE = """#!/usr/bin/python3 -IS
import os, socket, sys, time
if "--version" in sys.argv:
    print("runc version 9.9.9-fake")
    sys.exit(0)
where = sys.argv[sys.argv.index("--pid-file") + 1]
def container(pid):
    with open(where, "w") as f:
        f.write(str(pid))
    sys.exit(0)
"""
FORK = "pid = os.fork()\nif pid: container(pid)\ns = socket.socket(fileno=3)\n"
# What the runtime does instead of its work, and what the refusal says.
FAULTS = {
    "hangs": ("time.sleep(1000)", "runc did not come back within start_timeout, 1500 ms"),
    "fails": ("sys.stderr.write('no luck today\\n\\x1b[31m'); sys.exit(3)",
              "runc ended with status 3 before brig-init ran: no luck today"),
    "says nothing": ("sys.exit(0)", "runc says no pid of its container"),
    "lies": ("container(os.getppid())", "which runc says is its container, is not in our cgroup"),
    "is silent": (FORK + "time.sleep(1000)", "brig-init said nothing within start_timeout, 1500 ms"),
    "speaks nonsense": (FORK + "s.setblocking(True)\nc = s.accept()[0]\nc.sendall(b'HTTP/1.1 200 OK\\r\\n' * 99)\n"
                        "time.sleep(1000)", "brig-init: "),
    "speaks another version": (FORK + "s.setblocking(True)\nc = s.accept()[0]\nnonce = c.recv(4096)[24:32]\n"
                               "c.sendall(bytes((16, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 16, 0, 0,"
                               " 0)) + nonce)\ntime.sleep(1000)",
                               "brig-init: it speaks version 2 of the protocol, and 1 is needed"),
    "dies early": (FORK + "s.setblocking(True)\ns.accept()[0].close()", "brig-init: it closed the connection"),
}


def cgroups_of(box):
    return [name for _, names, _ in os.walk("/sys/fs/cgroup") for name in names if box in name]


@needs_root
class Faults(unittest.TestCase):
    """A runtime that is missing or does not do its work: one error that says so, and nothing is left."""

    LIMIT_SECONDS = 180

    def daemon(self, path):
        d = Daemon(f'[providers]\nstart_timeout = "1500ms"\n[runc]\npath = "{path}"\n')
        self.addCleanup(d.close)
        return d

    def refusal(self, d):
        answer = d.ask("POST", "/v1/sandboxes", {"provider": "runc"})
        self.assertGreaterEqual(answer.status, 400, answer)
        return answer.json["error"]["message"]

    def test_a_runtime_that_is_not_there(self):
        d = self.daemon("/nonexistent/runc")
        self.assertIn("/nonexistent/runc --version does not work (install it: apt-get install runc)", self.refusal(d))
        self.assertEqual(d.ask("POST", "/v1/sandboxes", {"provider": "local"}).status, 201)

    def test_a_runner_that_hangs_holds_nobody_who_deletes(self):
        d = self.daemon(shutil.which("runc"))
        box = d.create(provider="runc")["id"]
        runner = d.children()["brig-r-runc"]
        os.kill(runner, signal.SIGSTOP)
        try:
            answer = d.ask("DELETE", f"/v1/sandboxes/{box}")
            self.assertEqual((answer.status, answer.json["error"]["code"]), (503, "busy"), answer)
            self.assertIn(f"the provider runc has not ended sandbox {box} within start_timeout, 1500 ms",
                          answer.json["error"]["message"])
            self.assertEqual(d.ask("GET", f"/v1/sandboxes/{box}").json["state"], "stopping")
        finally:
            os.kill(runner, signal.SIGCONT)
        wait_until("it has a certificate", lambda: d.ask("GET", f"/v1/certificates/{box}").status == 200)
        self.assertEqual(d.ask("GET", f"/v1/certificates/{box}").json["cause"], "deleted")

    def test_what_a_provider_has_left_is_ended_when_it_is_off(self):
        d = Daemon('[server]\non_shutdown = "keep"\n')
        self.addCleanup(d.close)
        box = d.create(provider="runc")["id"]
        where = f"{d.dir}/run/runner-runc/{box}"
        d.stop()
        self.assertTrue(os.path.exists(where))
        with open(d.config, "w", encoding="utf-8") as f:
            f.write('[providers]\nonly = "local"\n')
        d.env.pop("BRIG_PROVIDERS_ONLY", None)
        d.start()
        wait_until("nothing is left", lambda: not os.path.exists(where) and not cgroups_of(box))
        wait_until("it has a certificate", lambda: d.ask("GET", f"/v1/certificates/{box}").status == 200)

    def test_a_runtime_that_fails_in_every_way(self):
        with tempfile.TemporaryDirectory(dir="/var/tmp") as at:
            os.chmod(at, 0o755)
            path = f"{at}/runc"
            with open(path, "w", encoding="utf-8") as f:
                f.write(FAKE)
            os.chmod(path, 0o755)
            d = self.daemon(path)
            for name, (code, said) in FAULTS.items():
                with open(path, "w", encoding="utf-8") as f:
                    f.write(f"{FAKE}{code}\n")
                with self.subTest(name):
                    self.assertIn(said, self.refusal(d))
                    where = f"{d.dir}/run/runner-runc"
                    wait_until("nothing is left", lambda at=where: not [n for n in os.listdir(at) if len(n) == 26])
            wait_until("no process of it is left", lambda: path not in subprocess.run(
                ["ps", "-eo", "args"], capture_output=True, text=True, check=True, timeout=PATIENCE).stdout)
            check = d.ask("POST", "/v1/providers/runc/check").json
            self.assertEqual((check["usable"], check["version"]), (False, "9.9.9-fake"), check)
            self.assertIn("brig-init: it closed the connection", check["missing"])


@needs_root
@unittest.skipUnless(shutil.which("runc"), "runc is not installed: tools/setup.sh providers")
class TakenOver(unittest.TestCase):
    """A brigd that was taken over asks a runner for what it must not make (drivers/runner_host.c)."""

    LIMIT_SECONDS = 120
    NO_BIND = "not in a directory that this service may share (BRIG_BIND_ROOTS)"
    NO_ROOT = "not in a directory that this service may use (BRIG_ROOTFS_ROOTS)"
    REFUSED = {
        "unknown flag": "failed: counts of the run",
        "a program": "refused: the provider runc has no runs of one program",
        "arguments of a service": "failed: counts of the run",
        "a zygote": "refused: the provider runc has no zygotes",
        "a new layer": "refused: the provider runc has no new layers",
        "sudo": "refused: the provider runc has no sudo",
        "a disk": "refused: the provider runc has no disks",
        "another profile": "failed: counts of the run",
        "a layer that is none": "failed: counts of the run",
        "a port of the host's": "failed: network of the run",
        "more strings": "failed: strings of the run",
        "strings that can change": "failed: strings of the run",
        "one more descriptor": "failed: descriptors of the run",
        "bind /": f"refused: bind source /: {NO_BIND}",
        "bind /proc": f"refused: bind source /proc: {NO_BIND}",
        "bind /etc": f"refused: bind source /etc: {NO_BIND}",
        "bind a relative path": "refused: bind source etc: must be absolute",
        "rootfs /": f"refused: rootfs /: {NO_ROOT}",
        "rootfs /etc": f"refused: rootfs /etc: {NO_ROOT}",
    }

    def test_nothing_privileged_is_made(self):
        with tempfile.TemporaryDirectory(dir="/var/tmp") as at:
            os.makedirs(f"{at}/shared")
            os.symlink("/etc", f"{at}/shared/out")
            env = environment(BRIG_STATE_DIR=f"{at}/state", BRIG_RUN_DIR=f"{at}/run", BRIG_CACHE_DIR=f"{at}/cache",
                              BRIG_BIND_ROOTS=f"{at}/shared", BRIG_RUNTIME_PATH=shutil.which("runc"))
            done = subprocess.run([RUNNER_HOST, f"{HELPERS}/brig-runner", "runc", f"{at}/shared/out"], env=env,
                                  capture_output=True, text=True, timeout=4 * PATIENCE, check=False)
            said = dict(line.split(": ", 1) for line in done.stdout.splitlines() if ": " in line)
            for name, text in self.REFUSED.items():
                self.assertTrue(said.get(name, "").startswith(text), (name, said.get(name), done))
            for name in ("no end of memory", "bind out of the root", "bind over /proc"):
                self.assertRegex(said[name], "^(refused|failed): ", name)
            self.assertNotIn("MADE", done.stdout)
            # What it was asked for is in the service's own log too, which a brigd cannot keep it from.
            self.assertIn(f"brig-runner runc: refused: bind source /: {self.NO_BIND}", done.stderr)
            # DONE says so of every one, and brigd writes that to the audit log (tests/unit/test_local_runner.c).
            self.assertEqual(set(self.REFUSED) - set(said["distrusted"].split(",")), set())
            self.assertEqual((said["honest"], said["limits"], said["end"]), ("made", "100663296 500 33", "cancelled"))
            self.assertEqual(done.stdout.splitlines()[-1], "the runner is gone")


if __name__ == "__main__":
    unittest.main()
