# SPDX-License-Identifier: Apache-2.0
"""Programs in a sandbox: run, start, stream, feed, signal, wait; terminals; shells; what is left when they have
ended."""

import base64
import json
import os
import struct
import threading
import unittest

from helpers import wait_until
from service import ServiceTest


class Runs(ServiceTest):
    def test_output_and_status(self):
        sid = self.sandbox()
        r = self.d.sh(sid, "echo out; echo err >&2; exit 3")
        self.assertEqual((r["stdout"], r["stderr"], r["outcome"]["cause"], r["outcome"]["exit_code"]),
                         ("out\n", "err\n", "exited", 3))
        self.assertEqual((r["via"], r["sandbox_id"]), ("daemon", sid))
        kept = self.d.ask("GET", f"/v1/runs/{r['id']}")
        wait_until("the receipt is in the store",
                   lambda: self.d.ask("GET", f"/v1/runs/{r['id']}").json.get("outcome", {}).get("cause") == "exited")

    def test_working_directory_and_environment(self):
        sid = self.sandbox(env={"A": "box", "B": "box"})
        self.assertEqual(self.d.run(sid, "pwd")["stdout"], "/workspace\n")
        self.assertEqual(self.d.sh(sid, "echo $A $B $HOME", env={"B": "run"})["stdout"], "box run /home/user\n")
        self.assertEqual(self.d.run(sid, "pwd", cwd="/tmp")["stdout"], "/tmp\n")

    def test_command_string(self):
        sid = self.sandbox()
        answer = self.d.ask("POST", f"/v1/sandboxes/{sid}/run", {"command": "echo $((1+2)) | tr 3 x"})
        self.assertEqual(answer.json["stdout"], "x\n")

    def test_stdin(self):
        sid = self.sandbox()
        self.assertEqual(self.d.run(sid, "cat", stdin="hello")["stdout"], "hello")
        self.assertEqual(self.d.run(sid, "cat", stdin=base64.b64encode(b"\xff\0").decode(),
                                    stdin_encoding="base64")["stdout_encoding"],
                         "base64")
        self.assertEqual(self.d.run(sid, "cat")["stdout"], "")
        big = "x" * 3000000
        self.assertEqual(self.d.run(sid, "wc", "-c", stdin=big)["stdout"].strip(), "3000000")
        self.assertEqual(self.d.run(sid, "true", stdin=big)["outcome"]["exit_code"], 0)

    def test_timeout_keeps_partial_output(self):
        sid = self.sandbox()
        r = self.d.sh(sid, "echo first; sleep 100", timeout=0.3)
        self.assertEqual((r["outcome"]["cause"], r["stdout"]), ("timeout", "first\n"))
        self.assertEqual(self.d.run(sid, "true")["outcome"]["cause"], "exited")

    def test_timeout_kills_the_tree_and_nothing_else(self):
        sid = self.sandbox()
        other = self.d.ask("POST", f"/v1/sandboxes/{sid}/processes", {"argv": ["sleep", "1000"]}).json["number"]
        r = self.d.sh(sid, "setsid sh -c 'while :; do date >> /tmp/beat; sleep 0.05; done' & sleep 100", timeout=0.5)
        self.assertEqual(r["outcome"]["cause"], "timeout")
        self.assertEqual(self.d.sh(sid, "grep -la 'tmp/[b]eat' /proc/[0-9]*/cmdline; true")["stdout"], "")
        self.assertTrue(self.d.ask("GET", f"/v1/sandboxes/{sid}/processes/{other}").json["running"])

    def test_daemon_holding_stdout(self):
        sid = self.sandbox()
        r = self.d.sh(sid, "(setsid sleep 1000 &) ; echo done")
        self.assertEqual((r["stdout"], r["outcome"]["exit_code"]), ("done\n", 0))

    def test_signals(self):
        sid = self.sandbox()
        r = self.d.sh(sid, "kill -SEGV $$")
        self.assertEqual((r["outcome"]["cause"], r["outcome"]["signal"]), ("signalled", 11))
        self.assertEqual(self.d.sh(sid, "echo Killed; exit 137")["outcome"]["cause"], "exited")

    def test_oom_is_told_and_the_sandbox_lives(self):
        sid = self.sandbox(limits={"memory": "64m"})
        r = self.d.sh(sid, "python3 -c 'x = bytearray(300 << 20)'" if os.path.exists("/usr/bin/python3")
                      else "head -c 300m /dev/zero | tail")
        self.assertEqual(r["outcome"]["cause"], "oom", r["outcome"])
        self.assertEqual(self.d.run(sid, "echo", "alive")["stdout"], "alive\n")

    def test_output_limit(self):
        sid = self.sandbox()
        r = self.d.sh(sid, "head -c 3000000 /dev/zero | tr '\\0' x", output="1m")
        self.assertEqual((len(r["stdout"]), r["truncated"]["stdout"], r["outcome"]["cause"]), (1 << 20, True, "exited"))
        r = self.d.sh(sid, "yes", output="1m", on_output_limit="kill")
        self.assertEqual(r["outcome"]["cause"], "output-limit")

    def test_not_found(self):
        sid = self.sandbox()
        answer = self.d.ask("POST", f"/v1/sandboxes/{sid}/run", {"argv": ["/no/such"]})
        self.assertEqual((answer.status, answer.json["outcome"]["exit_code"]), (200, 127))

    def test_refusals(self):
        sid = self.sandbox()
        for body in ({}, {"argv": []}, {"argv": ["a\0b"]}, {"argv": "x"}, {"argv": ["x"], "command": "y"},
                     {"argv": ["x"], "timeout": 0}, {"argv": ["x"], "timeout": -1},
                     {"argv": ["x"], "timeout": 1e308}, {"argv": ["x"], "cwd": "a/../b"},
                     {"argv": ["x"], "env": {"A": 1}}, {"argv": ["x"], "nope": 1},
                     {"argv": ["x" * 2000000]}, {"argv": ["x"], "env": {"A": "y" * 2000000}}):
            answer = self.d.ask("POST", f"/v1/sandboxes/{sid}/run", body)
            self.assertEqual(answer.status, 400, str(body)[:60] + str(answer))

    def test_client_leaves(self):
        sid = self.sandbox()
        c = self.d.connection()
        c.request("POST", f"/v1/sandboxes/{sid}/run",
                  json.dumps({"argv": ["sh", "-c", "sleep 0.2; while :; do sleep 0.05; done"]}))
        wait_until("it runs", lambda: self.d.ask("GET", f"/v1/sandboxes/{sid}").json["processes"] > 0)
        c.sock.close()
        wait_until("what nobody waits for is ended",
                   lambda: self.d.ask("GET", f"/v1/sandboxes/{sid}").json["processes"] == 0)


