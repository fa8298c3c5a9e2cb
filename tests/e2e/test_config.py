# SPDX-License-Identifier: Apache-2.0
"""`brig config check` and `show`: what a file means, where each value came from, and the exact line where it is
wrong."""

import json
import os
import re
import unittest

from helpers import BrigTest, brig, environment

OPENMANUS = """\
# Global LLM configuration
[llm]
model = "some-model"
base_url = "https://llm.example/v1/"
api_key = "sk-very-secret"
max_tokens = 8192
temperature = 0.0

[llm.vision]
model = "some-model"
api_key = "sk-very-secret"

[browser]
headless = false
[browser.proxy]
server = "http://proxy:8080"

[search]
engine = "Google"
fallback_engines = ["DuckDuckGo", "Baidu", "Bing"]

[sandbox]
use_sandbox = false
image = "python:3.12-slim"
work_dir = "/workspace"
memory_limit = "1g"  # 512m
cpu_limit = 2.0
timeout = 300
network_enabled = true

[mcp]
server_reference = "app.mcp.server" # default server module reference

[runflow]
use_data_analysis_agent = false

[daytona]
daytona_api_key = "sk-very-secret"
"""


class Config(BrigTest):
    def config(self, *args, text=None, **variables):
        """Runs it in an empty directory with nothing of the caller's in its environment."""
        if text is not None:
            self.write("config.toml", text)
            args += ("--config", "config.toml")
        env = {k: v for k, v in environment().items()
               if not k.startswith(("BRIG_SERVER", "BRIG_STORE", "BRIG_MANAGER", "BRIG_SANDBOX", "BRIG_CONFIG"))
               and k not in ("BRIG_SOCKET", "BRIG_LISTEN", "BRIG_DATABASE_URL")}
        env.update(HOME=self.dir, BRIG_RUN_DIR="/run/somewhere", **variables)
        return brig("config", *args, cwd=self.dir, env=env)

    def rows(self, *args, **kw):
        done = self.config("show", "-o", "json", *args, **kw)
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        return {f"{row['section']}.{row['key']}": row for row in json.loads(done.stdout)}

    def test_no_file_means_defaults(self):
        done = self.config("check")
        if not os.path.exists("/etc/brig/config.toml"):
            self.assertEqual((done.returncode, done.stdout, done.stderr), (0, b"no file, all defaults: ok\n", b""))
        row = self.rows()["server.listen"]
        self.assertEqual((row["value"], row["source"], row["variable"], row["reloadable"]),
                         ("127.0.0.1:2744", "default", "BRIG_LISTEN", False))

    def test_an_openmanus_file_loads(self):
        done = self.config("check", text=OPENMANUS)
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        said = done.stdout.decode().splitlines()
        self.assertEqual(said[-1], "config.toml: ok")
        for section in ("llm", "browser", "search", "mcp", "runflow", "daytona"):
            self.assertEqual(sum(f"section [{section}] is not used here" in line for line in said), 1, section)
        self.assertIn("config.toml:23: use_sandbox = false is without effect: everything runs in sandboxes", said)
        self.assertIn("config.toml:24: image `python:3.12-slim` means the template `host`: the Python of this host",
                      said)
        self.assertFalse([line for line in said if "network_enabled" in line])  # it is in effect: the network is `open`
        rows = self.rows(text=OPENMANUS)
        self.assertEqual((rows["sandbox.memory_limit"]["value"], rows["sandbox.memory_limit"]["origin"]),
                         ("1g", "config.toml:26"))
        self.assertEqual(rows["sandbox.cpu_limit"]["value"], "2")
        self.assertEqual(rows["sandbox.timeout"]["value"], "300s")
        for args in (("check",), ("show",), ("check", "-o", "json"), ("show", "-o", "json")):
            done = self.config(*args, text=OPENMANUS)
            self.assertNotIn(b"very-secret", done.stdout + done.stderr)

    def test_a_wrong_type_in_an_unused_section_is_wrong(self):
        done = self.config("check", text="[llm]\nmodel = 1\n")
        self.assertEqual((done.returncode, done.stdout, done.stderr),
                         (1, b"", b"brig: config.toml:2: [llm] model: must be a string\n"))

    def test_an_unknown_key_names_its_line(self):
        done = self.config("check", text="[server]\n\n\nlistn = '127.0.0.1:1'\n")
        self.assertEqual((done.returncode, done.stderr),
                         (1, b"brig: config.toml:4: unknown key `listn` in [server]; did you mean `listen`?\n"))
        done = self.config("show", text="[server]\n\n\nlistn = '127.0.0.1:1'\n")
        self.assertEqual((done.returncode, done.stdout), (125, b""))

    def test_check_as_json(self):
        done = self.config("check", "-o", "json", text="[manager]\nmax_sandboxes = 'x'\n")
        self.assertEqual(done.returncode, 1)
        said = json.loads(done.stdout)
        self.assertEqual((said["ok"], said["error"]),
                         (False,
                          'config.toml:2: [manager] max_sandboxes = "x": must be a whole number from 1 to 1000000'))
        done = self.config("check", "-o", "json", text="[sandbox]\nuse_sandbox = false\n")
        said = json.loads(done.stdout)
        self.assertEqual((done.returncode, said["ok"], said["file"], len(said["notes"])), (0, True, "config.toml", 1))

    def test_the_sample_is_a_configuration(self):
        """As printed, and with every line of it switched on: every key is there, and the values are the defaults."""
        said = self.config("sample").stdout.decode()
        self.assertEqual(self.config("check", text=said).returncode, 0)
        on = re.sub(r"(?m)^#(\w+ = )", r"\1", said)
        done = self.config("check", text=on)
        self.assertEqual(done.returncode, 0, done)
        defaults, rows = self.rows(), self.rows(text=on)
        # in the run directory, which the environment names here
        defaults.pop("server.socket"), rows.pop("server.socket")
        self.assertEqual({k: v["value"] for k, v in rows.items()}, {k: v["value"] for k, v in defaults.items()})
        self.assertEqual({v["source"] for v in rows.values()}, {"file"})

    def test_where_a_value_came_from(self):
        rows = self.rows(text="[manager]\nmax_sandboxes = 5\npool = 3\n", BRIG_MANAGER_MAX_SANDBOXES="7")
        self.assertEqual((rows["manager.max_sandboxes"]["value"], rows["manager.max_sandboxes"]["origin"]),
                         ("7", "BRIG_MANAGER_MAX_SANDBOXES"))
        self.assertEqual((rows["manager.pool"]["value"], rows["manager.pool"]["origin"]), ("3", "config.toml:3"))
        self.assertEqual(rows["server.socket"]["value"], "/run/somewhere/brig.sock")

    def test_every_key_is_settable_by_its_variable(self):
        """Each key's own value goes back in through its own variable, and show then names that variable."""
        same = {"server.socket": "/run/x.sock", "server.tls_cert": None, "server.tls_key": None,
                "store.database_url": "sqlite:/x"}
        for name, row in self.rows().items():
            value = same.get(name, row["value"])
            if value is None:
                continue
            for variable in {row["variable"], "BRIG_" + name.replace(".", "_").upper()}:
                again = self.rows(**{variable: value})[name]
                self.assertEqual((again["value"], again["origin"]), (value, variable))

    def test_unknown_variables_are_refused(self):
        done = self.config("check", BRIG_SANDBOX_MEMORY_LIMT="1g")
        self.assertEqual(
            (done.returncode, done.stderr),
            (1, b"brig: BRIG_SANDBOX_MEMORY_LIMT: there is no such setting; did you mean BRIG_SANDBOX_MEMORY_LIMIT?\n"))
        done = self.config("check", BRIG_SERVER_MAX_CONNECTIONS="0")
        self.assertEqual((done.returncode, done.stderr),
                         (1, b"brig: BRIG_SERVER_MAX_CONNECTIONS = 0: must be a whole number from 1 to 1000000\n"))

    def test_a_password_is_not_shown(self):
        rows = self.rows(text="[store]\ndatabase_url = 'postgresql://u:hunter2@db/x'\n")
        self.assertEqual(rows["store.database_url"]["value"], "postgresql://u:***@db/x")
        done = self.config("check", BRIG_DATABASE_URL="postgre://u:hunter2@db/x")
        self.assertEqual((done.returncode, done.stderr),
                         (1, b"brig: BRIG_DATABASE_URL: must be postgresql://... or sqlite:/path, or empty\n"))

    def test_the_order_of_places(self):
        os.makedirs(self.path("config"))
        os.makedirs(self.path(".config/brig"))
        self.write(".config/brig/config.toml", "[manager]\npool = 2\n")
        self.assertEqual(self.rows()["manager.pool"]["value"], "2")
        self.write("config/config.toml", "[manager]\npool = 3\n")
        self.assertEqual(self.rows()["manager.pool"]["origin"], "config/config.toml:2")
        self.write("other.toml", "[manager]\npool = 5\n")
        self.assertEqual(self.rows(BRIG_CONFIG=self.path("other.toml"))["manager.pool"]["value"], "5")
        self.assertEqual(self.rows("--config", "config/config.toml",
                                   BRIG_CONFIG=self.path("other.toml"))["manager.pool"]["value"],
                         "3")
        done = self.config("check", "--config", "missing.toml")
        self.assertEqual((done.returncode, done.stderr), (1, b"brig: missing.toml: No such file or directory\n"))

    def test_a_file_that_everybody_can_write_to(self):
        self.write("config.toml", "", mode=0o666)
        done = self.config("check", "--config", "config.toml")
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"config.toml may be written to by everybody", done.stderr)

    def test_an_open_address_needs_tls(self):
        done = self.config("check", text="[server]\nlisten = '0.0.0.0:2744'\n")
        self.assertEqual((done.returncode, done.stderr),
                         (1, b"brig: server.listen = 0.0.0.0:2744: an address that is not loopback needs tls_cert and "
                          b"tls_key, or insecure = true\n"))

    def test_usage(self):
        for args, words in (((), b"is missing"), (("frob",), b"must be check, show, sample or reload"),
                            (("check", "x"), b"takes no arguments"),
                            (("show", "-o", "yaml"), b"must be table or json")):
            done = self.config(*args)
            self.assertEqual((done.returncode, done.stdout), (125, b""), args)
            self.assertIn(words, done.stderr)
        for args in (("--help",), ("check", "--help"), ("show", "-h")):
            done = self.config(*args)
            self.assertEqual((done.returncode, done.stderr), (0, b""))
            self.assertIn(b"usage: brig config", done.stdout)

    def test_table(self):
        text = self.config("show").stdout.decode()
        for section in ("[server]", "[store]", "[manager]", "[sandbox]"):
            self.assertIn(section, text)
        self.assertRegex(text, r"(?m)^listen +127\.0\.0\.1:2744 +default$")


if __name__ == "__main__":
    unittest.main()
