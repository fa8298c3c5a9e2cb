# SPDX-License-Identifier: Apache-2.0
"""Builds of templates from Dockerfiles, through the API: each instruction, the cache, what fails and how it is told."""

import concurrent.futures
import json
import os
import signal
import subprocess
import unittest

from buildkit import BuildTest
from helpers import BRIG, wait_until
from service import Daemon


class Steps(BuildTest):
    def test_run_and_what_the_image_says(self):
        self.base()
        made, log = self.built("""
            # a comment
            ARG TAG=latest
            FROM base:${TAG} AS first
            ENV GREETING="hello  you" EMPTY=
            ARG WHO=nobody
            RUN echo "$GREETING $WHO" > /greeting && rm /etc/group
            USER 33:44
            RUN id -u > /tmp/who; id -g >> /tmp/who
            LABEL a=1 "b c"="$WHO"
            EXPOSE 80 53/udp 8000-8010
            VOLUME /data /more
            STOPSIGNAL SIGINT
            HEALTHCHECK --interval=1m30s --retries=3 CMD true || false
            SHELL ["/bin/sh", "-ec"]
            ENTRYPOINT exec sh
            CMD ["-x"]
            """.replace("            ", ""), build_args={"WHO": "me", "NONE": "x"}, labels={"base": "mine"})
        image = made["image"]
        self.assertEqual((made["source"], len(made["layers"])), ("build", 4))
        self.assertIn("GREETING=hello  you", image["env"])
        self.assertIn("EMPTY=", image["env"])
        self.assertFalse([e for e in image["env"] if e.startswith("WHO=")])
        self.assertEqual((image["user"], image["stop_signal"]), ("33:44", "SIGINT"))
        self.assertEqual(image["labels"], {"base": "mine", "a": "1", "b c": "me"})
        self.assertEqual(image["exposed_ports"], ["80/tcp", "53/udp", "8000-8010/tcp"])
        self.assertEqual(image["volumes"], ["/data", "/more"])
        self.assertEqual((image["entrypoint"], image["cmd"]), (["/bin/sh", "-ec", "exec sh"], ["-x"]))
        self.assertEqual(image["healthcheck"]["test"], ["CMD-SHELL", "true || false"])
        self.assertEqual((image["healthcheck"]["interval_ms"], image["healthcheck"]["retries"]), (90000, 3))
        self.assertEqual([line["text"] for line in self.events(log, "warning")],
                         ["the build argument NONE is not used: no ARG names it"])
        self.assertEqual(self.sh("built", "cat /greeting; ls /etc; stat -c '%u %g %a' /greeting", user="root"),
                         "hello  you me\nhostname\nhosts\npasswd\n0 0 644\n")
        # What a step writes to /tmp belongs to the image, as in other builders; a sandbox mounts its own over it.
        self.assertEqual(made["layers"][3]["bytes"], 6)

    def test_a_step_that_changes_nothing_has_no_layer(self):
        base, before = self.base(), self.started()
        made, log = self.built("FROM base\nRUN true\nRUN echo said; cat /etc/hosts >/dev/null\n"
                               "RUN --network=none cat /etc/resolv.conf /etc/hostname > /dev/null; stat /tmp /etc /root"
                               " > /dev/null 2>&1 || true\n")
        self.assertEqual(made["layers"], base["layers"])
        self.assertEqual(self.output(log), "said\n")
        # Three commands, and no program that looks at what they changed. A step that changes something has two more:
        # one writes the layer, and one unpacks it.
        self.assertEqual(self.started(), before + 3)
        self.built("FROM base\nRUN touch /x\n")
        self.assertEqual(self.started(), before + 6)

    def started(self):
        """How many programs were started."""
        lines = self.d.ask("GET", "/v1/audit?limit=1000").body.splitlines()
        return sum(json.loads(line)["action"] == "process.start" for line in lines)

    def test_small_changes_have_a_layer(self):
        base = self.base()
        begin = "FROM base\nRUN mkdir /d /o && touch /d/x /o/x && chmod 755 /d\n"
        for script, shows in (("rm /d/x", "d o o/x 755"), ("chmod 700 /d", "d d/x o o/x 700"),
                              ("rm -r /o && mkdir /o", "d d/x o 755"), ("rm -r /d", "o o/x"),
                              ("touch -d @1 /d", "d d/x o o/x 755")):
            made, _ = self.built(f"{begin}RUN {script}\n")
            with self.subTest(script=script):
                self.assertEqual(len(made["layers"]), len(base["layers"]) + 2)
                self.assertEqual(self.sh("built", "cd /; echo $( (ls -d d d/x o o/x; stat -c %a d) 2>/dev/null)",
                                         user="root").strip(), shows)
        # The root directory itself is in no layer, and what came and went is not either.
        for script in ("touch -d @1 /", "chmod 711 /", "touch /new && rm /new"):
            made, _ = self.built(f"{begin}RUN {script}\n")
            with self.subTest(script=script):
                self.assertEqual(len(made["layers"]), len(base["layers"]) + 1)

    def test_what_is_ours_stays_out(self):
        self.base()
        _, log = self.built("FROM base\nRUN touch /etc/mine && (echo x >> /etc/hosts) 2>&1 || echo refused\n"
                            "RUN ls /.brig || echo hidden\nUSER 7\nRUN (ls /.brig/upper) 2>&1 || echo closed\n")
        self.assertIn("Read-only file system", self.output(log))
        self.assertIn("refused", self.output(log))
        self.assertIn("Permission denied", self.output(log))
        self.assertIn("closed", self.output(log))
        listed = self.sh("built", "ls -A / /etc", user="root")
        self.assertIn("mine", listed)
        self.assertNotIn(".brig", listed)
        self.assertNotIn("resolv.conf", listed)

    def test_forms_of_run(self):
        self.base()
        _, log = self.built('FROM base\nENV V="a b"\nRUN ["/bin/sh", "-c", "echo exec $0 $V", "$V"]\n'
                            "RUN echo one \\\n  # a comment\n  two\n"
                            "RUN <<EOF\necho first $V\necho second\nEOF\n"
                            "RUN cat <<A - && cat <<'B'\n$V\nA\n$V\nB\n"
                            'SHELL ["/bin/sh", "-fc"]\nRUN echo $-\n')
        self.assertEqual(self.output(log).splitlines(),
                         ["exec $V a b", "one two", "first a b", "second", "a b", "$V", "f"])

    def test_a_script_with_an_interpreter(self):
        self.base()
        text = ("FROM base\nENV V=v\nUSER user\n"
                "RUN --mount=type=secret,id=s,mode=0444 <<EOF\n#!/bin/cat\nas it is $V\nEOF\n"
                "RUN <<EOF\n#!/bin/sh -e\necho $V $0 $-; cd /; ls -d /run/script 2>/dev/null\nEOF\n")
        made, log = self.built(text, secrets={"s": "x"})
        self.assertEqual(self.output(log), "#!/bin/cat\nas it is $V\nv /run/script/EOF e\n/run/script\n")
        self.assertEqual(len(made["layers"]), 2)  # nothing of it is in a layer
        _, log = self.built(text.replace("echo $V", "echo other"), secrets={"s": "x"})
        self.assertEqual(len(self.cached(log)), 1)

    def test_arguments_and_variables(self):
        self.base()
        _, log = self.built("ARG A=1\nARG B=${A}2\nFROM base\nARG A\nARG B=own\nARG C=${A}c\nARG TARGETARCH\n"
                            "ENV A2=$A\nENV A2=new B2=$A2\nENV C=env\n"
                            "RUN echo $A-$B-$C-$A2-$B2-${#TARGETARCH}-$FROM_BASE\n",
                            build_args={"A": "x"})
        self.assertEqual(self.output(log), "x-own-env-new-x-5-yes\n")

    def test_users_by_name(self):
        self.base()
        made, log = self.built("FROM base\nUSER user\nRUN id -u; id -g; echo $HOME\nUSER user:root\nRUN id -g\n")
        self.assertEqual((self.output(log), made["image"]["user"]), ("1000\n1000\n/home/user\n0\n", "user:root"))

    def test_stages(self):
        self.base()
        dockerfile = ("FROM base AS one\nRUN echo 1 > /one\nENV ONE=1\nFROM one AS two\nRUN echo $ONE > /two\n"
                      "FROM base AS never\nRUN exit 9\nFROM two\nRUN cat /one /two > /three\n")
        made, log = self.built(dockerfile)
        self.assertEqual(len(made["layers"]), 5)
        self.assertFalse([line for line in self.events(log, "step") if line["stage"] == "never"])
        self.assertEqual(self.sh("built", "cat /three"), "1\n1\n")
        made, _ = self.built(dockerfile, "only", target="one")
        self.assertEqual((len(made["layers"]), made["image"]["env"][-1]), (3, "ONE=1"))
        self.refused_build(dockerfile, "target four: the Dockerfile has no such stage", target="four")


