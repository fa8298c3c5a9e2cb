# SPDX-License-Identifier: Apache-2.0
"""Secrets through the API and the command line of a real daemon: who may, what is refused, where keys come from, and
that nothing anywhere keeps a value: not the data base's files, the logs, the answers, the environment of a process, or
brigd's memory."""

import base64
import json
import os
import re
import stat
import subprocess
import tempfile
import unittest

from helpers import BRIG, Terminal, brig, wait_until
from service import Daemon, ServiceTest

KEY = "k1:000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
KEY2 = "k2:ff0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
VALUE = "hunter2-" + "correct-horse-battery-staple"
RULE = {"hosts": ["api.example.com"], "header": "Authorization", "format": "Bearer %s"}
NO_KEY = ("no key to seal secrets with: `brig secret keygen > FILE`, then key_file = \"FILE\" in [secrets] of "
          "config.toml")


def spellings(value):
    """A value as it would be found: itself, in hexadecimal, and in base64 at each of its three phases."""
    raw = value.encode()
    found = [raw, raw.hex().encode()]
    for shift in range(3):
        coded = base64.b64encode(b"\0" * shift + raw)
        found.append(coded[4 if shift else 0:-4])
    return found


def files_below(directory):
    for at, _, names in os.walk(directory):
        for name in names:
            path = os.path.join(at, name)
            if stat.S_ISREG(os.lstat(path).st_mode):
                with open(path, "rb") as f:
                    yield path, f.read()


def memory_of(pid):
    """All that can be written of a process's memory, piece by piece."""
    with open(f"/proc/{pid}/maps", encoding="utf-8") as maps, open(f"/proc/{pid}/mem", "rb", 0) as mem:
        for line in maps:
            start, end, rights = re.match(r"([0-9a-f]+)-([0-9a-f]+) (....)", line).groups()
            if rights[:2] != "rw" or "[v" in line:
                continue
            try:
                mem.seek(int(start, 16))
                yield mem.read(int(end, 16) - int(start, 16))
            except OSError:
                pass


class KeyedTest(ServiceTest):
    ENV = {"BRIG_SECRETS_KEY": KEY}
    CONFIG = ""

    @classmethod
    def setUpClass(cls):
        cls.d = Daemon(cls.CONFIG, cls.ENV)

    @classmethod
    def tearDownClass(cls):
        cls.d.close()

    def put(self, name, **members):
        return self.d.ask("PUT", f"/v1/secrets/{name}", members)

    def brig(self, *args, env=None, **kw):
        return brig("secret", *args, env={**self.d.env, **(env or {})}, **kw)


