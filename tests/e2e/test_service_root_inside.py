# SPDX-License-Identifier: Apache-2.0
"""Root inside over the API: who may ask for it, what its processes and files are, and which user a process may name."""

import os
import tempfile

from jailkit import needs_root
from service import Daemon, ServiceTest

NONE, SEVEN = "0" * 16, "00000000000000fb"
CAPS = "grep -E '^Cap(Prm|Eff|Bnd|Amb)' /proc/self/status | cut -f2 | tr '\\n' ' '"


@needs_root
class RootInside(ServiceTest):
    @classmethod
    def setUpClass(cls):
        cls.shared = tempfile.mkdtemp(prefix="brig-shared-")
        os.chmod(cls.shared, 0o755)
        cls.d = Daemon(f'[sandbox]\nbind_roots = "{cls.shared}"\n')
        cls.user = cls.d.key(role="user")

    @classmethod
    def tearDownClass(cls):
        super().tearDownClass()
        os.rmdir(cls.shared)

    def make(self, body, **how):
        made = self.d.ask("POST", "/v1/sandboxes", body, **how)
        self.assertEqual(made.status, 201, made)
        self.addCleanup(self.d.ask, "DELETE", f"/v1/sandboxes/{made.json['id']}")
        return made.json

    def run_in(self, box, command, status=200, **members):
        answer = self.d.ask("POST", f"/v1/sandboxes/{box}/run", {"command": command, **members})
        self.assertEqual(answer.status, status, answer)
        return answer.json["stdout"] if status == 200 else answer.json["error"]["message"]

    def test_its_processes(self):
        made = self.make({"user": "root", "writable_root": True})
        self.assertEqual(made["user"], "root")
        layers = made["protection"]["layers"]
        self.assertFalse(layers["caps"]["on"])
        self.assertIn("root inside", layers["caps"]["why"])
        box = made["id"]
        self.assertEqual(self.run_in(box, f"id -u; echo $HOME; {CAPS}").split(),
                         ["0", "/root", SEVEN, SEVEN, SEVEN, NONE])
        self.assertEqual(self.run_in(box, "touch /usr/x; chown 33:44 /usr/x; stat -c '%u %g' /usr/x"), "33 44\n")

    def test_a_process_may_name_its_user(self):
        box = self.make({"user": "root", "writable_root": True})["id"]
        for user, ids, home in (("user", "1000 1000", "/home/user"), ("33", "33 0", "/"), ("33:33", "33 33", "/"),
                                ("7:8", "7 8", "/"), ("root", "0 0", "/root"), ("0:0", "0 0", "/root"),
                                ("root:user", "0 1000", "/root"), ("1000", "1000 1000", "/home/user"),
                                ("65535:0", "65535 0", "/")):
            got = self.run_in(box, f"echo $(id -u) $(id -g); id -G; echo $HOME; {CAPS}", user=user).splitlines()
            uid, gid = ids.split()
            caps = SEVEN if uid == "0" else NONE
            self.assertEqual(got[:3], [ids, gid, home], user)
            self.assertEqual(got[3].split(), [caps, caps, caps, NONE], user)

    def test_bad_users(self):
        box = self.make({"user": "root"})["id"]
        for user in ("", "65536", "1:65536", "-1", "1:", ":1", "1:2:3", "4294967296", "a b", "-a"):
            self.assertIn("user", self.run_in(box, "true", status=400, user=user))

    def test_an_ordinary_sandbox_has_no_other_user(self):
        box = self.make({})["id"]
        self.assertEqual(self.run_in(box, "id -u", user="user"), "1000\n")
        for user in ("root", "0", "1001", "1000:5"):
            self.assertIn("no root inside", self.run_in(box, "id -u", status=422, user=user))

    def test_files_and_shells_are_roots(self):
        box = self.make({"user": "root", "writable_root": True})["id"]
        at = f"/v1/sandboxes/{box}"
        self.assertEqual(self.d.ask("PUT", f"{at}/files?path=/etc/brig-e2e", b"x").status, 200)
        self.assertEqual(self.run_in(box, "stat -c '%u %g' /etc/brig-e2e; cat /etc/brig-e2e"), "0 0\nx")
        self.run_in(box, "touch /root/secret; chmod 600 /root/secret; chown 5 /root/secret")
        self.assertEqual(self.d.ask("GET", f"{at}/files?path=/root/secret").status, 200)
        shell = self.d.ask("POST", f"{at}/shells", {})
        self.assertEqual(shell.status, 201, shell)
        done = self.d.ask("POST", f"{at}/shells/{shell.json['number']}/run", {"command": "id -u; cd /root; pwd"})
        self.assertEqual(done.json["stdout"], "0\n/root\n", done)

    def test_it_sees_its_own_processes_and_may_signal_others(self):
        box = self.make({"user": "root"})["id"]
        other = self.d.ask("POST", f"/v1/sandboxes/{box}/processes", {"argv": ["sleep", "1000"], "user": "33"}).json
        said = self.run_in(box, f"test -e /proc/{other['pid']} || echo hidden; test -e /proc/$$ && echo seen; "
                                f"kill -9 {other['pid']} && echo killed")
        self.assertEqual(said.split(), ["hidden", "seen", "killed"])

    def test_it_cannot_be_required_whole(self):
        for require in ("all", ["caps"]):
            answer = self.d.ask("POST", "/v1/sandboxes", {"user": "root", "require": require})
            self.assertEqual(answer.status, 422, answer)
            self.assertIn("user root", answer.json["error"]["message"])

    def test_a_users_key_may_have_it_but_no_bind(self):
        made = self.make({"user": "root", "writable_root": True}, tcp=True, key=self.user)
        ran = self.d.ask("POST", f"/v1/sandboxes/{made['id']}/run", {"argv": ["id", "-u"]}, tcp=True, key=self.user)
        self.assertEqual(ran.json["stdout"], "0\n", ran)
        bind = [{"source": self.shared, "target": "/data"}]
        answer = self.d.ask("POST", "/v1/sandboxes", {"user": "root", "binds": bind}, tcp=True, key=self.user)
        self.assertEqual(answer.status, 403, answer)
        box = self.make({"user": "root", "binds": bind})["id"]
        for path, body in (("run", {"argv": ["id"]}), ("processes", {"argv": ["id"], "user": "root"})):
            answer = self.d.ask("POST", f"/v1/sandboxes/{box}/{path}", body, tcp=True, key=self.user)
            self.assertEqual(answer.status, 403, answer)

    def test_a_run_of_its_own(self):
        answer = self.d.ask("POST", "/v1/runs", {"sandbox": {"user": "root", "writable_root": True},
                                                 "process": {"command": "id -u; id -u > /usr/x; cat /usr/x"}})
        self.assertEqual(answer.json["stdout"], "0\n0\n", answer)
        answer = self.d.ask("POST", "/v1/runs", {"sandbox": {"user": "root"},
                                                 "process": {"command": "id -u", "user": "9"}})
        self.assertEqual(answer.json["stdout"], "9\n", answer)