class Cache(BuildTest):
    def test_hits_and_misses(self):
        self.base()
        text = "FROM base\nARG V=1\nENV E=1\nRUN echo $V > /v\nRUN echo two > /two\n"
        first, log = self.built(text, "first")
        self.assertEqual(self.cached(log), [])
        second, log = self.built(text, "second")
        self.assertEqual(self.cached(log), ["RUN echo $V > /v", "RUN echo two > /two"])
        self.assertEqual(first["layers"], second["layers"])
        for changed, more in ((text, {"build_args": {"V": "2"}}), (text.replace("E=1", "E=2"), {}),
                              (text.replace("RUN echo $V", "USER 0\nRUN echo $V"), {}), (text, {"network": "none"}),
                              (text, {"no_cache": True})):
            _, log = self.built(changed, "third", **more)
            self.assertEqual(self.cached(log), [], (changed, more))
        # The last step is another, so the first one hits.
        _, log = self.built(text + "RUN true\n", "fourth")
        self.assertEqual(len(self.cached(log)), 2)
        _, log = self.built(text + "RUN true\n", "fourth")  # a step without a layer is known too
        self.assertEqual(len(self.cached(log)), 3)

    def test_layers_stay_as_long_as_the_cache_knows_them(self):
        self.base()
        text = "FROM base\nRUN echo kept > /kept\n"
        made, _ = self.built(text, "goes")
        self.assertEqual(self.d.ask("DELETE", "/v1/templates/goes").status, 204)
        self.d.stop()
        self.d.start()
        self.d.wait_ready()
        again, log = self.built(text, "comes")
        self.assertEqual((len(self.cached(log)), again["layers"]), (1, made["layers"]))
        self.assertEqual(self.d.ask("DELETE", "/v1/templates/comes").status, 204)
        self.assertEqual(self.d.ask("POST", "/v1/templates/prune").status, 200)
        wait_until("the layer is gone", lambda: made["layers"][-1]["id"] not in self.layers_on_disk())
        _, log = self.built(text, "comes")
        self.assertEqual(self.cached(log), [])

    def test_another_organisation_gets_no_hit(self):
        self.base()
        self.d.ask("POST", "/v1/templates/base/tag", {"name": "all", "shared": True})
        self.addCleanup(self.d.ask, "DELETE", "/v1/templates/all")
        text = "FROM all\nRUN echo whose > /whose\n"
        self.built(text)
        org = self.d.ask("POST", "/v1/orgs", {"name": "other"}).json["id"]
        key = self.d.key(org=org, role="admin")
        build, log = self.run_build(text, key=key)
        self.assertEqual((build["state"], self.cached(log)), ("done", []))
        build, log = self.run_build(text, key=key)
        self.assertEqual(len(self.cached(log)), 1)

    def test_two_of_the_same_at_once(self):
        self.base()
        text = "FROM base\nRUN echo once > /once\nRUN echo more > /more\n"
        with concurrent.futures.ThreadPoolExecutor() as pool:
            got = list(pool.map(lambda n: self.run_build(text, f"at-once-{n}"), range(3)))
        for n, (build, log) in enumerate(got):
            self.addCleanup(self.d.ask, "DELETE", f"/v1/templates/at-once-{n}")
            self.assertEqual(build["state"], "done", log)
            self.assertEqual(self.sh(f"at-once-{n}", "cat /once /more"), "once\nmore\n")