class Routes(KeyedTest):
    def test_a_life(self):
        made = self.put("GITHUB", value=VALUE, broker=RULE)
        self.assertEqual(made.status, 201, made)
        self.assertEqual({k: v for k, v in made.json.items() if not k.endswith("_at")},
                         {"name": "GITHUB", "broker": RULE, "key_id": "k1", "size": len(VALUE)})
        self.assertEqual(self.d.ask("GET", "/v1/secrets/GITHUB").json, made.json)
        again = self.put("GITHUB", value_base64=base64.b64encode(bytes(range(256))).decode(), broker=None)
        self.assertEqual((again.status, again.json["size"], again.json["broker"]), (200, 256, None), again)
        self.assertEqual(again.json["created_at"], made.json["created_at"])
        self.assertEqual([s["name"] for s in self.d.ask("GET", "/v1/secrets").json["secrets"] if s["name"] == "GITHUB"],
                         ["GITHUB"])
        self.assertEqual(self.d.ask("DELETE", "/v1/secrets/GITHUB").status, 204)
        self.assertEqual(self.d.ask("DELETE", "/v1/secrets/GITHUB").status, 404)
        self.assertEqual(self.d.ask("GET", "/v1/secrets/GITHUB").status, 404)

    def test_pages(self):
        for i in range(5):
            self.assertEqual(self.put(f"page{i}", value="x").status, 201)
        seen, cursor = [], None
        while True:
            page = self.d.ask("GET", "/v1/secrets?limit=2" + (f"&cursor={cursor}" if cursor else "")).json
            self.assertLessEqual(len(page["secrets"]), 2)
            seen += [s["name"] for s in page["secrets"] if s["name"].startswith("page")]
            cursor = page["next_cursor"]
            if not cursor:
                break
        self.assertEqual(seen, [f"page{i}" for i in range(5)])
        self.assertEqual(self.d.ask("GET", "/v1/secrets?cursor=../x").status, 400)

    def test_refusals(self):
        cases = [
            ({}, 400, "exactly one of value and value_base64"),
            ({"value": VALUE, "value_base64": "eA=="}, 400, "exactly one of"),
            ({"value": 1}, 400, "exactly one of"), ({"value": ""}, 400, "value: is empty"),
            ({"value_base64": VALUE + "!"}, 400, "value_base64: is not base64"),
            ({"value": "x" * 65537}, 413, "more than 65536 bytes"),
            ({"value": VALUE, "extra": 1}, 400, "extra: not a member"),
            ({"value": VALUE, "broker": {"hosts": ["a.b"]}}, 400, "exactly one of header, query, basic and kind"),
            ({"value": VALUE + "\n", "broker": RULE}, 400, "control characters"),
            ({"value": VALUE, "broker": {**RULE, "header": "Host"}}, 400, "frames or routes"),
        ]
        for body, status, said in cases:
            answer = self.d.ask("PUT", "/v1/secrets/BAD", body)
            self.assertEqual(answer.status, status, answer)
            self.assertIn(said, answer.json["error"]["message"])
            self.assertNotIn("hunter2", answer.body.decode())
        for name in ("9a", "a%20b", "a%2Fb", "x" * 64, "%C3%A4", "-a"):
            self.assertEqual(self.d.ask("PUT", f"/v1/secrets/{name}", {"value": "x"}).status, 400, name)
        self.assertEqual(self.d.ask("GET", "/v1/secrets/BAD").status, 404)

    def test_who_may(self):
        org = self.d.ask("POST", "/v1/orgs", {"name": "other"}).json["id"]
        keys = {role: self.d.key(role=role, org=org) for role in ("admin", "user", "read-only")}

        def ask(role, *args):
            return self.d.ask(*args, tcp=True, key=keys[role])
        self.assertEqual(self.put("MINE", value=VALUE).status, 201)
        for role in ("user", "read-only"):
            self.assertEqual(ask(role, "PUT", "/v1/secrets/A", {"value": "x"}).status, 403)
            self.assertEqual(ask(role, "DELETE", "/v1/secrets/A").status, 403)
        self.assertEqual(ask("admin", "PUT", "/v1/secrets/A", {"value": "x"}).status, 201)
        for role in keys:  # their own, and nothing of another organisation's
            self.assertEqual([s["name"] for s in ask(role, "GET", "/v1/secrets").json["secrets"]], ["A"])
            self.assertEqual(ask(role, "GET", "/v1/secrets/MINE").status, 404)
        self.assertEqual(ask("admin", "DELETE", "/v1/secrets/MINE").status, 404)
        self.assertEqual(self.d.ask("GET", "/v1/secrets", tcp=True).status, 401)
        self.assertEqual(self.d.ask("DELETE", f"/v1/orgs/{org}").status, 204)
        self.assertEqual(self.d.ask("GET", "/v1/secrets/MINE").status, 200)

    def test_survives_a_restart(self):
        self.assertEqual(self.put("KEPT", value=VALUE, broker=RULE).status, 201)
        before = self.d.ask("GET", "/v1/secrets/KEPT").json
        pid = self.d.children()["brigd"]
        os.kill(pid, 9)
        wait_until("a new brigd", lambda: self.d.children().get("brigd", pid) != pid)
        self.d.wait_ready()
        self.assertEqual(self.d.ask("GET", "/v1/secrets/KEPT").json, before)
        self.assertEqual(self.put("AFTER", value="x").json["key_id"], "k1")  # the new one has the keys, too


