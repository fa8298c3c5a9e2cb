# SPDX-License-Identifier: Apache-2.0
"""Services of a sandbox: started in order, waited for, restarted, stopped, read; over a restart of brigd; and what a
service that does everything wrong can do."""

import json
import os
import signal
import tempfile
import threading
import unittest

from helpers import brig, environment, wait_until
from service import ServiceTest

LISTEN = """
import socket, sys, time
s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind(("127.0.0.1", int(sys.argv[1]))); s.listen()
print("listens on", sys.argv[1], flush=True)
while True:
    c, _ = s.accept(); c.close()
"""


def sh(script, name="one", **more):
    return {"name": name, "argv": ["/bin/sh", "-c", script], **more}


class ServicesTest(ServiceTest):
    def services(self, sid):
        return {s["name"]: s for s in self.d.ask("GET", f"/v1/sandboxes/{sid}/services").json["services"]}

    def service(self, sid, name="one"):
        return self.services(sid)[name]

    def log(self, sid, name="one"):
        return self.d.ask("GET", f"/v1/sandboxes/{sid}/services/{name}/log").body.decode()

    def control(self, sid, what, name="one"):
        return self.d.ask("POST", f"/v1/sandboxes/{sid}/services/{name}/{what}")

    def file(self, sid, path):
        return self.d.ask("GET", f"/v1/sandboxes/{sid}/files?path={path}").body.decode()


class Ready(ServicesTest):
    def test_without_a_condition_it_is_ready_when_it_runs(self):
        sid = self.sandbox(services=[sh("echo up; exec sleep 1000")])
        one = self.service(sid)
        self.assertEqual((one["state"], one["restarts"], one["ready"], one["restart"], one["detail"]),
                         ("ready", 0, None, "on-failure", None))
        self.assertGreater(one["pid"], 1)
        wait_until("its output", lambda: self.log(sid) == "up\n")
        self.assertEqual(self.d.ask("GET", f"/v1/sandboxes/{sid}").json["services"], ["one"])

    def test_a_port(self):
        sid = self.sandbox(services=[{"name": "one", "argv": ["python3", "-u", "-c", LISTEN, "5000"],
                                      "ready": {"port": 5000}}])
        self.assertEqual(self.service(sid)["state"], "ready")
        self.assertEqual(self.service(sid)["ready"], "port 5000")
        probe = self.d.run(sid, "python3", "-c", "import socket; socket.create_connection(('127.0.0.1', 5000))")
        self.assertEqual(probe["outcome"]["exit_code"], 0)

    def test_a_file_in_a_directory_that_is_still_to_come(self):
        sid = self.sandbox(services=[sh("sleep 0.2; mkdir -p /tmp/a/b; echo x > /tmp/a/b/up; exec sleep 1000",
                                        ready={"file": "/tmp/a/b/up"})])
        self.assertEqual(self.service(sid)["state"], "ready")
        self.assertEqual(self.file(sid, "/tmp/a/b/up"), "x\n")

    def test_a_socket_that_listens(self):
        script = ("import socket, time\ns = socket.socket(socket.AF_UNIX)\ns.bind('/tmp/sock')\n"
                  "open('/tmp/bound', 'w').close()\ntime.sleep(0.2)\ns.listen()\nopen('/tmp/listens', 'w').close()\n"
                  "time.sleep(1000)")
        sid = self.sandbox(services=[{"name": "one", "argv": ["python3", "-c", script],
                                      "ready": {"socket": "/tmp/sock"}}])
        self.assertEqual(self.d.run(sid, "test", "-e", "/tmp/bound")["outcome"]["exit_code"], 0)
        connect = "import socket; socket.socket(socket.AF_UNIX).connect('/tmp/sock')"
        self.assertEqual(self.d.run(sid, "python3", "-c", connect)["outcome"]["exit_code"], 0)

    def test_a_command(self):
        sid = self.sandbox(services=[sh("sleep 0.3; touch /tmp/up; exec sleep 1000",
                                        ready={"command": ["test", "-e", "/tmp/up"]})])
        self.assertEqual(self.service(sid)["state"], "ready")
        self.assertEqual(self.d.run(sid, "test", "-e", "/tmp/up")["outcome"]["exit_code"], 0)

    def test_the_order(self):
        services = [sh("cat /tmp/order; echo c >> /tmp/order; exec sleep 1000", "c", after=["b", "a"],
                       ready={"command": ["grep", "-q", "c", "/tmp/order"]}),
                    sh("sleep 0.2; echo a >> /tmp/order; exec sleep 1000", "a", ready={"file": "/tmp/order"}),
                    sh("echo b >> /tmp/order; exec sleep 1000", "b", after=["a"],
                       ready={"command": ["grep", "-q", "b", "/tmp/order"]})]
        sid = self.sandbox(services=services)
        self.assertEqual(self.file(sid, "/tmp/order"), "a\nb\nc\n")
        self.assertEqual(list(self.services(sid)), ["a", "b", "c"])

    def test_environment_directory_and_user(self):
        sid = self.sandbox(env={"A": "sandbox", "B": "sandbox"},
                           services=[sh("echo $A $B $(pwd) $(id -u); exec sleep 1000", env={"A": "own"},
                                        workdir="/tmp")])
        wait_until("its output", lambda: self.log(sid))
        self.assertEqual(self.log(sid), "own sandbox /tmp 1000\n")

    def test_a_service_as_root_inside(self):
        sid = self.sandbox(user="root", writable_root=True, services=[
            sh("id -u; exec sleep 1000", "root"), sh("id -u; exec sleep 1000", "user", user="user")])
        wait_until("both outputs", lambda: self.log(sid, "root") and self.log(sid, "user"))
        self.assertEqual((self.log(sid, "root"), self.log(sid, "user")), ("0\n", "1000\n"))