class Background(ServiceTest):
    def start(self, sid, *argv, **members):
        answer = self.d.ask("POST", f"/v1/sandboxes/{sid}/processes", {"argv": list(argv), **members})
        self.assertEqual(answer.status, 201, answer)
        return f"/v1/sandboxes/{sid}/processes/{answer.json['number']}"

    def output(self, path, headers=None):
        text, receipt, last, begin = {"stdout": "", "stderr": ""}, None, None, None
        for event, ident, data in self.d.events(path, headers):
            value = json.loads(data)
            if event in text:
                text[event] += value["data"]
                last = ident
            elif event == "begin":
                begin = value
            elif event == "end":
                receipt = value
        return text, receipt, last, begin

    def test_stream_and_reconnect(self):
        sid = self.sandbox()
        p = self.start(sid, "sh", "-c", "for i in 1 2 3; do echo $i; echo e$i >&2; done")
        text, receipt, last, _ = self.output(f"{p}/output")
        self.assertEqual((text["stdout"], text["stderr"], receipt["outcome"]["exit_code"]),
                         ("1\n2\n3\n", "e1\ne2\ne3\n", 0))
        self.assertEqual(last, "6,9")
        text, _, _, begin = self.output(f"{p}/output?stdout=2&stderr=3")
        self.assertEqual((text["stdout"], text["stderr"], begin["truncated"]), ("2\n3\n", "e2\ne3\n", False))
        text, _, _, _ = self.output(f"{p}/output", {"Last-Event-ID": "4,6"})
        self.assertEqual((text["stdout"], text["stderr"]), ("3\n", "e3\n"))

    def test_ring_says_what_is_lost(self):
        sid = self.sandbox()
        p = self.start(sid, "sh", "-c", "head -c 2000000 /dev/zero | tr '\\0' x; echo END", ring=65536)
        self.d.ask("GET", f"{p}/wait")
        text, _, _, begin = self.output(f"{p}/output")
        self.assertTrue(begin["truncated"])
        self.assertGreater(begin["stdout"], 1000000)
        self.assertTrue(text["stdout"].endswith("END\n"))

    def test_raw_bytes(self):
        sid = self.sandbox()
        p = self.start(sid, "sh", "-c", "head -c 5000000 /dev/urandom | tee /tmp/r", ring="8m")
        body = self.d.ask("GET", f"{p}/output?stream=stdout").body
        self.assertEqual(body, self.d.ask("GET", f"/v1/sandboxes/{sid}/files?path=/tmp/r").body)

    def test_stdin_signal_wait_list(self):
        sid = self.sandbox()
        p = self.start(sid, "cat", stdin_open=True)
        self.assertEqual(self.d.ask("POST", f"{p}/stdin", b"one ").status, 204)
        self.assertEqual(self.d.ask("POST", f"{p}/stdin?eof=1", b"two").status, 204)
        self.assertEqual(self.d.ask("GET", f"{p}/wait").json["outcome"]["exit_code"], 0)
        self.assertEqual(self.output(f"{p}/output")[0]["stdout"], "one two")
        q = self.start(sid, "sleep", "1000")
        self.assertEqual(self.d.ask("GET", f"{q}/wait?timeout=0.1").status, 408)
        self.assertEqual(self.d.ask("POST", f"{q}/signal", {"signal": "TERM"}).status, 204)
        self.assertEqual(self.d.ask("GET", f"{q}/wait").json["outcome"]["signal"], 15)
        listed = self.d.ask("GET", f"/v1/sandboxes/{sid}/processes").json["processes"]
        self.assertEqual([x["running"] for x in listed], [False, False])
        self.assertEqual(self.d.ask("DELETE", q).status, 204)
        self.assertEqual(self.d.ask("GET", f"/v1/sandboxes/{sid}/processes/99").status, 404)

    def test_kill_takes_all(self):
        sid = self.sandbox()
        p = self.start(sid, "sh", "-c", "setsid sleep 1000 & setsid sleep 1000 & wait")
        wait_until("they run", lambda: self.d.ask("GET", f"/v1/sandboxes/{sid}/metrics").json["pids"] >= 4)
        self.assertEqual(self.d.ask("DELETE", p).status, 204)
        self.assertEqual(self.d.ask("GET", f"{p}/wait").json["outcome"]["signal"], 9)
        wait_until("all are gone", lambda: self.d.ask("GET", f"/v1/sandboxes/{sid}/metrics").json["pids"] <= 2)

    def test_what_there_is_now(self):
        sid = self.sandbox()
        p = self.start(sid, "sh", "-c", "echo so far; sleep 1000")
        wait_until("it has written",
                   lambda: self.d.ask("GET", f"{p}/output?stream=stdout&follow=0").body == b"so far\n")

    def test_logs(self):
        sid = self.sandbox()
        self.d.ask("GET", self.start(sid, "echo", "logged") + "/wait")
        self.start(sid, "sh", "-c", "echo running; sleep 1000")

        def logged():
            return [json.loads(x)["data"] for x in self.d.ask("GET", f"/v1/sandboxes/{sid}/logs").body.splitlines()]

        wait_until("both have written", lambda: len(logged()) > 1)
        self.assertEqual(logged(), ["logged\n", "running\n"])

    def test_terminal(self):
        sid = self.sandbox()
        p = self.start(sid, "sh", tty=True, rows=24, cols=80)
        ws = self.d.websocket(f"{p}/attach")
        self.assertEqual(ws.status, 101, ws.head)
        ws.send(json.dumps({"type": "resize", "rows": 50, "cols": 132}))
        ws.send(b"stty size; echo mark-$((40+2))\n")
        seen = b""
        while b"mark-42" not in seen:
            opcode, data = ws.receive()
            if opcode == 2:
                seen += data[9:]
        self.assertIn(b"50 132", seen)
        ws.close()
        again = self.d.websocket(f"{p}/attach")
        seen = b""
        while b"mark-42" not in seen:
            opcode, data = again.receive()
            seen += data[9:] if opcode == 2 else b""
        again.send(b"exit 7\n")
        while True:
            opcode, data = again.receive()
            if opcode == 1 and json.loads(data)["type"] == "end":
                self.assertEqual(json.loads(data)["receipt"]["outcome"]["exit_code"], 7)
                break
        again.close()

    def actors(self, action, box):
        """Who did it, as the log tells it."""
        lines = map(json.loads, self.d.ask("GET", "/v1/audit?limit=10000").body.splitlines())
        return [line["actor"] for line in lines if line["action"] == action and line["object"] == box]

    def test_a_command_is_of_who_runs_it(self):
        """In a shell that another key has opened, too."""
        sid = self.sandbox()
        made = self.d.ask("POST", "/v1/keys", {"name": "other", "role": "user"}).json
        shell = f"/v1/sandboxes/{sid}/shells/{self.d.ask('POST', f'/v1/sandboxes/{sid}/shells', {}).json['number']}"
        self.assertEqual(self.d.ask("POST", f"{shell}/run", {"command": "true"}).status, 200)
        self.assertEqual(self.d.ask("POST", f"{shell}/run", {"command": "true"}, key=made["key"]).status, 200)
        self.assertEqual(self.actors("shell.run", sid), [f"socket:{os.getuid()}", made["id"]])

    def test_a_signal_is_of_who_sent_it(self):
        """Whoever attaches to a process of another key answers for the signals that he sends."""
        sid = self.sandbox()
        p = self.start(sid, "sleep", "1000")
        made = self.d.ask("POST", "/v1/keys", {"name": "other", "role": "user"}).json
        ws = self.d.websocket(f"{p}/attach", headers={"X-API-Key": made["key"]})
        self.assertEqual(ws.status, 101, ws.head)
        ws.send(json.dumps({"type": "signal", "signal": "TERM"}))
        while True:
            opcode, data = ws.receive()
            if opcode == 1 and json.loads(data)["type"] == "end":
                break
        ws.close()
        self.assertEqual(self.actors("process.signal", sid), [made["id"]])

    def test_input_is_of_who_sends_it(self):
        """To feed a shell is to run commands in it."""
        sid = self.sandbox()
        p = self.start(sid, "sh", stdin_open=True)
        made = self.d.ask("POST", "/v1/keys", {"name": "other", "role": "user"}).json
        self.assertEqual(self.d.ask("POST", f"{p}/stdin", b"true\n", key=made["key"]).status, 204)
        self.assertEqual(self.d.ask("POST", f"{p}/stdin?eof=1", b"").status, 204)
        self.assertEqual(self.actors("process.stdin", sid), [made["id"], f"socket:{os.getuid()}"])

    def test_websocket_pipes(self):
        sid = self.sandbox()
        ws = self.d.websocket(self.start(sid, "cat", stdin_open=True) + "/attach")
        ws.send(b"abc")
        ws.send(json.dumps({"type": "eof"}))
        got = b""
        while True:
            opcode, data = ws.receive()
            if opcode == 2:
                self.assertEqual((data[0], struct.unpack("<Q", data[1:9])[0]), (1, len(got)))
                got += data[9:]
            elif opcode == 1 and json.loads(data)["type"] == "end":
                break
        self.assertEqual(got, b"abc")


