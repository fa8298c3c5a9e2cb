# SPDX-License-Identifier: Apache-2.0
"""What one organisation could do to the others by way of tools, and cannot."""

import glob
import os
import tempfile
import threading

from helpers import wait_until
from lettakit import LettaTest


class AcrossTest(LettaTest):
    WHEELS = tempfile.mkdtemp(prefix="brig-wheels-")  # with none in it: pip looks, and ends
    CONFIG = f'[tools]\nfind_links = "{WHEELS}"\nshare_sets = true\n'

    @classmethod
    def tearDownClass(cls):
        super().tearDownClass()
        os.rmdir(cls.WHEELS)

    def org(self, name):
        made = self.ask("POST", "/orgs", {"name": name}, status=201)["id"]
        return made, self.d.key(org=made, role="admin")

    def test_only_the_administrator_lets_runs_write_to_a_shared_directory(self):
        org, key = self.org("poisoner")
        for body in ({"persist": True}, {"persist": "on"}, {"persist": 1}):
            self.assertIn("config.persist",
                          self.detail("POST", "/sandbox-config/local", body, status=403, key=key, tcp=True))
            self.assertIn("config.persist",
                          self.detail("POST", "/sandbox-config/", {"config": {"type": "local", **body}}, status=403,
                                      key=key, tcp=True))
        made = self.ask("POST", "/sandbox-config/local", {"persist": False}, key=key, tcp=True)
        self.assertNotIn("persist", made["config"])
        self.assertIn("config.persist", self.detail("PATCH", f"/sandbox-config/{made['id']}",
                                                    {"config": {"persist": True}}, status=403, key=key, tcp=True))
        # Given by the administrator, for a directory, it is for that directory.
        user = {"user_id": f"user-{org[len('org-'):]}"}
        given = self.ask("PATCH", f"/sandbox-config/{made['id']}", {"config": {"persist": True}}, headers=user)
        self.assertIs(given["config"]["persist"], True)
        there = given["config"]["sandbox_dir"]
        self.assertIn("config.sandbox_dir",
                      self.detail("PATCH", f"/sandbox-config/{made['id']}", {"config": {"sandbox_dir": f"{there}/x"}},
                                  status=403, key=key, tcp=True))
        kept = self.ask("PATCH", f"/sandbox-config/{made['id']}", {"config": {"sandbox_dir": there, "use_venv": False}},
                        key=key, tcp=True)
        self.assertEqual(kept["config"], given["config"])

    def test_nobody_gets_into_an_installation(self):
        """Sets may be shared: what is in one must come from the installer alone."""
        org, key = self.org("intruder")
        self.ask("POST", "/sandbox-config/local", {"pip_requirements": [{"name": "nosuch", "version": "1.0"}]}, key=key,
                 tcp=True)
        build = threading.Thread(target=self.d.ask, args=("POST", "/v1/sandbox-config/local/recreate-venv"),
                                 kwargs={"key": key, "tcp": True})
        build.start()
        self.addCleanup(build.join)

        def running():
            return [s["id"] for s in self.ask("GET", "/sandboxes")["sandboxes"] if s["organization_id"] == org
                    and s["state"] == "running"]
        wait_until("the administrator sees the installation", running)
        asked = [self.d.ask("GET", "/v1/sandboxes", key=key, tcp=True)]
        for box in running():
            for method, path, body in (("GET", "", None), ("POST", "/run", {"argv": ["/bin/true"]}),
                                       ("POST", "/processes", {"argv": ["/bin/true"]}), ("DELETE", "", None)):
                asked.append(self.d.ask(method, f"/v1/sandboxes/{box}{path}", body, key=key, tcp=True))
            asked.append(self.d.ask("POST", "/v1/run", {"code": "1", "language": "python", "sandbox_id": box}, key=key,
                                    tcp=True))
        self.assertEqual(asked[0].json["sandboxes"], [])
        self.assertEqual({a.status for a in asked[1:]} - {404}, set(), asked)

    def test_files_that_runs_leave_are_bounded_per_organisation(self):
        org, key = self.org("hoarder")
        top = os.path.dirname(os.path.dirname(self.left(self.leave())))
        os.makedirs(f"{top}/{org}", exist_ok=True)
        olds = [f"{top}/{org}/run-old{i}.tar" for i in range(4)]
        for i, old in enumerate(olds):
            with open(old, "wb") as f:
                f.truncate(400 << 20)  # in size only
            os.utime(old, (10**9 + i, 10**9 + i))
        os.chown(f"{top}/{org}", *(lambda st: (st.st_uid, st.st_gid))(os.stat(top)))
        new = self.left(self.leave(key=key, tcp=True))
        wait_until("the oldest are gone", lambda: [os.path.exists(old) for old in olds] == [False, False, True, True])
        self.assertTrue(os.path.exists(new))

    def leave(self, **more):
        source = ('def leave():\n    """Leaves a file."""\n    import os\n    os.makedirs("/workspace/out")\n'
                  '    open("/workspace/out/x", "w").close()\n')
        return self.ask("POST", "/tools/run", {"source_code": source, "args": {}}, **more)["receipt"]["id"]

    def left(self, run):
        """The file of what a run left, once it is whole."""
        wait_until("its files are there", lambda: glob.glob(f"{self.d.dir}/state/**/{run}.tar", recursive=True))
        return glob.glob(f"{self.d.dir}/state/**/{run}.tar", recursive=True)[0]