class Failures(BuildTest):
    CONFIG = "[templates]\nregistries = false\n"

    def test_a_command_that_fails(self):
        self.base()
        before = self.layers_on_disk()
        build = self.refused_build("FROM base\n\nRUN echo out; echo err >&2; \\\n  exit 3\n",
                                   "the command exited with 3")
        self.assertEqual((build["error"]["line"], build["error"]["code"]), (3, "invalid"))
        self.assertEqual(sorted(build["error"]["output"].split()), ["err", "out"])
        self.assertTrue(build["error"]["message"].startswith("line 3: RUN echo out"), build)
        self.refused_build("FROM base\nRUN [\"/no/program\"]\n", "line 2: RUN")
        self.assertEqual(self.layers_on_disk(), before)
        self.assertEqual(self.places()[1], [])

    def test_what_is_not_supported_or_wrong(self):
        self.base()
        for text, message in (
                ("FROM base\nRUN x\nONBUILD RUN y\n", "line 3: the instruction ONBUILD is not supported"),
                ("FROM base\n\n\nRUN --security=insecure x\n", "line 4: RUN: the flag --security is not supported"),
                ("RUN x\n", "line 1: RUN: the first instruction must be FROM"),
                ("FROM base AS a\nFROM base AS a\n", "line 2: FROM: there is a stage a already"),
                ("FROM host\n", "line 1: FROM: host is this machine's /usr and has no layers"),
                ("FROM scratch\nRUN x\n", "line 2: RUN: FROM scratch has no program to run"),
                ("FROM base\nRUN --network=host x\n", "line 2: RUN: --network=host: a build never gets the host's"),
                ("FROM base\nRUN --network=other x\n", "line 2: RUN: --network=other: expected none or default"),
                ("FROM base\nEXPOSE 80/icmp\n", "line 2: EXPOSE: 80/icmp: expected PORT"),
                ("FROM base\nEXPOSE 0\n", "line 2: EXPOSE: 0: expected PORT"),
                ("FROM base\nVOLUME data\n", "line 2: VOLUME: data: expected an absolute path"),
                ("FROM base\nENV A=\"${B:?not there}\"\n", "line 2: ENV: B: not there"),
                ("FROM base\nHEALTHCHECK --interval=x CMD y\n", "line 2: HEALTHCHECK: --interval=x: expected a time"),
                ("FROM base\nSTOPSIGNAL a b\n", "line 2: STOPSIGNAL: a b: expected a signal"),
                ("FROM base\nUSER nobody-here\nRUN x\n", "line 3: RUN x: user"),
                ("FROM --platform=windows/amd64 base\n", "line 1: FROM: --platform=windows/amd64: this machine"),
                ("FROM ${NOTHING}\n", "line 1: FROM: ${NOTHING}: expected an image, but it is empty"),
                ("FROM not-there-at-all\n", "line 1: FROM not-there-at-all: there is no template not-there-at-all"),
                ("FROM not-there-at-all\nRUN x\n", "line 1: FROM not-there-at-all: there is no template not-there-at"),
                ("FROM scratch\nENV A=1\n", "the image has no files")):
            with self.subTest(text=text):
                self.refused_build(text, message)

    def test_requests_that_are_refused(self):
        self.base()
        for more, message in (({"build_args": {"A": 1}}, "build_args.A: must be text"),
                              ({"secrets": []}, "secrets: must be an object of texts"),
                              ({"limits": 1}, "limits: must be an object"),
                              ({"unknown": 1}, "unknown"),
                              ({"name": "Bad Name"}, "name")):
            with self.subTest(more=more):
                answer = self.begin("FROM base\n", **{"name": "x", **more})
                self.assertEqual(answer.status, 400, answer)
                self.assertIn(message, answer.json["error"]["message"])
        self.refused(self.begin("FROM base\n", "base", replace=False), 409, "conflict", "there is one of this name")
        self.refused(self.begin(None), 400, "invalid_argument", "without a context its text must be given")

    def test_limits_of_run(self):
        self.base()
        build = self.refused_build("FROM base\nRUN cat /dev/zero > /big\n", "the command", limits={"disk": "16m"})
        self.assertIn("No space left", build["error"]["output"])

    def test_cancel(self):
        self.base()
        before = self.layers_on_disk()
        number = self.begin("FROM base\nRUN echo begun; sleep 1000\n", "bad").json["id"]
        wait_until("it runs", lambda: b"begun" in self.d.ask("GET", f"/v1/templates/builds/{number}/log").body)
        self.assertEqual(self.d.ask("DELETE", f"/v1/templates/builds/{number}").status, 204)
        self.assertEqual(self.wait(number)["state"], "cancelled")
        self.assertEqual(self.log(number)[-1]["message"], "the build was cancelled")
        wait_until("its sandbox is gone",
                   lambda: not self.d.ask("GET", "/v1/sandboxes").json["sandboxes"])
        self.assertEqual((self.layers_on_disk(), self.places()[1]), (before, []))
        self.assertEqual(self.d.ask("DELETE", f"/v1/templates/builds/{number}").status, 204)  # forgets it
        self.assertEqual(self.d.ask("GET", f"/v1/templates/builds/{number}").status, 404)

    def test_a_service_that_is_killed(self):
        """What is left is the template, and steps whose layers are there."""
        d = Daemon("")
        self.addCleanup(d.close)
        base = self.base(d=d)
        number = self.begin("FROM base\nRUN echo one > /one\nRUN echo begun; sleep 1000\n", d=d).json["id"]
        wait_until("the second step runs",
                   lambda: b"begun" in d.ask("GET", f"/v1/templates/builds/{number}/log").body)
        os.kill(self.pid_of(d, "brigd"), signal.SIGKILL)
        wait_until("it is back", lambda: self.is_up(d))
        wait_until("sandboxes of builds are gone", lambda: not d.ask("GET", "/v1/sandboxes").json["sandboxes"])
        wait_until("no file is left", lambda: self.places(d)[1] == [])
        self.assertEqual(d.ask("GET", "/v1/templates/built").status, 404)
        made, log = self.built("FROM base\nRUN echo one > /one\n", d=d)
        # The record of a step may be on its way when the service dies: then the step is done again.
        self.assertIn(self.cached(log), (["RUN echo one > /one"], []))
        wanted = {layer["id"] for layer in (*made["layers"], *base["layers"])}
        wait_until("no other layer is left", lambda: self.layers_on_disk(d) == wanted)

    @staticmethod
    def pid_of(d, name):
        top = d.process.pid
        with open(f"/proc/{top}/task/{top}/children", encoding="ascii") as f:
            for pid in f.read().split():
                with open(f"/proc/{pid}/comm", encoding="ascii") as comm:
                    if comm.read().strip() == name:
                        return int(pid)
        raise AssertionError(f"no {name}")

    @staticmethod
    def is_up(d):
        try:
            return d.ask("GET", "/readyz").status == 200
        except OSError:
            return False


