# SPDX-License-Identifier: Apache-2.0
"""Many small runs of hostile tools at once, and what each came to."""

import concurrent.futures
import json

from lettakit import LettaTest

ANY = {"type": "object"}
# The runtime's own answerer, as a tool that looks for it finds it: user code shares the process, so what it can say of
# itself must be harmless.
ANSWERER = """import sys
frame, answer = sys._getframe(), None
while answer is None:
    answer, frame = frame.f_locals.get('answer'), frame.f_back
"""
# Bytes on the channel, wherever it is.
CHANNEL = """import os, struct, time
def say(data):
    for fd in range(3, 1024):
        try:
            os.write(fd, data)
        except OSError:
            pass
"""


def source(name, body, args=""):
    lines = "\n".join("    " + line for line in body.splitlines())
    return f'def {name}({args}):\n    """Does what the test wants."""\n{lines}\n'


class BadTest(LettaTest):
    CONFIG = "[tools]\nmax_runs = 200\n"
    LIMIT_SECONDS = 90

    def put(self, name, body, args="", key=None, **members):
        members.setdefault("json_schema", {"name": name, "description": "d", "parameters": ANY})
        return self.ask("POST", "/tools/", {"source_code": source(name, body, args), **members}, key=key)

    def go(self, name, key=None, **members):
        return self.d.ask("POST", f"/v1/tools/{name}/run", members, key=key, timeout=120)

    def one(self, name, body, args=None, key=None, **members):
        """The body of a function, run: what it answered, parsed."""
        self.put(name, body, ", ".join(args or {}), key=key)
        answer = self.go(name, key=key, **({"args": args} if args else {}), **members)
        self.assertEqual(answer.status, 200, answer)
        return answer.json

    def at_once(self, calls, workers=6):
        """{name: function of nothing}, side by side: {name: what it returned}."""
        with concurrent.futures.ThreadPoolExecutor(workers) as pool:
            futures = {name: pool.submit(call) for name, call in calls.items()}
            return {name: future.result() for name, future in futures.items()}

    def cases(self, cases, **common):
        """{name: (body, members)}, side by side."""
        return self.at_once({name: lambda name=name, case=case: self.one(name, case[0], **{**common, **case[1]})
                             for name, case in cases.items()})

    def ended(self, ran, name, error, cause="exited", code=0, sig=None, stdout="", hit=()):
        """An error, to the letter."""
        outcome = ran["receipt"]["outcome"]
        self.assertEqual((ran["status"], ran["result"], ran["error"]),
                         ("error", None, f"Error executing function {name}: {error}"), ran)
        self.assertEqual((outcome["cause"], outcome["exit_code"], outcome["signal"], outcome["limits_hit"]),
                         (cause, code, sig, list(hit)), (name, outcome))
        self.assertEqual(ran["stdout"], stdout, name)
        self.assertTrue(ran["stderr"].endswith(f"{error}\n"), (name, ran["stderr"][-300:]))

    def late(self, name, sig, text):
        """A registered tool that its timeout ends after it has printed the text. On a busy machine the first timeout
        may come before that, so there are others."""
        for seconds in (0.3, 3.0, 30.0):
            ran = self.go(name, timeout=seconds).json
            if ran["stdout"] == text:
                break
        self.ended(ran, name, f"TimeoutError: Executing tool {name} timed out after {seconds} seconds.", "timeout",
                   None, sig, text, ["timeout"])

    def returned(self, ran, result, stdout="", stderr="", hit=()):
        self.assertEqual((ran["status"], ran["result"], ran["error"], ran["stdout"], ran["stderr"]),
                         ("success", result, None, stdout, stderr), ran)
        self.assertEqual(ran["receipt"]["outcome"],
                         {"cause": "exited", "exit_code": 0, "signal": None, "limits_hit": list(hit)})

    def audit(self):
        return [json.loads(line) for line in self.d.ask("GET", "/v1/audit?limit=10000").body.decode().splitlines()
                if line.startswith("{")]