class NeverReady(ServicesTest):
    def create(self, **members):
        return self.d.ask("POST", "/v1/sandboxes", members)

    def test_the_answer_names_it_and_shows_its_last_lines(self):
        before = len(self.d.ask("GET", "/v1/sandboxes").json["sandboxes"])
        answer = self.create(services=[sh("exec sleep 1000", "good"),
                                       sh("echo first; echo cannot open the data; exit 3", "db", restart="no",
                                          ready={"port": 5432}),
                                       sh("exec sleep 1000", "web", after=["db"])])
        self.refused(answer, 409, "conflict", "service db did not come up: it exited with 3")
        error = answer.json["error"]
        self.assertEqual((error["service"], error["output"], error["output_encoding"]),
                         ("db", "first\ncannot open the data\n", "utf-8"))
        self.assertEqual(len(self.d.ask("GET", "/v1/sandboxes").json["sandboxes"]), before)

    def test_in_time(self):
        answer = self.create(services=[sh("echo waiting; exec sleep 1000",
                                          ready={"file": "/tmp/never", "timeout": 0.3})])
        self.refused(answer, 409, "conflict",
                     "service one did not come up: it was not ready within 0.300 s (file /tmp/never)")
        self.assertEqual(answer.json["error"]["output"], "waiting\n")

    def test_a_program_that_is_not_there(self):
        answer = self.create(services=[{"name": "one", "argv": ["/no/such"], "restart": "always"}])
        self.refused(answer, 409, "conflict",
                     "service one did not come up: it could not be started (program): No such file or directory")

    def test_that_tries_again_and_again(self):
        answer = self.create(services=[sh("echo try; exit 1", ready={"port": 1, "timeout": 0.5})])
        self.refused(answer, 409, "conflict", "service one did not come up: it exited with 1")
        self.assertGreaterEqual(answer.json["error"]["output"].count("try\n"), 2)

    def test_kept(self):
        sid = self.sandbox(on_service_failure="keep", services=[
            sh("exit 3", "db", restart="no", ready={"port": 5432}), sh("exec sleep 1000", "web", after=["db"])])
        self.assertEqual(self.d.ask("GET", f"/v1/sandboxes/{sid}").json["note"],
                         "service db did not come up: it exited with 3")
        found = self.services(sid)
        self.assertEqual((found["db"]["state"], found["db"]["exit_code"]), ("failed", 3))
        self.assertEqual((found["web"]["state"], found["web"]["detail"]),
                         ("failed", "one that it comes after has failed"))


