# SPDX-License-Identifier: Apache-2.0
"""`brig audit verify` on a machine with a service: the store has noted the head of the log, so that a log which was cut
together with its heads, emptied or rewritten is not what was written, before a start and after one."""

import hashlib
import json
import os
import shutil
import unittest

from helpers import brig
from service import Daemon


class Cut(unittest.TestCase):
    LIMIT_SECONDS = 120

    @classmethod
    def setUpClass(cls):
        cls.d = Daemon("", env={"BRIG_DATABASE_URL": ""})
        for i in range(20):
            cls.d.key(name=f"k{i}")
        cls.d.stop()
        cls.log = os.path.join(cls.d.dir, "state", "audit")
        shutil.copytree(cls.log, f"{cls.log}.whole")
        shutil.copytree(os.path.join(cls.d.dir, "state", "service"), f"{cls.log}.service")

    @classmethod
    def tearDownClass(cls):
        cls.d.close()

    def setUp(self):
        service = os.path.join(self.d.dir, "state", "service")
        for copy, place in ((f"{self.log}.whole", self.log), (f"{self.log}.service", service)):
            owner = os.stat(place)
            shutil.rmtree(place)
            shutil.copytree(copy, place)
            os.chown(place, owner.st_uid, owner.st_gid)
            for name in os.listdir(place):
                os.chown(os.path.join(place, name), owner.st_uid, owner.st_gid)
        self.lines = self.read("audit.jsonl")
        self.last = json.loads(self.lines[-1])["seq"]

    def read(self, name):
        with open(os.path.join(self.log, name), "rb") as f:
            return f.read().splitlines()

    def put(self, name, lines):
        with open(os.path.join(self.log, name), "wb") as f:
            f.write(b"".join(line + b"\n" for line in lines))
        owner = os.stat(self.log)
        os.chown(f.name, owner.st_uid, owner.st_gid)

    def verify(self, *args):
        done = brig("audit", "verify", "-o", "json", *args, env=self.d.env)
        self.assertEqual(done.stderr, b"")
        said = json.loads(done.stdout)
        self.assertEqual(done.returncode, 0 if said["ok"] else 1)
        return said

    def restart(self):
        self.d.start()
        self.d.stop()

    def cuts(self):
        return [e for e in map(json.loads, self.read("audit.jsonl")) if e["action"] == "audit.cut"]

    def test_whole(self):
        said = self.verify()
        self.assertEqual((said["ok"], said["note"]), (True, ""))
        self.restart()
        self.assertEqual((self.verify()["ok"], self.cuts()), (True, []))

    def test_verify_leaves_the_store_to_its_owner(self):
        names = set(os.listdir(os.path.join(self.d.dir, "state", "service")))
        self.verify()
        self.assertEqual(set(os.listdir(os.path.join(self.d.dir, "state", "service"))), names)
        self.restart()

    def cut_with_its_heads(self):
        self.put("audit.jsonl", self.lines[:10])
        self.put("heads.jsonl", [h for h in self.read("heads.jsonl") if json.loads(h)["seq"] <= 10])

    def test_cut_together_with_its_heads(self):
        self.cut_with_its_heads()
        self.assertEqual(self.verify()["problem"],
                         f"the log ends with line 10, but line {self.last} was noted as its head: its end was cut off")
        self.restart()
        self.assertEqual([(e["seq"], e["detail"]) for e in self.cuts()],
                         [(11, f"the log ends with line 10, but line {self.last} was there")])
        self.assertEqual(self.verify()["problem"],
                         "line 11 tells that the log was cut before it (brig audit show --action audit.cut)")
        self.assertTrue(self.verify("--known-cut", "11")["ok"])
        self.assertFalse(self.verify("--known-cut", "10")["ok"])

    def test_emptied(self):
        for name in os.listdir(self.log):
            os.unlink(os.path.join(self.log, name))
        self.assertEqual(self.verify()["problem"],
                         f"the log is empty, but line {self.last} was noted as its head: all of it was removed")
        self.put("audit.jsonl", [])
        self.assertEqual(self.verify()["problem"],
                         f"the log is empty, but line {self.last} was noted as its head: all of it was removed")
        self.restart()
        self.assertEqual([(e["seq"], e["detail"]) for e in self.cuts()],
                         [(1, f"the log ends with line 0, but line {self.last} was there")])
        self.assertEqual(self.verify()["problem"],
                         "line 1 tells that the log was cut before it (brig audit show --action audit.cut)")

    def test_rewritten_from_its_beginning(self):
        """A chain needs no key: only the heads do, and those were removed."""
        before, lines = "0" * 64, []
        for line in self.lines:
            event = {**json.loads(line), "actor": "nobody", "prev": before}
            lines.append(json.dumps(event, separators=(",", ":")).encode())
            before = hashlib.sha256(lines[-1]).hexdigest()
        self.put("audit.jsonl", lines)
        self.put("heads.jsonl", [])
        self.assertEqual(self.verify()["problem"], f"line {self.last} is not the one of the head that was noted")
        self.restart()
        self.assertEqual([(e["seq"], e["detail"]) for e in self.cuts()],
                         [(self.last + 1, f"line {self.last} is not the one that was there")])
        self.assertEqual(self.verify()["problem"], f"line {self.last + 1} tells that the log was cut before it (brig "
                         "audit show --action audit.cut)")

    def test_without_its_store(self):
        shutil.rmtree(os.path.join(self.d.dir, "state", "service"))
        os.mkdir(os.path.join(self.d.dir, "state", "service"))
        said = self.verify()
        self.assertEqual((said["ok"], said["note"]), (True, "there is no store that has noted its head: an end that "
                                                      "was cut off together with its heads would not be seen"))


if __name__ == "__main__":
    unittest.main()
