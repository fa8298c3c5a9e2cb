# SPDX-License-Identifier: Apache-2.0
"""The service is killed while a fork, a snapshot, a commit, a restore or a volume is on its way, and the same thing is
asked for twice at once: what there is then is whole, and nothing else is left."""

import concurrent.futures
import json
import os
import signal
import unittest

from helpers import wait_until
from jailkit import IS_ROOT, image_stores
from service import Daemon

ORDERS = {"fork": ("sandboxes/{box}/fork", {"count": 2}), "snapshot": ("sandboxes/{box}/snapshot", {"name": "new"}),
          "commit": ("sandboxes/{box}/commit", {"name": "new"}), "restore": ("snapshots/kept/restore", {"name": "new"}),
          "volume": ("volumes", {"name": "new", "size": "16m"}),
          "fork of memory": ("sandboxes/{memory}/fork", {"count": 2}),
          "commit of memory": ("sandboxes/{memory}/commit", {"name": "new"})}


@unittest.skipUnless(IS_ROOT and image_stores(), "needs loop devices as root")
class Orders(unittest.TestCase):
    def setUp(self):
        self.d = Daemon()
        self.addCleanup(self.d.close)
        self.box = self.d.create(forkable=True, limits={"disk": "32m"})["id"]
        self.memory = self.d.create(limits={"memory": "64m"})["id"]
        for box in (self.box, self.memory):
            self.d.sh(box, "echo kept > x; sync")
        self.assertEqual(self.d.ask("POST", f"/v1/sandboxes/{self.box}/snapshot", {"name": "kept"}).status, 201)

    def order(self, what):
        path, body = ORDERS[what]
        return self.d.ask("POST", f"/v1/{path.format(box=self.box, memory=self.memory)}", body).status

    def begin(self, what):
        """The order is sent, and taken before anything that is asked later; nobody waits for its answer."""
        path, body = ORDERS[what]
        connection = self.d.connection()
        self.addCleanup(connection.close)
        connection.request("POST", f"/v1/{path.format(box=self.box, memory=self.memory)}", json.dumps(body),
                           {"Content-Type": "application/json"})
        return connection

    def is_up(self):
        try:
            return self.d.ask("GET", "/readyz").status == 200
        except OSError:
            return False

    def names(self, what):
        return {one["name"] for one in self.d.ask("GET", f"/v1/{what}").json[what]}

    def boxes(self):
        return [one["id"] for one in self.d.ask("GET", "/v1/sandboxes").json["sandboxes"] if one["state"] == "running"]

    def check(self):
        """All that is there works, and is removed; then no disk is left but those of the first sandbox."""
        for box in self.boxes():
            self.assertEqual(self.d.sh(box, "cat x")["stdout"], "kept\n")
        for name in self.names("snapshots"):
            again = self.d.ask("POST", f"/v1/snapshots/{name}/restore", {"name": "again"})
            self.assertEqual(again.status, 201, again)
            self.assertEqual(self.d.sh(again.json["id"], "cat x")["stdout"], "kept\n")
            self.assertEqual(self.d.ask("DELETE", f"/v1/sandboxes/{again.json['id']}").status, 204)
        for name in self.names("volumes"):
            box = self.d.create(volumes=[{"name": name, "target": "/v"}])["id"]
            self.assertEqual(self.d.sh(box, "echo x > /v/x")["outcome"]["exit_code"], 0)
            self.assertEqual(self.d.ask("DELETE", f"/v1/sandboxes/{box}").status, 204)
        if "new" in self.names("templates"):
            self.assertEqual(self.d.sh(self.d.create(template="new")["id"], "cat x")["stdout"], "kept\n")
        for box in self.boxes():
            if box not in (self.box, self.memory):
                self.assertEqual(self.d.ask("DELETE", f"/v1/sandboxes/{box}").status, 204)
        for path in ("snapshots/new", "volumes/new", "templates/new"):
            self.assertIn(self.d.ask("DELETE", f"/v1/{path}").status, (204, 404))

    def end(self):
        """Nothing is left when all that is known is removed."""
        for path in (f"sandboxes/{self.box}", f"sandboxes/{self.memory}", "snapshots/kept"):
            self.assertEqual(self.d.ask("DELETE", f"/v1/{path}").status, 204)
        place = os.path.join(self.d.dir, "state", "disks")
        wait_until("every disk is gone", lambda: not [name for name in os.listdir(place) if name == "pool.xfs" or
                                                      name.startswith(("vol-", "snap-", "box-", "tmp-"))])

    def test_killed_while_it_waits_for_the_spawner(self):
        children = self.d.children()
        for what in ORDERS:
            with self.subTest(what=what):
                brigd = self.d.children()["brigd"]
                os.kill(children["brig-spawner"], signal.SIGSTOP)
                try:
                    order = self.begin(what)
                    self.assertEqual(self.d.ask("GET", "/v1/version").status, 200)
                    os.kill(brigd, signal.SIGKILL)
                    with self.assertRaises(ConnectionResetError):  # an answer would need the spawner
                        order.getresponse()
                finally:
                    os.kill(children["brig-spawner"], signal.SIGCONT)
                wait_until("another one serves",
                           lambda brigd=brigd: self.is_up() and self.d.children().get("brigd", brigd) != brigd)
                self.check()
        self.end()

    def test_two_at_once_of_the_same_thing(self):
        for what in ORDERS:
            with self.subTest(what=what), concurrent.futures.ThreadPoolExecutor() as pool:
                statuses = sorted(pool.map(self.order, [what] * 2))
                self.assertEqual(statuses, [201, 201] if what.startswith("fork") else [201, 409])
            self.check()
        self.end()


if __name__ == "__main__":
    unittest.main()