class Restarts(ServicesTest):
    def test_always(self):
        sid = self.sandbox(services=[sh("echo go; exit 0", restart="always")])
        wait_until("three lives", lambda: self.log(sid).count("go\n") >= 3)
        self.assertGreaterEqual(self.service(sid)["restarts"], 2)

    def test_on_failure(self):
        sid = self.sandbox(services=[sh("test -e /tmp/again && exit 0; touch /tmp/again; sleep 0.1; kill -9 $$")])
        wait_until("its second end", lambda: self.service(sid)["state"] == "stopped")
        self.assertEqual((self.service(sid)["restarts"], self.service(sid)["exit_code"]), (1, 0))

    def test_no(self):
        sid = self.sandbox(services=[sh("sleep 0.1; exit 4", restart="no")])
        wait_until("its end", lambda: self.service(sid)["state"] == "failed")
        one = self.service(sid)
        self.assertEqual((one["exit_code"], one["restarts"], one["detail"]), (4, 0, "it exited with 4"))

    def test_killed_by_a_program_beside_it(self):
        sid = self.sandbox(services=[sh("exec sleep 1000")])
        first = self.service(sid)["pid"]
        self.assertEqual(self.d.run(sid, "kill", "-9", str(first))["outcome"]["exit_code"], 0)
        wait_until("another life", lambda: self.service(sid)["state"] == "ready" and self.service(sid)["pid"] != first)
        self.assertEqual(self.service(sid)["restarts"], 1)


