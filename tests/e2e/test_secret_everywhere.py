# SPDX-License-Identifier: Apache-2.0
"""Where a secret's value comes out (attack T10): nowhere but where it was meant to be. Values go in by every way there
is, programs fail with them in their hands, and then every answer, log, trace and file is searched for them."""

import base64
import json
import os
import unittest
import urllib.parse

from helpers import wait_until
from lettakit import KEY, LettaTest
from service import Daemon
from test_secrets_api import files_below, spellings
from test_service_traces import Collector

BROKER = {"hosts": ["api.example"], "header": "Authorization", "format": "Bearer %s"}
NAMES = ("BROKERED", "EXPOSED", "VARIABLE", "AGENT", "CALL")
GIVEN = ("EXPOSED", "VARIABLE", "AGENT", "CALL")  # what programs of the runs below have in their environment
# These have no end.
STREAMS = ("/v1/events", "/v1/sandboxes/{id}/files/watch", "/v1/sandboxes/{id}/processes/{n}/attach", "/v1/runs/attach")
HAVE = "import os\nhave = [os.environ[n] for n in %r]\n" % (GIVEN,)
PLAIN_CODE = {
    "exception": HAVE + "raise ValueError(have)",
    "class": HAVE + "raise type(have[0], (KeyError,), {have[1]: have[2]})(have[3])",
    "no JSON": HAVE + "class Bad:\n    def __repr__(self): return have[0]\nBad()",
    "exit": HAVE + "import sys\nsys.exit(' '.join(have))",
    "killed": HAVE + "print(have, flush=True)\nos.kill(os.getpid(), 9)",
    "encoded": HAVE + "import base64, urllib.parse\nfor h in have:\n    b = h.encode()\n"
               "    print(base64.b64encode(b).decode(), b.hex(), urllib.parse.quote(h, safe=''))",
    "syntax": "import os\nexec(os.environ['EXPOSED'] + ' = (')",
}


def forms(value):
    return spellings(value) + [urllib.parse.quote(value, safe="").encode(),
                               base64.urlsafe_b64encode(value.encode())[:-4], json.dumps(value)[1:-1].encode()]


