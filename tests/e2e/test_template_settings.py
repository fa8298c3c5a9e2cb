# SPDX-License-Identifier: Apache-2.0
"""template.toml beside a Dockerfile: what a template says about the sandboxes that are made from it, who may have it,
and what is refused."""

import os
import subprocess
import unittest

from buildkit import BuildTest
from helpers import BRIG
from imagekit import Image, base_layer, entry, tar
from test_templates_tools import AT, python_layer

SETTINGS = """\
user = "33:44"
workdir = "/etc"
profile = "paranoid"

[limits]
memory = "192m"
pids = 77

[env]
GREETING = "from the template"
KEPT = "template"

[[service]]
name = "web"
argv = ["/bin/sh", "-c", "echo $GREETING > /tmp/web; exec sleep 1000"]
after = ["db"]
ready = { file = "/tmp/web" }

[[service]]
name = "db"
argv = ["/bin/sh", "-c", "id -u > /tmp/db; exec sleep 1000"]
env = { PORT = "1" }
ready = { file = "/tmp/db" }
restart = "always"
"""


class SettingsTest(BuildTest):
    def made(self, settings=SETTINGS, name="set", dockerfile="FROM base\nENV KEPT=image OTHER=image\n", **more):
        return self.built(dockerfile, name, template_toml=settings, **more)[0]

    def refused_settings(self, text, message, **more):
        self.refused_build("FROM base\n", message, template_toml=text, **more)