class Control(ServicesTest):
    def test_stop_and_start(self):
        sid = self.sandbox(services=[sh("trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.05; done")])
        wait_until("it waits for signals", lambda: self.log(sid) == "up\n")
        stopped = self.control(sid, "stop").json
        self.assertEqual((stopped["state"], stopped["pid"]), ("stopped", None))
        self.assertTrue(self.log(sid).endswith("bye\n"), self.log(sid))
        self.assertEqual(self.control(sid, "stop").json["state"], "stopped")
        again = self.control(sid, "start").json
        self.assertEqual((again["state"], again["restarts"]), ("ready", 0))
        self.assertEqual(self.control(sid, "start").json["pid"], again["pid"])

    def test_restart_takes_everything_of_it_along(self):
        sid = self.sandbox(services=[sh("setsid sleep 777 & echo $! > /tmp/pid; exec sleep 1000",
                                        ready={"file": "/tmp/pid"})])
        first = self.service(sid)["pid"]
        left = self.file(sid, "/tmp/pid").strip()
        again = self.control(sid, "restart").json
        self.assertNotEqual(again["pid"], first)
        self.assertEqual(again["state"], "ready")
        self.assertNotEqual(self.d.run(sid, "kill", "-0", left)["outcome"]["exit_code"], 0)

    def test_one_that_ignores_term(self):
        sid = self.sandbox(services=[sh("trap '' TERM; echo up; while :; do sleep 0.05; done", stop_timeout=0.2)])
        wait_until("it ignores signals", lambda: self.log(sid) == "up\n")
        self.assertEqual(self.control(sid, "stop").json["state"], "stopped")

    def test_a_start_that_fails(self):
        sid = self.sandbox(services=[sh("test -e /tmp/bad && exit 5; touch /tmp/bad; exec sleep 1000", restart="no",
                                        ready={"file": "/tmp/bad"})])
        self.control(sid, "stop")
        self.d.run(sid, "sh", "-c", "echo 'x' > /tmp/bad")
        self.d.run(sid, "rm", "/tmp/bad")
        self.assertEqual(self.control(sid, "start").json["state"], "ready")
        self.control(sid, "stop")
        answer = self.control(sid, "start")
        if answer.status == 200:  # the file was there before the shell had ended: ready for an instant
            wait_until("its end", lambda: self.service(sid)["state"] == "failed")
        else:
            self.refused(answer, 409, "conflict", "service one is failed: it exited with 5")

    def test_names(self):
        sid = self.sandbox(services=[sh("exec sleep 1000")])
        for path in ("start", "log"):
            method = "GET" if path == "log" else "POST"
            self.refused(self.d.ask(method, f"/v1/sandboxes/{sid}/services/two/{path}"), 404, "not_found",
                         f"service two of sandbox {sid} not found")

    def test_without_services(self):
        sid = self.sandbox()
        self.assertEqual(self.d.ask("GET", f"/v1/sandboxes/{sid}/services").json, {"services": []})

    def test_the_log_from_an_offset(self):
        sid = self.sandbox(services=[sh("echo 0123456789; exec sleep 1000")])
        wait_until("its output", lambda: self.log(sid))
        answer = self.d.ask("GET", f"/v1/sandboxes/{sid}/services/one/log?offset=4")
        self.assertEqual((answer.body, answer.headers["Brig-Offset"]), (b"456789\n", "4"))

    def test_the_log_is_followed(self):
        script = "echo a; while ! test -e /tmp/go; do sleep 0.05; done; echo b; exec sleep 1000"
        sid = self.sandbox(services=[sh(script)])
        connection = self.d.connection()
        connection.request("GET", f"/v1/sandboxes/{sid}/services/one/log?follow=1")
        response = connection.getresponse()
        self.assertEqual(response.readline(), b"a\n")
        self.d.run(sid, "touch", "/tmp/go")
        self.assertEqual(response.readline(), b"b\n")
        connection.close()
        self.assertEqual(self.service(sid)["state"], "ready")

    def test_flags_of_the_output_end_with_the_attempt(self):
        """A pipe that is passed on would have what the last life set, and would take what it writes later."""
        script = ("import fcntl, os, time\nflags = fcntl.fcntl(1, fcntl.F_GETFL)\n"
                  "print(bool(flags & os.O_NONBLOCK), flush=True)\n"
                  "fcntl.fcntl(1, fcntl.F_SETFL, flags | os.O_NONBLOCK)\n"
                  "open('/tmp/up', 'w').close()\ntime.sleep(1000)")
        sid = self.sandbox(services=[{"name": "one", "argv": ["/usr/bin/python3", "-c", script],
                                      "ready": {"file": "/tmp/up"}}])
        self.d.run(sid, "rm", "/tmp/up")
        self.assertEqual(self.control(sid, "restart").json["state"], "ready")
        self.assertEqual(self.log(sid), "False\nFalse\n")

    def test_audit(self):
        sid = self.sandbox(services=[sh("exec sleep 1000")])
        self.control(sid, "restart")
        lines = [json.loads(line) for line in self.d.ask("GET", "/v1/audit?limit=10000").body.splitlines()]
        found = [(e["action"], e["outcome"], e["detail"]) for e in lines if e.get("object") == sid]
        self.assertIn(("service.restart", "ok", "one"), found)

    def test_a_call_that_fails_is_audited(self):
        stubborn = "trap '' TERM; touch /tmp/up; while :; do sleep 0.05; done"
        sid = self.sandbox(services=[{**sh(stubborn), "ready": {"file": "/tmp/up"}, "stop_timeout": 600}])
        waits = threading.Thread(target=self.d.ask, args=("POST", f"/v1/sandboxes/{sid}/services/one/restart"))
        waits.start()
        wait_until("the restart", lambda: self.service(sid)["state"] == "stopping")
        self.assertEqual(self.d.ask("POST", f"/v1/sandboxes/{sid}/services/one/stop").status, 409)
        self.d.ask("DELETE", f"/v1/sandboxes/{sid}")
        waits.join()
        lines = [json.loads(line) for line in self.d.ask("GET", "/v1/audit?limit=10000").body.splitlines()]
        found = [(e["action"], e["outcome"], e["detail"]) for e in lines if e.get("object") == sid]
        self.assertIn(("service.stop", "failed",
                       "one: service one: another start, stop or restart is under way"), found)
        self.assertTrue([f for f in found if f[:2] == ("service.restart", "failed")], found)