class Nowhere(KeyedTest):
    def test_no_value_anywhere(self):
        brigd = self.d.children()["brigd"]
        small = [f"{VALUE}-{i}-" + os.urandom(8).hex() for i in range(3)]
        answers = [self.put("JSON", value=small[0], broker=RULE),
                   self.put("CODED", value_base64=base64.b64encode(small[1].encode()).decode()),
                   self.put("BAD", value=small[2], broker={"hosts": []}),
                   self.d.ask("PUT", "/v1/secrets/BAD", f'{{"value": "{small[2]}"'.encode()),
                   self.d.ask("GET", "/v1/secrets"), self.d.ask("GET", "/v1/secrets/JSON"),
                   self.d.ask("GET", "/v1/config"), self.d.ask("GET", "/v1/audit")]
        self.assertEqual([a.status for a in answers], [201, 201, 400, 400, 200, 200, 200, 200])
        done = self.brig("set", "CLI", stdin=(small[0] + "\n").encode())
        self.assertEqual((done.returncode, done.stdout), (0, b"CLI\n"), done)
        long = "".join(os.urandom(20).hex() for _ in range(1600))  # in several reads
        self.assertEqual(self.put("LONG", value=long).status, 201)
        small.append(long[30000:30100])
        places = [("answers", repr([(a.body, str(a.headers)) for a in answers]).encode()),
                  ("cli", done.stdout + done.stderr), *files_below(self.d.dir)]
        names = [os.path.basename(p) for p, _ in places]
        self.assertIn("log", names)
        if not self.d.database:
            self.assertIn("brig.db-wal", names)
        for value in small:
            for text in spellings(value):
                for where, data in places:
                    self.assertNotIn(text, data, where)
        for where, data in places:  # nor of the key
            self.assertNotIn(b"18191a1b1c1d1e1f", data, where)
            self.assertNotIn(bytes(range(32)), data, where)
        if os.geteuid() == 0:
            for value in small:
                for data in memory_of(brigd):
                    for text in spellings(value):
                        self.assertFalse(text in data, f"brigd's memory has {text!r}")
            # it can be read at all
            self.assertTrue(any(b"serve.start" in data or b"/v1/secrets" in data for data in memory_of(brigd)))

    def test_audit_has_the_name_only(self):
        self.put("AUDITED", value=VALUE)
        self.d.ask("DELETE", "/v1/secrets/AUDITED")
        events = [json.loads(line)
                  for line in self.d.ask("GET", "/v1/audit?limit=1000").body.decode().splitlines() if "AUDITED" in line]
        self.assertEqual([(e["action"], e["object"], e["outcome"], e["detail"]) for e in events],
                         [("secret.set", "AUDITED", "ok", ""), ("secret.delete", "AUDITED", "ok", "")])

    def test_the_key_is_in_no_environment(self):
        for pid in (self.d.process.pid, *self.d.children().values()):
            with open(f"/proc/{pid}/environ", "rb") as f:
                text = f.read()
            self.assertNotIn(b"18191a1b", text, pid)
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                self.assertNotIn(b"18191a1b", f.read(), pid)
        self.assertNotIn("18191a1b", self.d.text())