class Settings(SettingsTest):
    def test_a_template_names_its_provider(self):
        self.base()
        self.refused_settings('provider = "chroot"\n', "template.toml:1: provider chroot: there is no such one")
        self.assertEqual(self.made('provider = "vm"\n', "below")["settings"], {"provider": "vm"})
        made = self.made("[limits]\npids = 99\n", "above", "FROM below\n")
        self.assertEqual(made["settings"], {"limits": {"pids": 99}, "provider": "vm"})
        answer = self.d.ask("POST", "/v1/sandboxes", {"template": "above"})
        self.assertEqual((answer.status, answer.json["error"]["message"]),
                         (501, "provider vm: [vm] kernel and root are not set; brig-vm-prepare DIR makes both"))
        self.sandbox(template="above", provider="local")

    def test_a_sandbox_has_what_the_template_says(self):
        self.base()
        made = self.made()
        self.assertEqual((made["image"]["user"], made["image"]["workdir"]), ("33:44", "/etc"))
        self.assertEqual([e for e in made["image"]["env"] if e.startswith(("KEPT", "OTHER"))],
                         ["KEPT=template", "OTHER=image"])
        settings = made["settings"]
        self.assertEqual((settings["profile"], settings["limits"]), ("paranoid", {"memory": "192m", "pids": 77}))
        self.assertEqual([s["name"] for s in settings["services"]], ["web", "db"])
        sid = self.sandbox(template="set")
        box = self.d.ask("GET", f"/v1/sandboxes/{sid}").json
        self.assertEqual((box["limits"]["memory"], box["limits"]["pids"], box["profile"]), (192 << 20, 77, "paranoid"))
        self.assertEqual(box["services"], ["db", "web"])
        run = self.d.run(sid, "/bin/sh", "-c", "pwd; id -u; id -g; echo $GREETING $KEPT; cat /tmp/web /tmp/db")
        self.assertEqual(run["stdout"], "/etc\n33\n44\nfrom the template template\nfrom the template\n33\n")

    def test_a_create_overrides_each(self):
        self.base()
        self.made()
        sid = self.sandbox(template="set", user="7:8", workdir="/tmp", profile="default", limits={"pids": 55},
                           env={"GREETING": "mine"},
                           services=[{"name": "web", "argv": ["/bin/sh", "-c", "exec sleep 2000"]}])
        box = self.d.ask("GET", f"/v1/sandboxes/{sid}").json
        self.assertEqual((box["limits"]["memory"], box["limits"]["pids"], box["profile"]), (192 << 20, 55, "default"))
        self.assertEqual(sorted(box["services"]), ["db", "web"])
        run = self.d.run(sid, "/bin/sh", "-c", "pwd; id -u; echo $GREETING; cat /tmp/db; ls /tmp/web 2>&1")
        self.assertEqual(run["stdout"].splitlines()[:4], ["/tmp", "7", "mine", "7"])
        self.assertIn("No such file", run["stdout"])

    def test_a_create_leaves_services_out(self):
        self.base()
        self.made()
        off = [{"name": name, "off": True} for name in ("web", "db")]

        def services(*given):
            made = self.d.ask("POST", "/v1/sandboxes", {"template": "set", "services": given})
            self.assertEqual(made.status, 201, made)
            self.addCleanup(self.d.ask, "DELETE", f"/v1/sandboxes/{made.json['id']}")
            return made.json.get("services", [])

        self.assertEqual(services(off[0]), ["db"])
        self.assertEqual(services(*off), [])
        self.assertEqual(services(off[1], {"name": "web", "argv": ["/bin/sleep", "1000"], "off": False}), ["web"])
        for given, message in ((off[1], 'service web: after "db": that one is off'),
                               ({"name": "none", "off": True}, "service none: off: the template has no such service"),
                               ({**off[0], "argv": ["x"]},
                                "service web: off: one that is off has a name and no other member"),
                               ({"name": "web", "off": 1}, "service web: off 1: must be true or false")):
            answer = self.d.ask("POST", "/v1/sandboxes", {"template": "set", "services": [given]})
            self.refused(answer, 400, "invalid_argument", message)
        words = [BRIG, "create", "--template", "set", "--no-service", "web", "--no-service", "db"]
        sid = subprocess.run(words, stdout=subprocess.PIPE, env=self.d.env, timeout=120, check=True).stdout.decode()
        self.addCleanup(self.d.ask, "DELETE", f"/v1/sandboxes/{sid.strip()}")
        self.assertEqual(self.d.ask("GET", f"/v1/sandboxes/{sid.strip()}").json.get("services", []), [])

    def test_a_template_on_it_has_it_too(self):
        self.base()
        self.made()
        made = self.made('[limits]\npids = 66\n[[service]]\nname = "db"\nargv = ["/bin/sleep", "7"]\n', "upper",
                         "FROM set\n")
        self.assertEqual(made["settings"]["limits"], {"memory": "192m", "pids": 66})
        self.assertEqual([(s["name"], len(s["argv"])) for s in made["settings"]["services"]], [("web", 3), ("db", 2)])
        self.assertEqual((made["settings"]["profile"], made["image"]["user"]), ("paranoid", "33:44"))
        plain = self.built("FROM set AS one\nFROM one\n", "same")[0]
        self.assertEqual(plain["settings"], self.d.ask("GET", "/v1/templates/set").json["settings"])
        tagged = self.d.ask("POST", "/v1/templates/set/tag", {"name": "again"})
        self.addCleanup(self.d.ask, "DELETE", "/v1/templates/again")
        self.assertEqual(tagged.json["settings"], plain["settings"])

    def test_its_working_directory_is_made(self):
        """As WORKDIR would: by root, after the last step, and without variables."""
        self.base()
        made, log = self.built("FROM base\nWORKDIR /first\nRUN pwd\n", "set",
                               template_toml='\nuser = "33:44"\nworkdir = "/not/there/$PATH"\n')
        self.assertEqual(self.output(log), "/first\n")
        self.assertEqual(made["image"]["workdir"], "/not/there/$PATH")
        last = self.events(log, "step")[-1]
        self.assertEqual((last["text"], last["line"], last["step"], last["of"]),
                         ("template.toml: workdir /not/there/$PATH", 3, 4, 4))
        box = self.d.ask("GET", f"/v1/sandboxes/{self.sandbox(template='set')}").json
        self.assertEqual((box["workdir"], box.get("note") or ""), ("/not/there/$PATH", ""))
        self.assertEqual(self.sh("set", "pwd; stat -c '%a %u %g' .").split(), ["/not/there/$PATH", "755", "0", "0"])
        again = self.run_build("FROM base\nWORKDIR /first\nRUN pwd\n", "set",
                               template_toml='\nuser = "33:44"\nworkdir = "/not/there/$PATH"\n')[1]
        self.assertIn(last["text"], self.cached(again))

    def test_beside_the_dockerfile_of_a_context(self):
        self.base()
        context = tar(entry("sub", mode=0o755), entry("sub/Dockerfile", b"FROM base\n"),
                      entry("template.toml", b"bad"),
                      entry("sub/template.toml", b"workdir = '/made'\n[limits]\npids = 50\n"))
        made, _ = self.built(None, context=context, path="sub/Dockerfile")
        self.assertEqual((made["settings"]["limits"], made["image"]["workdir"]), ({"pids": 50}, "/made"))
        self.assertEqual(self.sh("built", "pwd"), "/made\n")

    def test_runs_have_none_of_its_services(self):
        image = Image(base_layer(), python_layer(b"x\n"), config={"Env": [f"PATH=/{AT}/bin:/bin"]}, compress=False)
        self.loaded(image.oci(), "name=py")
        self.made('[[service]]\nname = "one"\nargv = ["/no/such/program"]\n', "set", "FROM py\n")
        answer = self.d.ask("POST", "/v1/sandboxes", {"template": "set"})
        self.refused(answer, 409, "conflict", "service one")
        answer = self.d.ask("POST", "/v1/run", {"language": "python", "template": "set", "code": "print(1 + 1)\n"})
        self.assertEqual((answer.status, answer.json.get("stdout")), (200, "2\n"), answer)


    def test_a_run_of_a_program_has_all_of_it(self):
        self.base()
        self.made()
        answer = self.d.ask("POST", "/v1/runs", {
            "sandbox": {"template": "set"}, "process": {"argv": ["/bin/sh", "-c", "pwd; id -u; cat /tmp/web"]}})
        self.assertEqual((answer.status, answer.json.get("stdout")), (200, "/etc\n33\nfrom the template\n"), answer)