class Everywhere(LettaTest):
    @classmethod
    def setUpClass(cls):
        cls.collector = Collector()
        cls.addClassCleanup(cls.collector.close)
        traces = f'[server]\notlp_endpoint = "http://127.0.0.1:{cls.collector.server_address[1]}"\n'
        cls.d = Daemon(traces + "[audit]\npayloads = true\n", env={"BRIG_SECRETS_KEY": KEY})
        cls.values = {name: f"canary/{name.lower()}+{os.urandom(12).hex()}=" for name in NAMES}
        cls.keys = {role: cls.d.key(role=role) for role in ("admin", "user", "read-only")}

    def clean(self, data, where, names=NAMES):
        for name in names:
            for form in forms(self.values[name]):
                self.assertNotIn(form, data, f"{name} in {where}")

    def put_in(self):
        """All values are in; the ids that routes need."""
        for name, broker in (("BROKERED", {"broker": BROKER}), ("EXPOSED", {})):
            self.ask("PUT", f"/secrets/{name}", {"value": self.values[name], **broker}, status=201)
        config = self.ask("POST", "/sandbox-config/local/default")["id"]
        variable = self.ask("POST", f"/sandbox-config/{config}/environment-variable",
                            {"key": "VARIABLE", "value": self.values["VARIABLE"]})["id"]
        self.addCleanup(self.d.ask, "DELETE", f"/v1/sandbox-config/environment-variable/{variable}")
        agent = self.agent(secrets={"AGENT": self.values["AGENT"]})["id"]
        return {"sandbox_config_id": config, "env_var_id": variable, "agent_id": agent}

    def run_all(self, agent):
        """Programs that fail with values in their hands, each in another way. Their answers say nothing of them."""
        given = {"agent_id": agent, "env_vars": {"CALL": self.values["CALL"]},
                 "secrets": [{"name": "EXPOSED", "env": "EXPOSED", "expose": True}]}
        runs = []
        for name, code in PLAIN_CODE.items():
            answer = self.d.ask("POST", "/v1/run", {"language": "python", "code": code, **given})
            self.assertEqual(answer.status, 200, (name, answer))
            self.clean(answer.body, f"the answer of {name}")
            runs.append(answer.json["id"])
        words = 'set -eu; echo "$CALL" "$EXPOSED" >&2; "$AGENT"; echo "${VARIABLE?}"; ' + "cat \"/$CALL\""
        for body in ({"language": "bash", "code": words}, {"command": words}, {"command": ["sh", "-c", words]},
                     {"language": "javascript", "code": "throw new Error(JSON.stringify(process.env))"},
                     {"language": "python", "code": "1", "pip_requirements": ["no-such-package==0.0.0"]},
                     {"language": "python", "code": "1", "workdir": "/nowhere/at/all"},
                     {"language": "python", "code": "1", "limits": {"memory": "1"}},
                     {"language": "python", "code": "1", "network": {"default": "x"}}):
            answer = self.d.ask("POST", "/v1/run", {**body, **given})
            self.clean(answer.body, f"the answer of {body}")
            if answer.status == 200:
                runs.append(answer.json["id"])
        # Requests that are refused with a value in them.
        code = {"language": "python", "code": "1"}
        for path, body in (("/v1/run", {**code, "env_vars": {"A=B": self.values["CALL"]}}),
                           ("/v1/run", {**code, "env_vars": {"A": self.values["CALL"] + "\0"}}),
                           ("/v1/run", {**code, "env_vars": [self.values["CALL"]]}),
                           ("/v1/secrets/bad name", {"value": self.values["EXPOSED"]}),
                           ("/v1/secrets/NO", {"value": self.values["EXPOSED"] + "\n", "broker": BROKER}),
                           ("/v1/secrets/NO", {"value": [self.values["EXPOSED"]]})):
            answer = self.d.ask("PUT" if "secrets" in path else "POST", urllib.parse.quote(path), body)
            self.assertIn(answer.status, (400, 422), answer)
            self.clean(answer.body, f"the refusal of {path}")
        return runs

    def sandbox_with_values(self):
        network = {"default": "deny", "rules": [{"action": "allow", "domain": "api.example"}]}
        secrets = [{"name": "EXPOSED", "env": "EXPOSED", "expose": True}, {"name": "BROKERED", "env": "BROKERED"}]
        made = self.ask("POST", "/sandboxes", {"secrets": secrets, "network": network}, status=201,
                        key=self.keys["admin"])
        self.clean(json.dumps(made).encode(), "a new sandbox")
        return made["id"]

    def let_it_speak(self, box):
        """A sandbox of the administrator that has a value says it: its words are for administrators."""
        said = self.ask("POST", f"/sandboxes/{box}/run", {"argv": ["env"]}, key=self.keys["admin"])
        self.assertIn(self.values["EXPOSED"], said["stdout"])  # it is there
        self.clean(json.dumps(said).encode(), "a sandbox's environment", ("BROKERED", "VARIABLE", "AGENT", "CALL"))
        started = self.ask("POST", f"/sandboxes/{box}/processes", {"argv": ["env"]}, status=201, key=self.keys["admin"])
        process = f"/sandboxes/{box}/processes/{started['number']}"
        wait_until("it ended", lambda: not self.ask("GET", process)["running"])
        return started["number"], said["id"]

    def search_files(self):
        """What it keeps: the database, the audit log, the log, artifacts. A key is a value, too."""
        looked = 0
        for path, data in files_below(self.d.dir):
            looked += len(data)
            self.clean(data, path)
            for role, key in self.keys.items():
                self.assertNotIn(key.encode(), data, f"the {role} key in {path}")
        self.assertGreater(looked, 100000)

    def get_everything(self, ids, boxes):
        """Every GET route with every key: how many answers were good."""
        good = 0
        for route, verbs in self.d.ask("GET", "/v1/openapi.json").json["paths"].items():
            if "get" not in verbs or route in STREAMS:
                continue
            for role, key in (*self.keys.items(), ("socket", None)):
                for box, number, run in boxes if "{run}" in route else boxes[:1]:
                    path = route
                    for name, value in {**ids, "id": box, "sandbox": box, "n": number, "run": run}.items():
                        path = path.replace("{%s}" % name, str(value))
                    query = "?path=/proc/1/environ" if "/files" in route and "runs" not in route else ""
                    answer = self.d.ask("GET", path + query, key=key, tcp=key is not None, timeout=8)
                    good += answer.status == 200
                    strong = role in ("admin", "socket")
                    inside = strong and route.startswith("/v1/sandboxes/{id}/")
                    kept = strong and run == boxes[0][2] and route in ("/v1/runs/{run}", "/v1/runs")
                    self.clean(answer.body + str(answer.headers).encode(), f"GET {path} as {role}",
                               [n for n in NAMES if n != "EXPOSED"] if inside or kept else NAMES)
        return good

    def test_a_value_is_nowhere_else(self):
        ids = self.put_in()
        runs = self.run_all(ids["agent_id"])
        box = self.sandbox_with_values()
        for run in runs:
            wait_until("its row is there", lambda run=run: self.d.ask("GET", f"/v1/runs/{run}").status == 200)
        self.search_files()
        number, said = self.let_it_speak(box)  # output is kept as it is: SECURITY.md, "At rest"
        ids.update(name="EXPOSED", key="AGENT", policy="none", org="default", port=1, path="")
        boxes = [(box, number, run) for run in (said, *runs)]
        self.assertGreater(self.get_everything(ids, boxes), 100)
        for role in ("user", "read-only"):
            self.assertEqual(self.d.ask("GET", f"/v1/runs/{said}", key=self.keys[role], tcp=True).status, 403)
        self.assertEqual(self.d.ask("DELETE", f"/v1/sandboxes/{box}").status // 100, 2)
        self.get_everything(ids, boxes[:1])  # its certificate, and what is left of it
        self.clean(self.d.all_text().encode(), "the log")
        wait_until("spans came", lambda: self.collector.batches)
        self.clean(json.dumps(self.collector.batches).encode(), "a trace")


if __name__ == "__main__":
    unittest.main()