class Keys(unittest.TestCase):
    """Where the ring comes from. Each case has a daemon of its own."""

    LIMIT_SECONDS = 120

    @classmethod
    def setUpClass(cls):
        cls.dir = tempfile.mkdtemp(prefix="brig-keys-")

    @classmethod
    def tearDownClass(cls):
        subprocess.run(["rm", "-rf", cls.dir], check=True)

    def file(self, name, text, mode=0o600):
        path = os.path.join(self.dir, name)
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
        os.chmod(path, mode)
        return path

    def daemon(self, config="", **env):
        d = Daemon(config, env)
        self.addCleanup(d.close)
        return d

    def assert_key(self, d, key_id):
        made = d.ask("PUT", "/v1/secrets/A", {"value": VALUE})
        self.assertEqual((made.status, made.json.get("key_id")), (201, key_id), made)

    def fails(self, *words, config="", env=None):
        """brig serve says so and ends."""
        path = self.file("config.toml", config)
        done = subprocess.run([BRIG, "serve", "--config", path], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=60, check=False,
                              env={**os.environ, "BRIG_STATE_DIR": f"{self.dir}/state",
                                   "BRIG_RUN_DIR": f"{self.dir}/run", "BRIG_SOCKET": f"{self.dir}/run/s",
                                   "BRIG_LISTEN": "", **(env or {})})
        text = done.stdout.decode()
        self.assertEqual(done.returncode, 125, text)
        for word in words:
            self.assertIn(word, text)
        self.assertNotIn("18191a1b", text)

    def test_file(self):
        d = self.daemon(
            f'[secrets]\nkey_file = "{self.file("two", f"# mine{chr(10)}{KEY2}{chr(10)}{KEY}{chr(10)}")}"\n')
        self.assert_key(d, "k2")

    def test_command(self):
        self.assert_key(self.daemon(f'[secrets]\nkey_command = ["/bin/echo", "{KEY2}"]\n'), "k2")

    def test_another_variable(self):
        d = self.daemon('[secrets]\nkey_env = "MY_KEYS"\n', MY_KEYS=KEY2)
        self.assert_key(d, "k2")
        for pid in (d.process.pid, *d.children().values()):
            with open(f"/proc/{pid}/environ", "rb") as f:
                self.assertNotIn(b"18191a1b", f.read())

    @unittest.skipUnless(os.geteuid() == 0, "needs root to be somebody else")
    def test_rootless(self):
        user = 64998
        os.chmod(self.dir, 0o755)
        path = self.file("theirs", KEY2)
        os.chown(path, user, user)
        d = Daemon(f'[secrets]\nkey_file = "{path}"\n', user=user)
        self.addCleanup(d.close)
        self.assert_key(d, "k2")
        # root does not take another user's
        self.fails("must belong to the service's user", config=f'[secrets]\nkey_file = "{path}"\n')

    def test_keygen_into_a_file(self):
        path = os.path.join(self.dir, "generated")
        with open(path, "wb") as out:
            subprocess.run([BRIG, "secret", "keygen"], stdout=out, check=True, timeout=60)
        self.assertEqual(stat.S_IMODE(os.stat(path).st_mode), 0o600)
        with open(path, encoding="ascii") as f:
            made = re.fullmatch(r"(k[0-9a-f]{8}):[0-9a-f]{64}\n", f.read())
        self.assert_key(self.daemon(f'[secrets]\nkey_file = "{path}"\n'), made.group(1))
        self.assertRegex(brig("secret", "keygen", "--id", "mine").stdout.decode(), r"^mine:[0-9a-f]{64}\n$")
        self.assertIn(b"--id plain", brig("secret", "keygen", "--id", "plain").stderr)

    def test_none(self):
        d = self.daemon()
        answer = d.ask("PUT", "/v1/secrets/A", {"value": VALUE})
        self.assertEqual(answer.status, 409, answer)
        self.assertIn(NO_KEY, answer.json["error"]["message"])
        done = brig("secret", "set", "A", stdin=VALUE.encode(), env=d.env)
        self.assertEqual(done.returncode, 125)
        self.assertIn(NO_KEY, done.stderr.decode())
        self.assertEqual(done.stderr.count(b"\n"), 1)
        self.assertEqual(d.ask("GET", "/v1/secrets").json["secrets"], [])
        for path, data in files_below(d.dir):
            self.assertNotIn(VALUE.encode(), data, path)

    def test_plaintext_switch(self):
        d = self.daemon("[secrets]\ninsecure_plaintext = true\n")
        self.assert_key(d, "plain")
        self.assertIn("secrets are stored UNENCRYPTED", d.text())
        shown = brig("config", "show", env=d.env)
        self.assertIn(b"UNENCRYPTED", shown.stdout + shown.stderr)
        if not d.database:  # that this search finds what is there
            self.assertTrue(any(base64.b64encode(VALUE.encode())[:-4] in data for _, data in files_below(d.dir)))

    def test_a_key_wins_over_the_switch(self):
        self.assert_key(self.daemon("[secrets]\ninsecure_plaintext = true\n", BRIG_SECRETS_KEY=KEY), "k1")

    def test_another_key_later(self):
        d = self.daemon(BRIG_SECRETS_KEY=KEY)
        self.assert_key(d, "k1")
        d.stop()
        d.env["BRIG_SECRETS_KEY"] = f"{KEY2}\n{KEY}"
        d.start()
        d.wait_ready()
        self.assertEqual(d.ask("GET", "/v1/secrets/A").json["key_id"], "k1")
        self.assertEqual(d.ask("PUT", "/v1/secrets/A", {"value": "x"}).json["key_id"], "k2")

    def test_refusals(self):
        open_file, good = self.file("open", KEY, 0o644), self.file("good", KEY)
        self.fails("must belong to the service's user and be closed to others: chmod 600",
                   config=f'[secrets]\nkey_file = "{open_file}"\n')
        self.fails("No such file", config='[secrets]\nkey_file = "/nonexistent/keys"\n')
        self.fails("not a file", config='[secrets]\nkey_file = "/dev/null"\n')
        self.fails("there is no key in it", config=f'[secrets]\nkey_file = "{self.file("nothing", "")}"\n')
        self.fails("no key ring", config=f'[secrets]\nkey_file = "{self.file("large", "#" * 20000)}"\n')
        self.fails("they come from one of them", config=f'[secrets]\nkey_file = "{good}"\n',
                   env={"BRIG_SECRETS_KEY": KEY})
        self.fails("both set", config=f'[secrets]\nkey_file = "{good}"\nkey_command = ["/bin/true"]\n')
        self.fails("failed (exit status 1)", config='[secrets]\nkey_command = ["/bin/false"]\n')
        self.fails("failed (exit status 127)", config='[secrets]\nkey_command = ["/nonexistent"]\n')
        self.fails("absolute path", config='[secrets]\nkey_command = ["echo", "x"]\n')
        self.fails("there is no key in it", config='[secrets]\nkey_command = ["/bin/true"]\n')
        self.fails("no key ring", config='[secrets]\nkey_command = ["/usr/bin/yes"]\n')
        self.fails("must not be one of brig's own variables", config='[secrets]\nkey_env = "BRIG_SECRETS_OTHER"\n')
        self.fails("BRIG_SECRETS_KEYS: there is no such setting", env={"BRIG_SECRETS_KEYS": KEY})

    def test_command_that_hangs(self):
        self.fails("has not ended after 10 s", config='[secrets]\nkey_command = ["/bin/sleep", "4242"]\n')
        self.assertEqual(subprocess.run(["pgrep", "-f", "^/bin/sleep 4242$"], stdout=subprocess.DEVNULL,
                                        check=False).returncode,
                         1)


