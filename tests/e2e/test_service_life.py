# SPDX-License-Identifier: Apache-2.0
"""The life of the service: restarts of brigd, death of the spawner, drain, reload, upgrade, leftovers, and who the
processes are."""

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import threading
import time
import unittest

from helpers import BRIG, PATIENCE, own_cgroups, wait_until
from service import Daemon


class Life(unittest.TestCase):
    LIMIT_SECONDS = 120
    CONFIG = ""

    def setUp(self):
        self.cgroups = own_cgroups()
        self.d = Daemon(self.CONFIG)
        self.addCleanup(self.d.close)

    def restart_brigd(self, sig=signal.SIGKILL):
        pid = self.d.children()["brigd"]
        os.kill(pid, sig)
        wait_until("another brigd", lambda: self.d.children().get("brigd", pid) != pid)
        self.d.wait_ready()

    def start(self, sid, *argv, **members):
        answer = self.d.ask("POST", f"/v1/sandboxes/{sid}/processes", {"argv": list(argv), **members})
        self.assertEqual(answer.status, 201, answer)
        return f"/v1/sandboxes/{sid}/processes/{answer.json['number']}"

    def test_names_and_ids(self):
        children = self.d.children()
        self.assertEqual(set(children), {"brigd", "brig-spawner", "brig-egress"})
        users = set()
        for name in ("brigd", "brig-egress"):
            with open(f"/proc/{children[name]}/status", encoding="utf-8") as f:
                status = dict(line.rstrip("\n").split(":\t", 1) for line in f if ":\t" in line)
            self.assertEqual((status["NoNewPrivs"], status["Seccomp"], status["CapEff"]),
                             ("1", "2", "0000000000000000"), name)
            users |= set(status["Uid"].split())
        if os.geteuid() == 0:
            self.assertNotIn("0", users)
            self.assertEqual(len(users), 2)  # neither can signal or trace the other
        self.assertEqual(os.stat(self.d.socket).st_mode & 0o777 in (0o600, 0o660), True)

    def test_the_table_of_descriptors_is_grown_before_it_is_shared(self):
        """Growing it beside a child that shares it makes the kernel wait ten milliseconds, in the middle of a run."""
        def places():
            with open(f"/proc/{self.d.children()['brig-spawner']}/status", encoding="utf-8") as f:
                return next(int(line.split()[1]) for line in f if line.startswith("FDSize:"))

        before = places()
        sid = self.d.create()["id"]
        self.assertEqual(self.d.ask("POST", f"/v1/sandboxes/{sid}/run",
                                    {"argv": ["true"]}).json["outcome"]["exit_code"],
                         0)
        self.assertEqual(places(), before)

    def test_sandboxes_outlive_brigd(self):
        sid = self.d.create(metadata={"a": "b"}, env={"E": "1"})["id"]
        self.d.ask("PUT", f"/v1/sandboxes/{sid}/files?path=kept", b"data")
        p = self.start(sid, "sh", "-c", "i=0; while [ $i -lt 40 ]; do i=$((i+1)); echo line $i; sleep 0.05; done")
        self.restart_brigd()
        listed = self.d.ask("GET", f"/v1/sandboxes/{sid}").json
        self.assertEqual((listed["state"], listed["metadata"]), ("running", {"a": "b"}))
        self.assertEqual(self.d.ask("GET", f"/v1/sandboxes/{sid}/files?path=kept").body, b"data")
        receipt = self.d.ask("GET", f"{p}/wait").json
        self.assertEqual(receipt["outcome"]["exit_code"], 0)
        text = self.d.ask("GET", f"{p}/output?stream=stdout").body.decode()
        self.assertEqual(text, "".join(f"line {i}\n" for i in range(1, 41)))
        self.assertEqual(self.d.sh(sid, "echo $E")["stdout"], "1\n")

    def test_fifty_streams_and_a_kill(self):
        sids = [self.d.create()["id"] for _ in range(10)]
        paths = [self.start(sid, "sh", "-c", "i=0; while [ $i -lt 60 ]; do i=$((i+1)); echo $i; sleep 0.03; done")
                 for sid in sids for _ in range(5)]
        got = [b""] * len(paths)

        def read(i):
            while True:
                try:
                    c = self.d.connection()
                    c.request("GET", f"{paths[i]}/output?stream=stdout&stdout={len(got[i])}")
                    r = c.getresponse()
                    if r.status != 200:
                        raise http.client.HTTPException(r.status)
                    while True:
                        piece = r.read1(65536)
                        if not piece:
                            break
                        got[i] += piece
                    if r.isclosed() and got[i].endswith(b"60\n"):
                        return
                except (OSError, http.client.HTTPException):
                    time.sleep(0.05)

        threads = [threading.Thread(target=read, args=(i,), daemon=True) for i in range(len(paths))]
        for t in threads:
            t.start()
        wait_until("all are in the middle", lambda: all(g.count(b"\n") > 5 for g in got))
        self.restart_brigd()
        for t in threads:
            t.join(PATIENCE)
        want = b"".join(b"%d\n" % i for i in range(1, 61))
        self.assertEqual([g == want for g in got], [True] * len(paths))

    def test_a_run_that_lost_its_brigd_is_closed(self):
        sid = self.d.create()["id"]
        c = self.d.connection()
        c.request("POST", f"/v1/sandboxes/{sid}/run", json.dumps({"argv": ["sleep", "1000"]}))
        wait_until("it is written down", lambda: self.d.ask("GET", "/v1/runs?limit=10").json["runs"] != [])
        self.restart_brigd()
        c.close()
        run = self.d.ask("GET", "/v1/runs?limit=10").json["runs"][0]
        if "cause" in run.get("outcome", {}):
            self.assertEqual(run["outcome"]["cause"], "host-error")
        else:  # it runs on, and can be found
            self.assertEqual(len(self.d.ask("GET", f"/v1/sandboxes/{sid}/processes").json["processes"]), 1)

    def test_the_spawner_takes_all_with_it(self):
        sid = self.d.create()["id"]
        old = self.d.children()
        os.kill(old["brig-spawner"], signal.SIGKILL)
        wait_until("a new pair",
                   lambda: self.d.children().get("brig-spawner", old["brig-spawner"]) != old["brig-spawner"] and
                   self.d.children().get("brigd", old["brigd"]) != old["brigd"])
        self.d.wait_ready()
        self.assertEqual(self.d.ask("GET", f"/v1/sandboxes/{sid}").status, 404)
        self.assertEqual(self.d.ask("GET", f"/v1/certificates/{sid}").json["cause"], "sandbox-gone")
        self.assertEqual(self.d.run(self.d.create()["id"], "echo", "again")["stdout"], "again\n")

    def test_sigterm_ends_everything(self):
        sid = self.d.create()["id"]
        self.start(sid, "sleep", "1000")
        pids = self.d.children()
        self.d.stop()
        self.assertEqual(self.d.process.returncode, 0, self.d.text())
        for pid in pids.values():
            self.assertFalse(os.path.exists(f"/proc/{pid}"))
        self.assertFalse(os.path.exists(self.d.socket))
        wait_until("no cgroup is left", lambda: not [c for c in own_cgroups() - self.cgroups if sid in c])
        self.d.start()
        self.assertEqual(self.d.ask("GET", f"/v1/certificates/{sid}").json["cause"], "shutdown")

    def test_drain_finishes_answers(self):
        sid = self.d.create()["id"]
        answers = []
        t = threading.Thread(target=lambda: answers.append(self.d.sh(sid, "sleep 0.5; echo finished")))
        t.start()
        wait_until("it has begun", lambda: self.d.ask("GET", f"/v1/sandboxes/{sid}").json["processes"] == 1)
        self.d.process.send_signal(signal.SIGTERM)
        t.join(PATIENCE)
        self.assertEqual(answers[0]["stdout"], "finished\n")
        self.d.process.wait(PATIENCE)

    def test_draining_does_not_make_it_younger(self):
        def age(text):
            return int(re.search(r"^brig_uptime_seconds (\d+)$", text, re.M).group(1))

        def begun(head):
            s = socket.socket(socket.AF_UNIX)
            self.addCleanup(s.close)
            s.settimeout(PATIENCE)
            s.connect(self.d.socket)
            s.sendall(head)
            return s

        wait_until("some age", lambda: age(self.d.ask("GET", "/metrics").body.decode()) >= 2)
        held = begun(b"POST /v1/sandboxes HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                     b"Content-Length: 9\r\n\r\n{")
        asking = begun(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n")
        self.assertEqual(self.d.ask("GET", "/readyz").status, 200)  # it has read both: they came first
        self.d.process.send_signal(signal.SIGTERM)
        wait_until("it drains", lambda: "finishing" in self.d.text())
        asking.sendall(b"\r\n")
        with asking.makefile("rb") as answer:
            self.assertGreaterEqual(age(answer.read().decode()), 2)
        held.close()
        self.d.process.wait(PATIENCE)

    def test_kill_of_the_supervisor_leaves_nothing(self):
        sid = self.d.create()["id"]
        pids = self.d.children()
        self.d.process.kill()
        self.d.process.wait()
        wait_until("all are gone", lambda: not any(os.path.exists(f"/proc/{p}") for p in pids.values()))
        wait_until("no cgroup is left", lambda: not [c for c in own_cgroups() if sid in c])
        self.d.start()
        self.assertEqual(self.d.ask("GET", f"/v1/sandboxes/{sid}").status, 404)

    def test_upgrade(self):
        sid = self.d.create()["id"]
        p = self.start(sid, "sleep", "1000")
        pid = self.d.children()["brigd"]
        self.d.process.send_signal(signal.SIGUSR2)
        wait_until("another brigd", lambda: self.d.children().get("brigd", pid) != pid)
        self.d.wait_ready()
        self.assertTrue(self.d.ask("GET", p).json["running"])

    def test_paused_stays_paused(self):
        sid = self.d.create()["id"]
        self.d.ask("POST", f"/v1/sandboxes/{sid}/pause")
        self.restart_brigd()
        self.assertEqual(self.d.ask("GET", f"/v1/sandboxes/{sid}").json["state"], "paused")
        self.assertEqual(self.d.ask("POST", f"/v1/sandboxes/{sid}/resume").json["state"], "running")
        self.assertEqual(self.d.run(sid, "echo", "x")["stdout"], "x\n")

    def test_reload(self):
        with open(self.d.config, "w", encoding="utf-8") as f:
            f.write("[manager]\nmax_sandboxes = 1\n")
        self.assertTrue(self.d.ask("POST", "/v1/config/reload").json["reloaded"])
        self.d.create()
        self.assertEqual(self.d.ask("POST", "/v1/sandboxes", {}).status, 429)
        with open(self.d.config, "w", encoding="utf-8") as f:
            f.write("[manager]\nmax_sandboxs = 9\n")
        answer = self.d.ask("POST", "/v1/config/reload")
        self.assertEqual(answer.status, 400)
        self.assertIn("max_sandboxs", answer.json["error"]["message"])
        self.assertEqual(self.d.ask("POST", "/v1/sandboxes", {}).status, 429)
        with open(self.d.config, "w", encoding="utf-8") as f:
            f.write("[manager]\nmax_sandboxes = 5\n")
        self.d.process.send_signal(signal.SIGHUP)
        wait_until("the new limit", lambda: self.d.ask("POST", "/v1/sandboxes", {}).status == 201)

    def test_second_daemon_is_refused(self):
        done = subprocess.run([BRIG, "serve"], env=self.d.env, stdin=subprocess.DEVNULL, capture_output=True,
                              timeout=PATIENCE, check=False)
        self.assertEqual(done.returncode, 125)
        self.assertIn(b"another daemon answers there", done.stderr)

    def test_listening_elsewhere_needs_tls(self):
        done = subprocess.run([BRIG, "serve", "--listen", "0.0.0.0:1"],
                              env={**self.d.env, "BRIG_SOCKET": self.d.socket + "2", "BRIG_LISTEN": ""},
                              stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE, check=False)
        self.assertEqual(done.returncode, 125)
        self.assertIn(b"0.0.0.0", done.stderr)

    def test_recreate(self):
        made = self.d.create(on_death="recreate")
        spawned = [p for p in os.listdir("/proc") if p.isdigit() and self.is_init_of(p, made["id"])]
        self.assertEqual(len(spawned), 1)
        os.kill(int(spawned[0]), signal.SIGKILL)
        wait_until("it is there again",
                   lambda: self.d.ask("GET", f"/v1/sandboxes/{made['id']}").json.get("boot_id", made["boot_id"])
                   != made["boot_id"])
        self.assertEqual(self.d.run(made["id"], "echo", "again")["stdout"], "again\n")

    @staticmethod
    def is_init_of(pid, sid):
        try:
            with open(f"/proc/{pid}/comm", encoding="utf-8") as f:
                if f.read().strip() != "brig-init":
                    return False
            with open(f"/proc/{pid}/cgroup", encoding="utf-8") as f:
                return sid in f.read() and open(f"/proc/{pid}/status", encoding="utf-8").read().split("NSpid:")[
                    1].split("\n")[0].split()[-1] == "1"
        except (OSError, IndexError):
            return False
