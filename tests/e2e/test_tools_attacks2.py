# SPDX-License-Identifier: Apache-2.0
"""What one organisation could do to the others by way of tools, and cannot."""

from lettakit import LettaTest


class AcrossTest(LettaTest):
    def org(self, name):
        made = self.ask("POST", "/orgs", {"name": name}, status=201)["id"]
        return made, self.d.key(org=made, role="admin")

    def test_only_the_administrator_lets_runs_write_to_a_shared_directory(self):
        org, key = self.org("poisoner")
        for body in ({"persist": True}, {"persist": "on"}, {"persist": 1}):
            self.assertIn("config.persist", self.detail("POST", "/sandbox-config/local", body, status=403, key=key, tcp=True))
            self.assertIn("config.persist", self.detail("POST", "/sandbox-config/", {"config": {"type": "local", **body}}, status=403, key=key, tcp=True))
        made = self.ask("POST", "/sandbox-config/local", {"persist": False}, key=key, tcp=True)
        self.assertNotIn("persist", made["config"])
        self.assertIn("config.persist", self.detail("PATCH", f"/sandbox-config/{made['id']}", {"config": {"persist": True}}, status=403, key=key, tcp=True))
        # Given by the administrator, for a directory, it is for that directory.
        user = {"user_id": f"user-{org[len('org-'):]}"}
        given = self.ask("PATCH", f"/sandbox-config/{made['id']}", {"config": {"persist": True}}, headers=user)
        self.assertIs(given["config"]["persist"], True)
        there = given["config"]["sandbox_dir"]
        self.assertIn("config.sandbox_dir", self.detail("PATCH", f"/sandbox-config/{made['id']}", {"config": {"sandbox_dir": f"{there}/x"}}, status=403, key=key, tcp=True))
        kept = self.ask("PATCH", f"/sandbox-config/{made['id']}", {"config": {"sandbox_dir": there, "use_venv": False}}, key=key, tcp=True)
        self.assertEqual(kept["config"], given["config"])