class Roles(BuildTest):
    def test_who_sees_and_may(self):
        self.base()
        org, other = (self.d.ask("POST", "/v1/orgs", {"name": name}).json["id"] for name in ("mine", "theirs"))
        user, admin = self.d.key(org=org, role="user"), self.d.key(org=org, role="admin")
        stranger = self.d.key(org=other, role="admin")
        refusal = self.begin("FROM scratch\n", key=user)
        self.refused(refusal, 403, "forbidden", "only an administrator may build templates ([templates] allow)")
        begun = self.begin("FROM scratch\n", key=admin, context=True).json["id"]
        for key, status, code in ((stranger, 404, "not_found"), (user, 403, "forbidden")):
            for method, path in (("GET", ""), ("GET", "/log"), ("DELETE", ""), ("PUT", "/context")):
                answer = self.d.ask(method, f"/v1/templates/builds/{begun}{path}", b"x" if method == "PUT" else None,
                                    key=key)
                self.assertEqual((answer.status, answer.json["error"]["code"]), (status, code), (method, path))
            self.assertEqual(self.d.ask("GET", "/v1/templates/builds", key=key).json["builds"], [])
        self.assertEqual(len(self.d.ask("GET", "/v1/templates/builds", key=admin).json["builds"]), 1)
        self.assertEqual(self.d.ask("GET", f"/v1/templates/builds/{begun}", key=admin).json["state"], "waiting")
        answer = self.begin("FROM scratch\n", key=admin, shared=True)
        self.refused(answer, 403, "forbidden", "shared: only the administrator of the host shares")

    def test_too_many_at_once(self):
        org = self.d.ask("POST", "/v1/orgs", {"name": "many"}).json["id"]
        key = self.d.key(org=org, role="admin")
        begun = [self.begin("FROM scratch\n", key=key, context=True) for _ in range(17)]
        self.assertEqual([answer.status for answer in begun], [201] * 16 + [429])
        self.assertIn("16 builds wait or run; at most 16 do at once", begun[-1].json["error"]["message"])
        for answer in begun[:-1]:
            self.assertEqual(self.d.ask("DELETE", f"/v1/templates/builds/{answer.json['id']}", key=key).status, 204)

    def test_audit_and_metrics(self):
        self.base()
        self.built("FROM base\nRUN true\n")
        self.refused_build("FROM base\nRUN false\n", "exited with 1")
        lines = self.d.ask("GET", "/v1/audit?limit=1000").body.splitlines()
        events = [e for e in map(json.loads, lines) if e["action"] == "template.build"]
        self.assertEqual([(e["object"], e["outcome"]) for e in events][-2:], [("built", "ok"), ("bad", "failed")])
        text = self.d.ask("GET", "/metrics").body.decode()
        for name in ("brig_template_builds_done_total", "brig_template_builds_failed_total",
                     "brig_template_build_steps_cached_total"):
            self.assertIn(name, text)