class AwayAndBack(ServicesTest):
    def restart_brigd(self):
        pid = self.d.children()["brigd"]
        os.kill(pid, signal.SIGKILL)
        wait_until("a new brigd", lambda: self.d.children().get("brigd") not in (None, pid))
        self.d.wait_ready()

    def test_kill_9_of_brigd(self):
        sid = self.sandbox(services=[sh("echo up; exec sleep 1000", "stays"),
                                     sh("echo life; while ! test -e /tmp/die; do sleep 0.05; done; rm /tmp/die; exit 1",
                                        "dies")])
        before = self.services(sid)
        self.restart_brigd()
        after = self.services(sid)
        self.assertEqual(after["stays"]["pid"], before["stays"]["pid"])
        self.assertEqual(self.log(sid, "stays"), "up\n")
        self.d.run(sid, "touch", "/tmp/die")
        wait_until("its second life", lambda: self.log(sid, "dies") == "life\nlife\n")
        self.assertEqual(self.control(sid, "stop", "stays").json["state"], "stopped")

    def test_they_are_restarted_while_nobody_is_there(self):
        sid = self.sandbox(services=[sh("echo life >> /tmp/lives; echo life; sleep 0.05; exit 1", restart="always")])
        self.restart_brigd()
        wait_until("more lives", lambda: self.log(sid).count("life") >= 3)

    def test_made_again_after_its_death(self):
        sid = self.sandbox(on_death="recreate", services=[sh("echo up; exec sleep 1000")])
        boot = self.d.ask("GET", f"/v1/sandboxes/{sid}").json["boot_id"]
        outside = [int(p) for p in os.listdir("/proc") if p.isdigit() and self.is_init_of(sid, p)]
        self.assertEqual(len(outside), 1)
        os.kill(outside[0], signal.SIGKILL)
        wait_until("it was made again", lambda: (lambda s: s["state"] == "running" and s["boot_id"] != boot)(
            self.d.ask("GET", f"/v1/sandboxes/{sid}").json))
        self.assertEqual(self.service(sid)["state"], "ready")

    def is_init_of(self, sid, pid):
        try:
            with open(f"/proc/{pid}/cgroup") as file:
                groups = file.read()
            with open(f"/proc/{pid}/comm") as file:
                return sid in groups and file.read() == "brig-init\n"
        except OSError:
            return False