class OneShot(ServiceTest):
    def test_wait(self):
        r = self.d.ask("POST", "/v1/runs", {"process": {"argv": ["echo", "x"]}}).json
        self.assertEqual((r["stdout"], r["outcome"]["exit_code"]), ("x\n", 0))
        self.assertEqual(self.d.ask("GET", "/v1/sandboxes").json["sandboxes"], [])

    def test_attached(self):
        ws = self.d.websocket("/v1/runs/attach")
        ws.send(json.dumps({"process": {"argv": ["cat"], "stdin_open": True}}))
        got, receipt = b"", None
        sent = False
        while receipt is None:
            opcode, data = ws.receive()
            message = json.loads(data) if opcode == 1 else None
            if message and message["type"] == "begin" and not sent:
                ws.send(b"through")
                ws.send(json.dumps({"type": "eof"}))
                sent = True
            elif message and message["type"] == "end":
                receipt = message["receipt"]
            elif opcode == 2:
                got += data[9:]
        self.assertEqual((got, receipt["outcome"]["exit_code"]), (b"through", 0))
        wait_until("its sandbox is gone", lambda: self.d.ask("GET", "/v1/sandboxes").json["sandboxes"] == [])

    def test_attached_and_left(self):
        ws = self.d.websocket("/v1/runs/attach")
        ws.send(json.dumps({"process": {"argv": ["sleep", "1000"]}}))
        wait_until("it runs", lambda: len(self.d.ask("GET", "/v1/sandboxes").json["sandboxes"]) == 1)
        ws.close()
        wait_until("its sandbox is gone", lambda: self.d.ask("GET", "/v1/sandboxes").json["sandboxes"] == [])

    def test_refused(self):
        ws = self.d.websocket("/v1/runs/attach")
        ws.send(json.dumps({"process": {}}))
        while True:
            opcode, data = ws.receive()
            if opcode == 1 and json.loads(data)["type"] == "end":
                self.assertIn("argv", json.loads(data)["receipt"]["error"])
                return