class CommandLine(BuildTest):
    def brig(self, *words, **kw):
        return subprocess.run([BRIG, "template", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              env=self.d.env, timeout=120, check=False, **kw)

    def test_build(self):
        self.base()
        self.addCleanup(self.d.ask, "DELETE", "/v1/templates/cli")
        directory = os.path.join(self.d.dir, "context")
        os.mkdir(directory)
        with open(os.path.join(directory, "Dockerfile"), "w", encoding="ascii") as f:
            f.write("FROM base\nARG W\nRUN echo said $W\n")
        got = self.brig("build", "-t", "cli", "--build-arg", "W=me", directory)
        self.assertEqual((got.returncode, got.stdout), (0, b"cli\n"), got)
        self.assertIn(b"[3/3] RUN echo said $W\nsaid me\n", got.stderr)
        got = self.brig("build", "-t", "cli", "--replace", "--build-arg", "W=me", "--progress", "quiet", directory)
        self.assertEqual((got.returncode, got.stdout, got.stderr), (0, b"cli\n", b""), got)
        got = self.brig("build", "-t", "cli", "--replace", "-o", "json", "-", input=b"FROM base\nRUN true\n")
        self.assertEqual(json.loads(got.stdout)["source"], "build")
        got = self.brig("build", "-t", "cli", directory)
        self.assertEqual(got.returncode, 125)
        self.assertIn(b"template cli: there is one of this name", got.stderr)

    def test_failures(self):
        self.base()
        lines = b"FROM base\nRUN for i in 1 2 3; do echo line $i; done; exit 4\n"
        got = self.brig("build", "-t", "no", "--progress", "quiet", "-", input=lines)
        self.assertEqual((got.returncode, got.stdout), (125, b""))
        self.assertIn(b"line 1\nline 2\nline 3\n", got.stderr)
        self.assertIn(b"line 2: RUN for i in 1 2 3", got.stderr)
        self.assertIn(b"the command exited with 4\n", got.stderr)
        for words, text in ((("-",), b"-t NAME: the template needs a name"),
                            (("-t", "x", "--progress", "loud", "-"), b"--progress loud: must be auto, plain or quiet"),
                            (("-t", "x", "--secret", "src=x", "-"), b"expected id=ID,src=FILE or id=ID,env=NAME"),
                            (("-t", "x", "/not/there"), b"/not/there/Dockerfile")):
            got = self.brig("build", *words, input=b"FROM base\n")
            self.assertEqual(got.returncode, 125, words)
            self.assertIn(text, got.stderr)


if __name__ == "__main__":
    unittest.main()