class Hostile(ServicesTest):
    def test_a_flood(self):
        sid = self.sandbox(services=[sh("yes 0123456789abcdef")])
        wait_until("a lot of output", lambda: self.service(sid)["output"] > 1 << 20)
        one = self.service(sid)
        self.assertLessEqual(one["output"] - one["output_from"], 64 * 1024)
        self.assertLessEqual(len(self.log(sid)), 64 * 1024)
        self.assertEqual(self.d.run(sid, "echo", "answers")["stdout"], "answers\n")
        self.assertEqual(self.control(sid, "stop").json["state"], "stopped")

    def test_a_reader_that_does_not_read_stops_nothing(self):
        sid = self.sandbox(services=[sh("yes 0123456789abcdef")])
        connection = self.d.connection()
        connection.request("GET", f"/v1/sandboxes/{sid}/services/one/log?follow=1")
        connection.getresponse()
        seen = self.service(sid)["output"]
        wait_until("it goes on", lambda: self.service(sid)["output"] > seen + (64 << 20))
        connection.close()

    def test_forks_do_not_outlive_it(self):
        script = "for i in 1 2 3 4 5 6 7 8; do setsid sh -c 'trap \"\" TERM; exec sleep 4321' & done; echo up; wait"
        sid = self.sandbox(services=[sh(script, stop_timeout=0.2)])
        wait_until("its children", lambda: self.log(sid) == "up\n")
        self.assertEqual(self.control(sid, "stop").json["state"], "stopped")
        found = self.d.run(sid, "pgrep", "-f", "sleep 4321")
        self.assertEqual(found["stdout"], "")

    def test_another_user_cannot_stop_it(self):
        sid = self.sandbox(user="root", writable_root=True, services=[sh("exec sleep 1000", "root")])
        pid = self.service(sid, "root")["pid"]
        answer = self.d.ask("POST", f"/v1/sandboxes/{sid}/run",
                            {"argv": ["kill", "-9", str(pid)], "user": "user"}).json
        self.assertNotEqual(answer["outcome"]["exit_code"], 0)
        self.assertIn("not permitted", answer["stderr"].lower())
        self.assertEqual(self.service(sid, "root")["pid"], pid)

    def test_processes_and_services_are_not_mixed(self):
        sid = self.sandbox(services=[sh("exec sleep 1000")])
        self.assertEqual(self.d.ask("GET", f"/v1/sandboxes/{sid}/processes").json["processes"], [])
        for number in (0x40000000, 0x40000001, 1):
            self.assertEqual(self.d.ask("DELETE", f"/v1/sandboxes/{sid}/processes/{number}").status, 404)
        self.assertEqual(self.service(sid)["state"], "ready")


TOML = """
[[service]]
name = "db"
argv = ["/bin/sh", "-c", "echo up; exec sleep 1000"]
env = { A = "1" }

[[service]]
name = "web"
argv = ["/bin/sh", "-c", "touch /tmp/web; exec sleep 1000"]
after = ["db"]
ready = { file = "/tmp/web", timeout = "20s" }
"""


class CommandLine(ServicesTest):
    def brig(self, *argv):
        return brig(*argv, env=environment(BRIG_SOCKET=self.d.socket))

    def toml(self, text):
        file = tempfile.NamedTemporaryFile("w", suffix=".toml", delete=False)
        self.addCleanup(os.unlink, file.name)
        with file:
            file.write(text)
        return file.name

    def test_tour(self):
        made = self.brig("create", "--name", "shop", "--service", self.toml(TOML))
        self.assertEqual((made.returncode, made.stderr), (0, b""))
        sid = made.stdout.decode().strip()
        self.addCleanup(self.d.ask, "DELETE", f"/v1/sandboxes/{sid}")
        lines = self.brig("service", "ls", "shop").stdout.decode().splitlines()
        self.assertEqual([line.split()[:2] for line in lines], [["NAME", "STATE"], ["db", "ready"], ["web", "ready"]])
        wait_until("its output", lambda: self.brig("logs", "-s", "db", "shop").stdout == b"up\n")
        self.assertEqual(self.brig("service", "stop", "shop", "web", "db").stdout, b"web stopped\ndb stopped\n")
        self.assertEqual(self.brig("service", "start", "shop", "db").stdout, b"db ready\n")
        self.assertEqual(self.brig("service", "restart", "-q", "shop", "db").stdout, b"")
        self.sandbox()
        self.assertIn("SERVICES", self.brig("ps").stdout.decode().splitlines()[0])
        wrong = self.brig("service", "stop", "shop", "nothing")
        self.assertEqual((wrong.returncode, b"service nothing of sandbox" in wrong.stderr), (125, True))

    def test_a_failure_shows_the_last_lines(self):
        text = '[[service]]\nname = "db"\nargv = ["/bin/sh", "-c", "echo no data; exit 3"]\nrestart = "no"\n' \
               'ready = { port = 1 }\n'
        answer = self.brig("create", "--service", self.toml(text))
        self.assertEqual(answer.returncode, 125)
        self.assertRegex(answer.stderr.decode(), r"\Ano data\nbrig: service db did not come up: it exited with 3 \(")

    def test_files_that_are_no_services(self):
        for text, message in (("[[service]", "line 1: "), ("x = 1\n", ":1: only [[service]] belongs here, not x"),
                              ("", ": has no [[service]]")):
            answer = self.brig("create", "--service", self.toml(text))
            self.assertEqual(answer.returncode, 125)
            self.assertIn(message, answer.stderr.decode())