class Shells(ServiceTest):
    def run_in(self, sid, number, command, **members):
        answer = self.d.ask("POST", f"/v1/sandboxes/{sid}/shells/{number}/run", {"command": command, **members})
        self.assertEqual(answer.status, 200, answer)
        return answer.json

    def test_what_the_original_got_wrong(self):
        sid = self.sandbox()
        n = self.d.ask("POST", f"/v1/sandboxes/{sid}/shells", {"env": {"TEST_VAR": "test_value"}}).json["number"]
        for command, stdout in (("echo 'test'", "test\n"), ("echo 123", "123\n"),
                                ("echo a; echo 42; echo b", "a\n42\nb\n"), ("false", ""), ("printf abc", "abc"),
                                ("echo; echo; echo x", "\n\nx\n"), ("echo a\necho b", "a\nb\n"),
                                ("echo $TEST_VAR", "test_value\n"), ("pwd", "/workspace\n")):
            self.assertEqual(self.run_in(sid, n, command)["stdout"], stdout, command)
        self.assertEqual(self.run_in(sid, n, "false")["exit_code"], 1)
        self.run_in(sid, n, "cd /tmp; X=kept; f() { echo function; }")
        r = self.run_in(sid, n, "echo $X; f")
        self.assertEqual((r["stdout"], r["cwd"]), ("kept\nfunction\n", "/tmp"))
        r = self.run_in(sid, n, "echo 'unterminated")
        self.assertNotEqual(r["exit_code"], 0)
        self.assertEqual(self.run_in(sid, n, "echo $X")["stdout"], "kept\n")
        r = self.run_in(sid, n, "echo early; sleep 30", timeout=0.4)
        self.assertEqual((r["timed_out"], r["stdout"]), (True, "early\n"))
        self.assertEqual(self.run_in(sid, n, "echo $X")["stdout"], "kept\n")
        r = self.run_in(sid, n, "while :; do :; done", timeout=0.4)
        self.assertTrue(r["timed_out"])
        self.assertEqual(self.run_in(sid, n, "echo back")["stdout"], "back\n")
        self.assertTrue(self.run_in(sid, n, "exit 3")["ended"])
        self.assertEqual(self.d.ask("DELETE", f"/v1/sandboxes/{sid}/shells/{n}").status in (204, 404), True)

    # `late` would be printed if anything of the line went on.
    STOPPED = ("wait_for_it; echo late", "wait_for_it && echo late || echo late", "wait_for_it\necho late",
               "! wait_for_it; echo late",
               "for i in 1 2 3; do for j in 1 2; do wait_for_it; echo late; done; done; echo late",
               "while :; do :; done; echo late",
               "until false; do wait_for_it; echo late; done; echo late",
               "if wait_for_it; then echo late; else echo late; fi; echo late",
               "wait_for_it | cat; echo late", "echo x | while read y; do wait_for_it; echo late; done; echo late",
               "(wait_for_it; echo late); echo late", "(wait_for_it; echo late); (echo late) | cat",
               "(wait_for_it) || echo late",
               "{ wait_for_it; echo late; }; echo late", "x=$(wait_for_it; echo late >&2); echo late",
               "case $(wait_for_it) in *) echo late;; esac",
               "f() { wait_for_it; echo late; }; g() { f || echo late; (echo late); }; g; (echo late); echo late\n"
               "echo late",
               "f() { while :; do :; done; }; g() { f; echo late; }; g; echo late",
               "eval 'wait_for_it; echo late'; echo late",
               "trap '' INT TERM HUP; wait_for_it; echo late",
               "sh -c 'trap \"\" INT TERM; wait_for_it; echo late'; echo late",
               "wait_for_it & wait; echo late", "mkfifo p; read x <>p; rm p; echo late",
               "set -x; wait_for_it; echo la''te")

    def test_a_command_that_times_out_ends_as_a_whole(self):
        sid = self.sandbox()
        n = self.d.ask("POST", f"/v1/sandboxes/{sid}/shells", {}).json["number"]
        self.run_in(sid, n, "cd /tmp; X=kept; fn() { echo function; }; set -- a b")
        for command in self.STOPPED:
            r = self.run_in(sid, n, "set +x; rm -f p\n" + command.replace("wait_for_it", "sleep 1000"), timeout=0.1)
            self.assertEqual((r["timed_out"], r["ended"], r["exit_code"], r["stdout"], r["cwd"]),
                             (True, False, 137, "", "/tmp"), (command, r))
            self.assertNotIn("late", r["stderr"].splitlines(), command)
            r = self.run_in(sid, n, "{ set +x; } 2>/dev/null; echo $X $# $PWD; fn; trap -p DEBUG")
            self.assertEqual((r["stdout"], r["exit_code"], r["timed_out"], r["restarted"]),
                             ("kept 2 /tmp\nfunction\n", 0, False, False), (command, r))