class OverAnotherDefault(SettingsTest):
    CONFIG = '[sandbox]\nimage = "base"\n'

    def test_the_template_of_the_configuration_does_not_matter(self):
        self.base()
        self.assertEqual(self.made()["settings"]["profile"], "paranoid")


class Refusals(SettingsTest):
    CONFIG = '[manager]\norg_max_memory = "1g"\n'

    def test_each_rule_with_its_line(self):
        self.base()
        service = '[[service]]\nname = "a"\nargv = ["x"]\n'
        for text, message in (
                ("user = \n", "template.toml: line 1: "),
                ('\nsecrets = ["A"]\n', "template.toml:2: secrets: there is no such member (user, workdir, profile, "
                                        "provider, sudo, limits, env, service)"),
                ('network = "open"\n', "template.toml:1: network: there is no such member"),
                ('user = "a b"\n', 'template.toml:1: user "a b": must be NAME or UID'),
                ('\n\nworkdir = "etc"\n', "template.toml:3: workdir"),
                ('profile = "none"\n', 'template.toml:1: profile "none": must be one of default, paranoid, compat'),
                ('[limits]\npids = 10\nmemory = "much"\n', 'template.toml:3: limits.memory "much": must be a positive'),
                ("[limits]\nspeed = 1\n", "template.toml:2: limits.speed: there is no such limit"),
                ("[limits]\ncpu_time = 1\n", "template.toml:2: limits.cpu_time: nothing counts it"),
                ('[env]\n"A B" = "x"\n', "template.toml:2: env A B: a name must not hold spaces"),
                ("[env]\nA = 1\n", "template.toml:2: env A: must be a string"),
                ("service = 1\n", "template.toml:1: service: must be [[service]]"),
                (service + 'restart = "maybe"\n', 'template.toml:4: service a: restart "maybe": must be one of'),
                (service + service, "template.toml:4: services: there are two of the name a"),
                (service + "speed = 1\n", "template.toml:4: service a: speed: there is no such member"),
                ('[[service]]\nargv = ["x"]\n', "template.toml:1: services: each must have a name"),
                (service + 'after = ["b"]\n', 'template.toml:1: service a: after "b": there is no such service')):
            with self.subTest(text):
                self.refused_settings(text, message)

    def test_what_a_key_may_not_ask_for_it_does_not_get(self):
        d = self.d
        self.base()
        org = d.ask("POST", "/v1/orgs", {"name": "small"}).json["id"]
        user = d.key(org=org, role="user")
        for name, text, status, message in (
                ("wide", "[limits]\nconnections = 60000\n", 403, "template wide: limits.connections 60000: a key that "
                                                                 "is not an administrator's may ask for at most"),
                ("large", '[limits]\nmemory = "2g"\n', 429, "memory")):
            with self.subTest(name):
                self.made(text, name, shared=True)
                answer = d.ask("POST", "/v1/sandboxes", {"template": name}, key=user)
                self.assertEqual(answer.status, status, answer)
                self.assertIn(message, answer.json["error"]["message"])
        answer = d.ask("POST", "/v1/sandboxes", {"template": "wide", "limits": {"connections": 10, "memory": "64m"}},
                       key=user)
        self.assertEqual(answer.status, 201, answer)
        d.ask("DELETE", f"/v1/sandboxes/{answer.json['id']}", key=user)


class Services(SettingsTest):
    CONFIG = '[tools]\ndefault = "deny"\n'

    def test_a_key_that_may_bring_no_programs(self):
        self.base()
        self.made(shared=True)
        user = self.d.key(role="user")
        answer = self.d.ask("POST", "/v1/sandboxes", {"template": "set"}, key=user)
        self.assertEqual(answer.status, 403, answer)
        answer = self.d.ask("POST", "/v1/sandboxes", {"template": "base"}, key=user)
        self.assertEqual(answer.status, 201, answer)
        self.d.ask("DELETE", f"/v1/sandboxes/{answer.json['id']}", key=user)


class CommandLine(SettingsTest):
    def brig(self, *words):
        return subprocess.run([BRIG, "template", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              env=self.d.env, timeout=120, check=False)

    def write(self, name, text):
        with open(os.path.join(self.d.dir, "proj", name), "w", encoding="utf-8") as f:
            f.write(text)

    def test_build_and_inspect(self):
        self.base()
        top = os.path.join(self.d.dir, "proj")
        os.mkdir(top)
        self.write("Dockerfile", "FROM base\n")
        self.write("template.toml", SETTINGS)
        done = self.brig("build", "-t", "cli", top)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.addCleanup(self.d.ask, "DELETE", "/v1/templates/cli")
        shown = self.brig("inspect", "cli").stdout.decode()
        for text in ('"memory": "192m"', '"profile": "paranoid"', '"name": "web"', "GREETING=from the template"):
            self.assertIn(text, shown)
        self.write("template.toml", "speed = 1\n")
        done = self.brig("build", "-t", "cli2", top)
        self.assertEqual(done.returncode, 125, done)
        self.assertIn(b"template.toml:1: speed: there is no such member", done.stderr)


if __name__ == "__main__":
    unittest.main()