class Refusals(ServicesTest):
    def no(self, services, message, **more):
        self.refused(self.d.ask("POST", "/v1/sandboxes", {"services": services, **more}), 400, "invalid_argument",
                     message)

    def test_exact(self):
        ok = ["true"]
        self.no({}, "services: must be an array")
        self.no([1], "services: each must be an object")
        self.no([{"argv": ok}], "services: each must have a name")
        self.no([{"name": "a b", "argv": ok}], 'services.name "a b": must be [A-Za-z0-9][A-Za-z0-9_.-]*')
        self.no([{"name": "a"}], "service a: argv: must be given, or command")
        self.no([{"name": "a", "argv": ok, "color": 1}], "service a: color: there is no such member")
        self.no([{"name": "a", "argv": ok, "tty": True}], "service a: tty: there is no such member")
        self.no([{"name": "a", "argv": ok}, {"name": "a", "argv": ok}], "services: there are two of the name a")
        self.no([{"name": "a", "argv": ok, "after": ["b"]}], 'service a: after "b": there is no such service')
        self.no([{"name": "a", "argv": ok, "after": ["b"]}, {"name": "b", "argv": ok, "after": ["a"]},
                 {"name": "c", "argv": ok}], "services: a, b come after each other")
        self.no([{"name": "a", "argv": ok, "after": ["a"]}], "services: a come after each other")
        self.no([{"name": f"s{i}", "argv": ok} for i in range(33)], "services: more than 32 of them")
        self.no([{"name": "a", "argv": ok, "restart": "never"}],
                'service a: restart "never": must be one of no, on-failure, always')

    def test_bad_ready(self):
        def bad(ready, message):
            self.no([{"name": "a", "argv": ["true"], "ready": ready}], "service a: " + message)
        bad(5432, "ready: must be an object with one of port, socket, file, command")
        bad({}, "ready: must have exactly one of port, socket, file, command")
        bad({"timeout": 1}, "ready: must have exactly one of port, socket, file, command")
        bad({"port": 1, "file": "/x"}, "ready: must have exactly one of port, socket, file, command")
        bad({"port": 0}, "ready.port 0: must be a whole number between 1 and 65535")
        bad({"file": "relative"}, 'ready.file "relative": must be absolute')
        bad({"socket": "/" + "x" * 107}, f'ready.socket "/{"x" * 63}": must be at most 107 bytes')
        bad({"command": []}, "argv: must be an array of 1 to 65536 strings")
        bad({"port": 1, "timeout": 601}, "ready.timeout: at most 600 seconds")
        bad({"pipe": 1}, "ready.pipe: there is no such member")

    def test_a_user_that_the_sandbox_does_not_have(self):
        answer = self.d.ask("POST", "/v1/sandboxes", {"services": [sh("true", user="root")]})
        self.refused(answer, 422, "refused",
                     "user root: the sandbox has no root inside and no template of its own, so its programs are those "
                     'of "user"')

    def test_a_key_that_may_not_bring_programs(self):
        key = self.d.ask("POST", "/v1/keys", {"role": "user"}).json
        name = key["id"]
        self.assertEqual(self.d.ask("PUT", f"/v1/keys/{name}/tools", {"allow": ["other"]}).status, 200)
        answer = self.d.ask("POST", "/v1/sandboxes", {"services": [sh("true")]}, key=key["key"])
        self.refused(answer, 403, "forbidden", "Tool 'run' not allowed")


if __name__ == "__main__":
    unittest.main()
