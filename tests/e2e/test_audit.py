# SPDX-License-Identifier: Apache-2.0
"""`brig audit`: a log is written as brigd writes it, then changed by somebody who has the files but not the key.

Hashes and signatures are recomputed here without our code.
"""

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import unittest

from helpers import BRIG, PATIENCE, BrigTest, brig, environment, read_line, wait_until

PREFIX = os.environ.get("BRIG_INSTALL_DIR", "")
BUILD = os.environ.get("BRIG_BUILD_DIR", "build")
HOST = next((p for p in (f"{PREFIX}/tests/e2e/audit_host", f"{BUILD}/tests/e2e/audit_host") if os.path.exists(p)),
            "audit_host")


NO_STORE = ("there is no store that has noted its head: an end that was cut off together with its heads would "
            "not be seen")


class Audit(BrigTest):
    def setUp(self):
        super().setUp()
        os.makedirs(self.path("state", "audit"))
        os.makedirs(self.path("state", "keys"))
        self.log = self.path("state", "audit")
        self.pub = self.path("state", "keys", "audit.pem.pub")

    def host(self, count, *more):
        done = subprocess.run([HOST, self.log, self.path("state", "keys"), str(count), *map(str, more)],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=PATIENCE, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        return done.stdout.decode().split()

    def audit(self, *args, env=None):
        return brig("audit", *args, env=environment(BRIG_STATE_DIR=self.path("state")) if env is None else env)

    def verify(self, *args):
        done = self.audit("verify", "-o", "json", *args)
        self.assertEqual(done.stderr, b"")
        said = json.loads(done.stdout)
        self.assertEqual(done.returncode, 0 if said["ok"] else 1)
        return said

    def lines(self, name="audit.jsonl"):
        with open(os.path.join(self.log, name), "rb") as log:
            return log.read().splitlines()

    def put(self, lines, name="audit.jsonl"):
        with open(os.path.join(self.log, name), "wb") as log:
            log.write(b"".join(line + b"\n" for line in lines))

    def test_the_chain_by_other_means(self):
        heads = self.host(50)
        before = "0" * 64
        lines = self.lines()
        self.assertEqual(len(lines), 50)
        for number, line in enumerate(lines, 1):
            event = json.loads(line)
            self.assertEqual(list(event), ["seq", "time", "actor", "org", "action", "object", "outcome", "detail",
                                           "request_id", "prev"])
            self.assertEqual((event["seq"], event["prev"]), (number, before))
            self.assertRegex(event["time"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z$")
            before = hashlib.sha256(line).hexdigest()
        self.assertEqual(heads[-1], f"50:{before}")
        said = self.verify()
        self.assertEqual((said["ok"], said["lines"], said["last_hash"], said["note"]), (True, 50, before, NO_STORE))

    @unittest.skipUnless(shutil.which("openssl"), "no openssl to compare with")
    def test_the_signature_by_other_means(self):
        self.host(5)
        for head in map(json.loads, self.lines("heads.jsonl")):
            self.write("signed", f"brig-audit-head-v1\n{head['seq']}\n{head['hash']}\n{head['time']}\n")
            self.write("signature", bytes.fromhex(head["signature"]))
            done = subprocess.run(["openssl", "pkeyutl", "-verify", "-rawin", "-pubin", "-inkey", self.pub, "-in",
                                   self.path("signed"), "-sigfile", self.path("signature")],
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=PATIENCE, check=False)
            self.assertEqual(done.returncode, 0, done.stdout)

    def test_verify_says_it_in_words(self):
        self.host(25, 4096, 100000)
        done = self.audit("verify")
        self.assertEqual(done.returncode, 0)
        self.assertRegex(done.stdout.decode(),
                         r"^ok: lines 1 to 25 in \d+ files, \d+ heads; head 25:[0-9a-f]{64}\nnote: " + NO_STORE
                         + r"\n$")
        done = self.audit("verify", "--dir", self.log)
        self.assertIn(b"note: signatures were not checked: no public key was given", done.stdout)
        done = self.audit("verify", "--dir", self.log, "--key", self.pub)
        self.assertEqual((done.returncode, b"note" in done.stdout), (0, False))

    def test_what_is_found(self):
        heads = self.host(30)
        lines, signed = self.lines(), self.lines("heads.jsonl")
        # not signed itself, so it is the chain that tells
        at = max(set(range(1, 29)) - {json.loads(head)["seq"] for head in signed})
        other = lines[at - 1].replace(b'"outcome":"ok"', b'"outcome":"no"')
        cases = [
            (lines[:4] + lines[5:], "audit.jsonl:5: line 6 follows line 4: line 5 is missing or out of order"),
            (lines[:4] + lines[9:], "audit.jsonl:5: line 10 follows line 4: lines 5 to 9 are missing or out of order"),
            (lines[:4] + [lines[5], lines[4]] + lines[6:],
             "audit.jsonl:5: line 6 follows line 4: line 5 is missing or out of order"),
            (lines[:5] + lines[4:], "audit.jsonl:6: line 5 is there twice"),
            (lines[:at - 1] + [other] + lines[at:],
             f"audit.jsonl:{at + 1}: line {at + 1} notes another hash of line {at}: one of the two was changed"),
            (lines[:9] + [lines[9][:-1]] + lines[10:], "audit.jsonl:10: is no audit line"),
            (lines[:9] + [b""] + lines[10:], "audit.jsonl:10: is no audit line"),
            (lines[:29], "the log ends with line 29, but a head names line 30: its end was cut off"),
            (lines[1:], "the log begins with line 2, and no line says that those before it were removed"),
            ([], f"the log is empty, but a head names line {json.loads(signed[0])['seq']}: all of it was removed"),
        ]
        for changed, problem in cases:
            self.put(changed)
            said = self.verify()
            self.assertEqual((said["ok"], said["problem"]), (False, problem))
        self.put(lines)
        self.put(signed[:-1] + [signed[-1].replace(b'"time":"2', b'"time":"3')], "heads.jsonl")
        self.assertEqual(self.verify()["problem"], f"heads.jsonl:{len(signed)}: the signature is wrong")
        os.unlink(os.path.join(self.log, "heads.jsonl"))
        self.assertEqual(self.verify()["problem"], "heads.jsonl is missing: nothing in this log is signed")
        self.put(signed, "heads.jsonl")
        self.assertTrue(self.verify()["ok"])
        # a tail that went with its heads is seen only from outside
        self.put(lines[:20])
        self.put([h for h in signed if json.loads(h)["seq"] <= 20], "heads.jsonl")
        self.assertTrue(self.verify()["ok"])
        self.assertEqual(self.verify("--head", heads[-1])["problem"],
                         "the log ends with line 20, but line 30 was noted as its head: its end was cut off")
        self.put(lines)
        self.put(signed, "heads.jsonl")
        self.assertTrue(self.verify("--head", heads[-1])["ok"])
        self.assertEqual(self.verify("--head", "30:" + "0" * 64)["problem"],
                         "line 30 is not the one of the head that was noted")

    def test_another_key(self):
        self.host(5)
        other = self.path("other")
        os.makedirs(other)
        shutil.copytree(self.log, self.path("copy"))
        done = subprocess.run([HOST, self.path("copy"), other, "5"], stdout=subprocess.PIPE, timeout=PATIENCE,
                              check=False)
        self.assertEqual(done.returncode, 0)
        said = self.verify("--dir", self.path("copy"), "--key", self.pub)
        self.assertRegex(said["problem"],
                         r"^heads\.jsonl:\d+: was signed by another key \([0-9a-f]{16}, not [0-9a-f]{16}\)$")

    def size(self):
        return sum(e.stat().st_size for e in os.scandir(self.log))

    def test_killed_in_the_middle(self):
        """kill -9 while it writes: what is there is whole, and the next one goes on."""
        for _ in range(5):
            with subprocess.Popen([HOST, self.log, self.path("state", "keys"), "200", "8192", "1000000", "stay"],
                                  stdout=subprocess.PIPE) as host:
                host.stdout.readline()
                written = self.size()
                wait_until("it goes on writing", lambda: self.size() != written)
                host.send_signal(signal.SIGKILL)
            self.assertTrue(self.verify()["ok"])
        last = self.verify()["last_seq"]
        self.host(3)
        said = self.verify()
        self.assertEqual((said["ok"], said["last_seq"] >= last + 3), (True, True))

    def test_retention(self):
        self.host(400, 8192, 20000)
        self.host(100, 8192, 20000)
        said = self.verify()
        self.assertTrue(said["ok"], said["problem"])
        self.assertGreater(said["first_seq"], 1)
        self.assertIn("were removed by retention", said["note"])
        names = sorted(n for n in os.listdir(self.log) if n.startswith("audit-"))
        os.unlink(os.path.join(self.log, names[0]))
        self.assertFalse(self.verify()["ok"])

    def test_show(self):
        self.host(50)
        everything = self.audit("show", "-o", "json").stdout.splitlines()
        self.assertEqual(everything, self.lines())
        denied = [json.loads(line)
                  for line in self.audit("show", "--action", "denied", "-o", "json").stdout.splitlines()]
        self.assertEqual({e["action"] for e in denied}, {"denied"})
        self.assertEqual(len(denied), 10)
        self.assertEqual(len(self.audit("show", "--action", "key.").stdout.splitlines()), 10)
        some = [json.loads(line)
                for line in self.audit("show", "--org", "org-1", "-n", "3", "-o", "json").stdout.splitlines()]
        self.assertEqual([e["seq"] for e in some], [43, 46, 49])
        self.assertEqual(len(self.audit("show", "--since", "1h").stdout.splitlines()), 50)
        self.assertEqual(len(self.audit("show", "--since", "2024-02-29").stdout.splitlines()), 50)
        self.assertEqual(self.audit("show", "--since", "9999-01-01T00:00:00Z").stdout, b"")
        text = self.audit("show", "-n", "1").stdout
        self.assertRegex(text, rb"^50  \d{4}-\S+Z  key-1  org-2  sandbox\.create  object-50  ok  \?\[31mred\?\n$")

    def test_tail_follows(self):
        self.host(15)
        self.assertEqual(len(self.audit("tail").stdout.splitlines()), 10)
        tail = subprocess.Popen([BRIG, "audit", "tail", "-f", "-n", "2", "-o", "json"], stdout=subprocess.PIPE,
                                bufsize=0, env=environment(BRIG_STATE_DIR=self.path("state")))
        self.addCleanup(tail.stdout.close)
        self.addCleanup(tail.wait)
        self.addCleanup(tail.kill)
        seen = [json.loads(read_line(tail.stdout))["seq"] for _ in range(2)]
        self.host(40, 4096, 1000000)  # over several rotations
        seen += [json.loads(read_line(tail.stdout))["seq"] for _ in range(40)]
        self.assertEqual(seen, list(range(14, 56)))

    def test_export(self):
        self.host(60, 8192, 1000000)
        every = [line for name in sorted(n for n in os.listdir(self.log) if n.startswith("audit-")) + ["audit.jsonl"]
                 for line in self.lines(name)]
        self.assertEqual(self.audit("export").stdout.splitlines(), every)
        self.assertEqual(self.audit("export", "--from", "10", "--to", "20").stdout.splitlines(), every[9:20])
        self.assertEqual(self.audit("export", "--to", "2000-01-01").stdout, b"")
        day = json.loads(every[0])["time"][:10]
        self.assertEqual(self.audit("export", "--from", day, "--to",
                                    json.loads(every[-1])["time"][:10]).stdout.splitlines(),
                         every)

    def test_usage(self):
        for args, words in (((), "is missing"), (("frob",), "must be verify"),
                            (("verify", "--from", "1"), "does not take it"), (("show", "-n", "0"), "whole number"),
                            (("show", "--since", "soon"), "must be a date"),
                            (("verify", "--head", "5"), "must be SEQ:HASH"),
                            (("verify", "--key", "/nowhere"), "No such file"),
                            (("verify", "--dir", "/nowhere"), "No such file"), (("verify", "x"), "takes no arguments"),
                            (("show", "--frob"), "no such flag"), (("show", "-n"), "needs a value"),
                            (("tail", "-o", "xml"), "must be text or json"),
                            (("export", "--from", "x"), "must be a line's number"),
                            (("verify", "--dir", self.log), "there is no audit log")):
            done = self.audit(*args)
            self.assertEqual((done.returncode, done.stdout), (2, b""), args)
            self.assertRegex(done.stderr.decode(), r"^brig: audit: .*" + re.escape(words))
        done = self.audit("--help")
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        self.assertIn(b"usage: brig audit verify", done.stdout)
        self.assertEqual(self.audit("tail", "--help").stdout, done.stdout)


if __name__ == "__main__":
    unittest.main()