class CommandLine(KeyedTest):
    def test_life(self):
        done = self.brig("set", "GITHUB", "--broker",
                         "host=api.example.com,host=*.example.org:8443,header=Authorization,format=Bearer %s, so",
                         stdin=VALUE.encode() + b"\n")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, b"GITHUB\n", b""), done)
        self.assertEqual(self.d.ask("GET", "/v1/secrets/GITHUB").json["broker"],
                         {"hosts": ["api.example.com", "*.example.org:8443"], "header": "Authorization",
                          "format": "Bearer %s, so"})
        self.assertEqual(self.d.ask("GET", "/v1/secrets/GITHUB").json["size"], len(VALUE))  # the newline is cut, once
        self.assertEqual(json.loads(self.brig("ls", "-o", "json").stdout)["secrets"][0]["name"], "GITHUB")
        self.assertEqual(self.brig("ls", "-q").stdout, b"GITHUB\n")
        table = self.brig("ls").stdout.decode()
        self.assertRegex(table, r"GITHUB +Authorization: api\.example\.com \*\.example\.org:8443 +k1 +36 B")
        self.assertEqual(self.brig("rm", "GITHUB").stdout, b"GITHUB\n")
        gone = self.brig("rm", "GITHUB")
        self.assertEqual((gone.returncode, b"not found" in gone.stderr), (125, True), gone)

    def test_sources(self):
        with tempfile.NamedTemporaryFile() as f:
            f.write(b"\0\xff\n\n")
            f.flush()
            self.assertEqual(self.brig("set", "F", "--from-file", f.name, "-q").stdout, b"")
            self.assertEqual(self.d.ask("GET", "/v1/secrets/F").json["size"], 3)
        made = self.brig("set", "-o", "json", "--from-env", "MY_VALUE", "E", env={"MY_VALUE": "from env"})
        self.assertEqual(json.loads(made.stdout)["size"], 8)
        for rule, key in (("host=a.b,query=api_key", "query"), ("basic=user,host=a.b", "basic"),
                          ("host=a.b,basic=password", "basic")):
            self.assertEqual(self.brig("set", "R", "--broker", rule, stdin=b"a-value-1").returncode, 0, rule)
            self.assertIn(key, self.d.ask("GET", "/v1/secrets/R").json["broker"])
        self.assertEqual(self.brig("set", "R", "--broker", 'host="a.b",header=A,format="Bearer %s"',
                                   stdin=b"a-value-1").returncode,
                         0)
        self.assertEqual(self.d.ask("GET", "/v1/secrets/R").json["broker"],
                         {"hosts": ["a.b"], "header": "A", "format": "Bearer %s"})
        self.assertEqual(self.brig("set", "R", "--broker", "host=a.b,kind=aws-sigv4", stdin=b"AKIA:secret").returncode,
                         0)

    def test_refusals(self):
        for args, said in ((("X", VALUE), "not taken from the command line"),
                           (("--from-env", "NONE_SUCH", "X"), "no such variable"),
                           (("X", "--from-file", "/nonexistent"), "No such file"),
                           (("X", "--from-file", "/dev/null", "--from-env", "HOME"), "only one of them"),
                           (("X", "--from-file", "/dev/null"), "value: is empty"),
                           (("X", "--from-file", "/dev/zero"), "at most 65536 bytes"), ((), "no name given"),
                           (("X", "--broker", "hosts=a.b"), "must be host=NAME"),
                           (("X", "--broker", "host=https://a.b,header=A"), "must be a host, not a URL"),
                           (("X", "--broker", "host=a.b,header=A,header=B"), "header is there twice"),
                           (("9", "--from-env", "HOME"), "a secret's name has"),
                           (("X", "--broker", "host=1.2.3.4,header=A", "--from-env", "HOME"), "not a host name")):
            done = self.brig("set", *args, stdin=b"")
            self.assertEqual((done.returncode, done.stdout), (125, b""), done)
            self.assertIn(said, done.stderr.decode())
            self.assertNotIn(b"hunter2", done.stderr)
        done = self.brig("set", "X", "--broker", "host=a.b,header=A", stdin=b"hunter2")
        self.assertEqual((done.returncode, done.stdout), (125, b""), done)
        self.assertIn(b"at least 8 bytes", done.stderr)
        self.assertNotIn(b"hunter2", done.stderr)

    def test_terminal(self):
        with Terminal(BRIG, "secret", "set", "TYPED", env=self.d.env) as t:
            t.expect(b"value of TYPED: ")
            t.type(b"typed-by-hand\n")
            shown = t.expect(b"TYPED\r\n")
            self.assertNotIn(b"typed-by-hand", shown or b"")
            self.assertEqual(t.wait(), 0)
        self.assertEqual(self.d.ask("GET", "/v1/secrets/TYPED").json["size"], 13)
        with Terminal(BRIG, "secret", "set", "NOT", env=self.d.env) as t:
            t.expect(b"value of NOT: ")
            t.type(b"abc\x03")
            t.expect(b"nothing was stored")
            self.assertEqual(t.wait(), 125)
        self.assertEqual(self.d.ask("GET", "/v1/secrets/NOT").status, 404)


if __name__ == "__main__":
    unittest.main()
