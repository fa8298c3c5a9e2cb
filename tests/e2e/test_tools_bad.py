# SPDX-License-Identifier: Apache-2.0
"""Bad input to tools, and bad tools: each with the exact answer. What the service refuses it refuses with a status and
a sentence; what a tool does to itself is the outcome of its own run."""

import base64
import hashlib
import json
import os
import unittest

from badkit import ANSWERER, ANY, CHANNEL, BadTest, source
from lettakit import ADD

CODE = "__import__('os').system('id')"
PROTOCOL = "RuntimeError: the answer is not what the protocol says"
NO_ANSWER = "RuntimeError: the program ended without an answer: exit code"
TOO_LARGE = "ResultTooLarge: the result is larger than the 16777216 bytes that are allowed"


class Requests(BadTest):
    """What comes in."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        strict = {"type": "object", "properties": {"a": {}, "b": {}}, "required": ["a"], "additionalProperties": False}
        for body in ({"source_code": ADD}, {"source_code": "def echo(a, b=None):\n    return [a, b]\n",
                                            "json_schema": {"name": "echo", "description": "d", "parameters": strict}}):
            answer = cls.d.ask("POST", "/v1/tools/", body)
            assert answer.status == 200, answer

    def raw(self, path, body):
        return self.d.ask("POST", f"/v1{path}", body if isinstance(body, bytes) else json.dumps(body).encode(),
                          headers={"Content-Type": "application/json"})

    def no(self, status, code, message, path, body):
        answer = self.raw(path, body)
        self.assertEqual((answer.status, answer.json["error"]["code"], answer.json["error"]["message"]),
                         (status, code, message), str(body)[:200])

    def test_arguments_are_data(self):
        odd = [CODE, "'); raise SystemExit(9) #\n\"\"\"\\", "${HOME}", "`id`", "%s{0}", "</script>",
               "\x00\x1b[2J\u2028"]
        self.returned(self.go("echo", args={"a": odd, "b": {CODE: CODE}}).json, [odd, {CODE: CODE}])
        ran = self.raw("/run", {"command": ["printf", "%s|", *odd[:6]]}).json
        self.assertEqual((ran["status"], ran["stdout"]), ("success", "|".join(odd[:6]) + "|"), ran)
        large = "é" * (3 << 20)
        self.put("measure", "import hashlib\nreturn [len(s), hashlib.sha256(s.encode()).hexdigest()]", "s")
        ran = self.raw("/tools/measure/run", json.dumps({"args": {"s": large}}, ensure_ascii=False).encode()).json
        self.returned(ran, [3 << 20, hashlib.sha256(large.encode()).hexdigest()])
        # Keywords of Python are names like any other, for those who take them.
        self.put("keywords", "return sorted(k.items())", "**k")
        names = ["", "None", "__class__", "a b", "class", "lambda", "self"]
        self.returned(self.go("keywords", args={n: i for i, n in enumerate(names)}).json,
                      [[n, i] for i, n in enumerate(names)])

    def test_bodies(self):
        ten = b'{"args": {"a": "' + b"x" * (10 << 20) + b'"}}'
        for path in ("/tools/echo/run", "/tools/run", "/run"):
            self.no(413, "too_large", "the body is larger than is allowed here", path, ten)
        for depth in (63, 1000, 100000):
            self.no(400, "invalid_argument", "JSON, byte 77: nested too deeply", "/tools/echo/run",
                    b'{"args": {"a": ' + b"[" * depth + b"]" * depth + b"}}")
        self.no(400, "invalid_argument", "JSON, byte 260: nested too deeply", "/tools/echo/run",
                b'{"args":' + b'{"":' * 100000)
        deep = "[" * 59 + "]" * 59
        self.returned(self.raw("/tools/echo/run", f'{{"args": {{"a": {deep}}}}}'.encode()).json,
                      [json.loads(deep), None])
        self.ended(self.raw("/tools/echo/run", f'{{"args": {{"a": [{deep}]}}}}'.encode()).json, "echo",
                   "ValueError: the result is nested deeper than 60 levels")
        for body, message in ((b'{"args": {"a": 1, "a": 2}}', "JSON, byte 18: a key that was there before"),
                              (b'{"args": {"a": 1}, "args": {"a": 2}}', "JSON, byte 19: a key that was there before"),
                              (b'{"args": {"a": "\xff\xfe"}}', "JSON, byte 16: not UTF-8"),
                              (b'{"args": {"a": "\xc0\xaf"}}', "JSON, byte 16: not UTF-8"),
                              (b'{"args": {"a": "\xed\xa0\x80"}}', "JSON, byte 16: not UTF-8"),
                              (b'{"args": {"a": "\\ud800"}}', "JSON, byte 16: half of a surrogate pair"),
                              (b'{"args": {"a": NaN}}', "JSON, byte 15: not a value"),
                              (b'{"args": {"a": 1e999}}', "JSON, byte 15: a number that is too large"),
                              (b"\xef\xbb\xbf{}", "JSON, byte 0: not a value"),
                              (b"a=1&b=2", "JSON, byte 0: not a value"),
                              (b"[]", "the body must be a JSON object"),
                              (b'{"args": [1]}', "args: must be an object"),
                              (b'{"args": {"a": 1}, "bogus": 1}', "bogus: not a member of this request")):
            self.no(400, "invalid_argument", message, "/tools/echo/run", body)
        # Letta's routes say it in its own shape.
        for body, message in ((b'{"source_code": "x", "source_code": "y"}', "byte 21: a key that was there before"),
                              (b'{"source_code": "\xff"}', "byte 17: not UTF-8")):
            answer = self.raw("/tools/run", body)
            self.assertEqual(
                (answer.status, answer.json["detail"]),
                (422, f"[{{'type': 'json_invalid', 'loc': ('body',), 'msg': 'JSON decode error: JSON, {message}'}}]"))

    def test_arguments_that_do_not_fit(self):
        for args, message in (({"x": 1}, "y: is required"), (None, "x: is required"),
                              ({"x": "one", "y": 2}, "x: must be a whole number, is a string"),
                              ({"x": CODE, "y": 2}, "x: must be a whole number, is a string")):
            self.no(422, "invalid", message, "/tools/add/run", {"args": args})
        self.no(422, "invalid", "class: is not a known argument", "/tools/echo/run", {"args": {"a": 1, "class": 2}})
        # Without a schema that says so it is Python that does.
        self.put("loose", "return x", "x")
        self.ended(self.go("loose").json, "loose", "TypeError: loose() missing 1 required positional argument: 'x'")
        self.ended(self.go("loose", args={"x": 1, "class": 2}).json, "loose",
                   "TypeError: loose() got an unexpected keyword argument 'class'")
        self.ended(self.go("add", args={"x": 1, "y": 2, "z": 3}).json, "add",
                   "TypeError: add() got an unexpected keyword argument 'z'")

    def test_other_members(self):
        for timeout in (0, -1, 1e308, 2 ** 63, 1e-9, "x"):
            self.no(400, "invalid_argument", 'timeout: must be seconds, or text such as "30s"', "/tools/echo/run",
                    {"args": {"a": 1}, "timeout": timeout})
        for limits, message in (({"memory": "9e99G"},
                                 'limits.memory "9e99G": must be a positive number of bytes, or a string like "512m"'),
                                ({"memory": 1}, "memory 1: must be between 4194304 and 70368744177664"),
                                ({"cpus": 1e-9}, "limits.cpus 1e-09: must be between 0.01 and 4096 CPUs"),
                                ({"pids": -1},
                                 "limits.pids -1: must be a whole number between 1 and 9223372036854775807"),
                                ({"bogus": 1}, "limits.bogus: there is no such limit")):
            self.no(400, "invalid_argument", message, "/tools/echo/run", {"args": {"a": 1}, "limits": limits})
        name = "a name is letters, digits and underscores, and does not begin with a digit"
        for env, message in (({"A=B": "x"}, f"environment A=B: {name}"), ({"": "x"}, f"environment : {name}"),
                             ({"1A": "x"}, f"environment 1A: {name}"),
                             ({"A": "x\0y"}, "environment A: a value must not hold a NUL"),
                             ({"A": 1}, "environment A: must be a string"),
                             ({"A": "x" * (1 << 20)}, "environment A: more than 1048576 bytes in all")):
            self.no(400, "invalid_argument", message, "/tools/echo/run", {"args": {"a": 1}, "env_vars": env})
        self.no(413, "too_large", "environment: its variables are too long to be kept out of the output",
                "/tools/echo/run", {"args": {"a": 1}, "env_vars": {"A": "x" * 900000}})
        self.no(400, "invalid_argument", "fallback: must be auto or none", "/tools/echo/run",
                {"args": {"a": 1}, "fallback": "nonne"})
        for path, status, message in (("/tools/nope/run", 404, "Tool 'nope' not found"),
                                      ("/tools/..%2f..%2fetc/run", 404, "Tool '../../etc' not found"),
                                      ("/tools/a%00b/run", 400, "a bad escape in the path")):
            self.no(status, "not_found" if status == 404 else "invalid_argument", message, path, {})
        for what, why in (("--index-url=http://x", "options"), ("x @ http://evil", "URLs"), ("./x", "paths"),
                          ("-r /etc/passwd", "options")):
            self.no(400, "invalid_argument", f'requirement "{what}": {why} are not allowed', "/run",
                    {"language": "python", "code": "1", "pip_requirements": [what]})

    def test_sources(self):
        for text, message in (("def f(:\n    return 1\n", "invalid syntax (<tool source>, line 1)"),
                              ("def f(class):\n    return 1\n", "invalid syntax (<tool source>, line 1)"),
                              ("def lambda():\n    pass\n", "invalid syntax (<tool source>, line 1)"),
                              ("x = 1\n", "No functions found in source code"),
                              ("def f():\n    return 'a\0b'\n", "source code string cannot contain null bytes")):
            for path, body in (("/tools/", {"source_code": text}), ("/tools/run", {"source_code": text, "args": {}})):
                answer = self.raw(path, body)
                self.assertEqual((answer.status, answer.json), (400, {"detail": message}), text)
        given = {"json_schema": {"name": "given", "description": "d", "parameters": ANY}}
        for text, error in (("def f(:\n    return 1\n", "SyntaxError: invalid syntax (<tool given>, line 1)"),
                            ("x = 1\n", "NoFunctionError: No functions found in source code"),
                            ("raise ValueError('at import')\n", "ValueError: at import")):
            self.ask("POST", "/tools/", {"source_code": text, **given})
            ran = self.go("given").json
            self.assertEqual((ran["status"], ran["error"], ran["receipt"]["outcome"]["cause"]),
                             ("error", f"Error executing function given: {error}", "exited"))
        two = "def a():\n    '''A.'''\n    return 'a'\n\ndef b():\n    '''B.'''\n    return 'b'\n"
        self.assertEqual(self.source(two)["tool_return"], "b")  # the last one, unless one has the name
        self.ask("POST", "/tools/", {"source_code": two, **given})
        self.returned(self.go("given").json, "b")
        self.ask("POST", "/tools/",
                 {"source_code": two, "json_schema": {"name": "a", "description": "d", "parameters": ANY}})
        self.returned(self.go("a").json, "a")
        words = "letters, digits, '_' and '-', a letter or '_' first"
        for name, shown in (("a b", "a b"), ("../x", "../x"), ("a\n", "a\\x0a"), ("é", "é"), ("", "")):
            answer = self.raw("/tools/", {"source_code": source("f", "return 1"),
                                          "json_schema": {"name": name, "description": "d", "parameters": ANY}})
            self.assertEqual((answer.status, answer.json),
                             (400, {"detail": f'name: "{shown}" is none for a tool: {words}'}))
        for name in ("run", "count", "search", "generate-schema", "add-base-tools"):
            answer = self.raw("/tools/", {"source_code": source("f", "return 1"),
                                          "json_schema": {"name": name, "description": "d", "parameters": ANY}})
            self.assertEqual((answer.status, answer.json), (400, {"detail": f'name: "{name}" is reserved'}))
        self.put("lambda", "return 1")  # no function can be called so; the last one is it
        self.ask("POST", "/tools/", {"source_code": source("f", "return 'keyword'"),
                                     "json_schema": {"name": "lambda", "description": "d", "parameters": ANY}})
        self.returned(self.go("lambda").json, "keyword")


class Tools(BadTest):
    """What is inside: a function that does not want to be one."""

    def test_how_they_end(self):
        cases = {
            "leaves": ("import os\nprint('so far')\nos._exit(0)", {}),
            "leaves300": ("import os\nos._exit(300)", {}),
            "says_killed": ("import os\nprint('Killed')\nos._exit(137)", {}),  # C10: only looks like one
            "in_a_thread": ("import os, threading, time\nthreading.Thread(target=os._exit, args=(5,)).start()\n"
                            "time.sleep(60)", {}),
            "kills_itself": ("import os\nos.kill(os.getpid(), 9)", {}),
            "crashes": ("import ctypes\nctypes.string_at(0)", {}),
            "never": ("while True:\n    pass", {"timeout": 0.3}),
            "closes": ("import os\nos.closerange(0, 65536)\nreturn 'unheard'", {}),
            "bomb": ("b = bytearray(300 << 20)\nfor i in range(0, len(b), 4096):\n    b[i] = 1\nreturn len(b)",
                     {"limits": {"memory": "64m"}}),
        }
        ran = self.cases(cases)
        self.ended(ran["leaves"], "leaves", f"{NO_ANSWER} 0", stdout="so far\n")
        self.ended(ran["leaves300"], "leaves300", f"{NO_ANSWER} 44", code=44)
        self.ended(ran["says_killed"], "says_killed", f"{NO_ANSWER} 137", code=137, stdout="Killed\n")
        self.ended(ran["in_a_thread"], "in_a_thread", f"{NO_ANSWER} 5", code=5)
        self.ended(ran["kills_itself"], "kills_itself", "RuntimeError: the program was killed by signal 9", "signalled",
                   None, 9)
        self.ended(ran["crashes"], "crashes", "RuntimeError: the program was killed by signal 11", "signalled", None,
                   11)
        self.ended(ran["never"], "never", "TimeoutError: Executing tool never timed out after 0.3 seconds.", "timeout",
                   None, 15, hit=["timeout"])
        self.put("deaf", "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
                 "print('deaf', flush=True)\nwhile True:\n    time.sleep(1)")
        self.late("deaf", 9, "deaf\n")
        self.put("stops", "import os, signal, time\nif os.fork() == 0:\n    os.kill(os.getppid(), signal.SIGSTOP)\n"
                 "    print('stopped', flush=True)\ntime.sleep(60)")
        self.late("stops", 9, "stopped\n")
        self.ended(ran["closes"], "closes", f"{NO_ANSWER} 0")
        self.ended(ran["bomb"], "bomb", "MemoryError: the program used more memory than its limit of 64 MiB", "oom",
                   None, 9, hit=["memory"])

    def test_what_they_return(self):
        cases = {
            "gigabyte": ("return 'x' * (1 << 30)", {}),
            "gigabyte_of_one": ("return ['x' * (1 << 20)] * 1024", {}),
            "nested": ("a = []\nfor _ in range(100000):\n    a = [a]\nreturn a", {}),
            "no_repr": ("class A:\n    def __repr__(self):\n        raise ValueError('no repr')\nreturn A()", {}),
            "no_words": ("class E(Exception):\n    def __str__(self):\n        raise ValueError('no str')\n"
                         "    __repr__ = __str__\nraise E()", {}),
            "leaving_repr": ("import os\nclass A:\n    def __repr__(self):\n        os._exit(7)\nreturn A()", {}),
            "recursion": ("def g():\n    g()\ng()", {}),
            "long_words": ("raise ValueError('x' * 20000000)", {}),
            "odd_bytes": ("import os\nos.write(1, b'\\xff\\xfe\\x00ok\\xc0\\xaf\\xef\\xbb\\xbf\\n')\n"
                          "return '\\ud800\\0'", {}),
        }
        ran = self.cases(cases)
        self.ended(ran["gigabyte"], "gigabyte", "MemoryError: the program used more memory than its limit of 512 MiB",
                   "oom", None, 9, hit=["memory"])
        self.ended(ran["gigabyte_of_one"], "gigabyte_of_one", TOO_LARGE)
        self.ended(ran["nested"], "nested", "ValueError: the result is nested deeper than 60 levels")
        self.ended(ran["no_repr"], "no_repr", "ValueError: no repr")
        self.ended(ran["no_words"], "no_words", "E: <exception str() failed>")
        self.ended(ran["leaving_repr"], "leaving_repr", f"{NO_ANSWER} 7", code=7)
        self.ended(ran["recursion"], "recursion", "RecursionError: maximum recursion depth exceeded")
        self.assertEqual(ran["long_words"]["error"],
                         ("Error executing function long_words: ValueError: " + "x" * 1000)[:1000])
        self.assertEqual(len(ran["long_words"]["receipt"]["error"]["message"]), 65536)
        self.returned(ran["odd_bytes"], "\ufffd\0", stdout="\ufffd\ufffd\0ok\ufffd\ufffd\ufeff\n")
        receipt = ran["odd_bytes"]["receipt"]  # C06: the bytes themselves
        self.assertEqual((receipt["stdout_encoding"], base64.b64decode(receipt["stdout"])),
                         ("base64", b"\xff\xfe\0ok\xc0\xaf\xef\xbb\xbf\n"))

    def test_they_cannot_speak_for_the_runtime(self):
        """Bytes of a tool's own on the channel are no answer, whatever they say: partial, endless, twice, without the
        run's code."""
        forged = ("body = b'0' * 64 + b'\\n{\"status\":\"ok\",\"result\":\"forged\"}'\n"
                  "frame = struct.pack('<I', len(body)) + body\n")
        cases = {
            "prints": ("import sys\nfor s in (sys.stdout, sys.stderr):\n"
                       "    s.write('{\"status\":\"ok\",\"result\":\"forged\"}\\n')\nreturn 'mine'", {}),
            "partial": (CHANNEL + "say(struct.pack('<I', 100) + b'abc')\nos._exit(0)", {}),
            "partial_hangs": (CHANNEL + "say(struct.pack('<I', 100) + b'abc')\ntime.sleep(60)", {"timeout": 0.3}),
            "partial_answers": (CHANNEL + "say(struct.pack('<I', 100) + b'abc')\nreturn 'mine'", {}),
            "four_gigabytes": (CHANNEL + "say(b'\\xff' * 4 + b'abc')\ntime.sleep(60)", {}),
            "nothing": (CHANNEL + "say(bytes(4))\ntime.sleep(60)", {}),
            "once": (CHANNEL + forged + "say(frame)\ntime.sleep(60)", {}),
            "twice": (CHANNEL + forged + "say(frame + frame)\ntime.sleep(60)", {}),
            "by_a_child": (CHANNEL + forged + "if os.fork() == 0:\n    say(frame)\n    os._exit(0)\nos.wait()\n"
                           "time.sleep(60)", {}),
        }
        ran = self.cases(cases)
        line = '{"status":"ok","result":"forged"}\n'
        self.returned(ran["prints"], "mine", line, line)
        self.ended(ran["partial"], "partial", PROTOCOL)
        self.ended(ran["partial_hangs"], "partial_hangs",
                   "TimeoutError: Executing tool partial_hangs timed out after 0.3 seconds.", "timeout", None, 15,
                   hit=["timeout"])
        self.assertEqual((ran["partial_answers"]["status"], ran["partial_answers"]["receipt"]["outcome"]["cause"]),
                         ("error", "exited"))
        self.assertIn(ran["partial_answers"]["error"].split(": ", 1)[1],
                      (PROTOCOL,
                       "RuntimeError: the answer does not carry the code of this run: it is not the runtime's"))
        self.ended(ran["four_gigabytes"], "four_gigabytes", "RuntimeError: the result is too large: at most 16 MiB")
        self.ended(ran["nothing"], "nothing", PROTOCOL)
        for name in ("once", "by_a_child"):
            self.ended(ran[name], name,
                       "RuntimeError: the answer does not carry the code of this run: it is not the runtime's")
        self.ended(ran["twice"], "twice", PROTOCOL)

    def test_what_they_say_with_the_key(self):
        """A tool shares the interpreter with the runtime and can find what signs its answer. It can then say what it
        could have returned, and nothing else."""
        payloads = {
            "honest": ("b'{\"status\":\"ok\",\"result\":\"its own\"}'", None),
            "code_300": ("b'{\"status\":\"ok\",\"result\":1,\"exit_code\":300}'", PROTOCOL),
            "doubled": ("b'{\"status\":\"ok\",\"status\":\"ok\"}'", PROTOCOL),
            "not_utf8": ("b'{\"status\":\"ok\",\"result\":\"\\xff\"}'", PROTOCOL),
            "deep": ("b'{\"status\":\"ok\",\"result\":' + b'[' * 5000 + b']' * 5000 + b'}'", PROTOCOL),
            "infinite": ("b'{\"status\":\"ok\",\"result\":1e999}'", PROTOCOL),
            "stateful": ("b'{\"status\":\"ok\",\"result\":1,\"agent_state\":[]}'", PROTOCOL),
            "no_error": ("b'{\"status\":\"error\"}'", PROTOCOL),
            "empty": ("b''", PROTOCOL),
            "no_json": ("b'x' * 100", PROTOCOL),
            "many": ("b'{\"status\":\"ok\",\"result\":[' + b'1,' * 1100000 + b'1]}'",
                     "RuntimeError: the result is too large: at most 16 MiB"),
            "large": ("b'{\"status\":\"ok\",\"result\":\"' + b'x' * (17 << 20) + b'\"}'",
                      "RuntimeError: the result is too large: at most 16 MiB"),
            "larger": ("b'{\"status\":\"ok\",\"result\":\"' + b'x' * (33 << 20) + b'\"}'",
                       "RuntimeError: the result is too large: at most 16 MiB"),
        }
        ran = self.cases({name: (f"{ANSWERER}answer({payload})", {}) for name, (payload, _) in payloads.items()})
        for name, (_, error) in payloads.items():
            if error:
                self.ended(ran[name], name, error)
        self.returned(ran["honest"], "its own")
        # Files are those that were asked for, by the names they were asked by.
        say = "{}answer(b'{{\"status\":\"ok\",\"result\":null,\"exit_code\":0,\"files\":[{}]}}')".format
        for files, good in (('{"path":"a","base64":"eA=="}', True),
                            ('{"path":"../../etc/passwd","base64":"eA=="}', False),
                            ('{"path":"a","base64":"eA=="},{"path":"a","base64":"eA=="}', False),
                            ('{"path":"a","base64":5}', False), ('{"path":"a"}', False), ('5', False),
                            ('{"path":"a","base64":"eA==","mode":"4755"}', False)):
            ran = self.ask("POST", "/run", {"language": "python", "code": say(ANSWERER, files), "collect": ["a"]})
            self.assertEqual((ran["status"], ran["error"], ran.get("files")),
                             ("success", None, [{"path": "a", "base64": "eA=="}]) if good
                             else ("error", PROTOCOL, None), files)
        ran = self.ask("POST", "/run", {"language": "python", "code": say(ANSWERER, '{"path":"a","base64":"eA=="}')})
        self.assertEqual((ran["status"], ran.get("files")), ("success", None))
        # An error of any size is one of ours.
        long = self.one("long_error", f"{ANSWERER}answer('{{\"status\":\"error\",\"error\":{{\"type\":\"%s\","
                        f"\"message\":\"%s\",\"traceback\":\"\"}}}}'.__mod__(('é' * 1000, 'ü' * 10000000)).encode())")
        error = long["receipt"]["error"]
        self.assertEqual((error["type"], error["message"]), ("é" * 63, "ü" * (128 << 10)))
        self.assertEqual(len(long["error"]), 1000)

    def test_they_break_what_they_run_in(self):
        cases = {
            "monkey": ("import builtins, hmac, io, json, os, posix, sys\njson.dumps = json.loads = lambda *a, **k: "
                       "'\"forged\"'\nos._exit = os.write = posix.write = posix._exit = posix.getpid = lambda *a: 0\n"
                       "builtins.len = builtins.str = builtins.type = builtins.isinstance = lambda *a: 0\n"
                       "hmac.new = sys.exit = sys.stdout = sys.stderr = None\nreturn {'a': [1, 2]}", {}),
            "no_modules": ("import sys\nsys.modules.clear()\nsys.path[:] = []\nsys.meta_path[:] = []\nreturn 3", {}),
            "no_builtins": ("import builtins\nbuiltins.__dict__.clear()\nreturn 4", {}),
            "traced": ("import sys\ndef t(*a):\n    raise ValueError('traced')\nsys.settrace(t)\nsys.setprofile(None)\n"
                       "return 5", {}),
            "narrow": ("import sys\nsys.setrecursionlimit(30)\nreturn [[6]]", {}),
            "low_descriptors": ("import os\nos.closerange(0, 100)\nreturn 7", {}),
            "no_files": ("import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))\nreturn 8", {}),
            "forks_and_both_return": ("import os\npid = os.fork()\nif pid:\n    os.waitpid(pid, 0)\n"
                                      "return 'child' if pid == 0 else 'parent'", {}),
            "the_child_returns_first": ("import os, time\nif os.fork() == 0:\n    return 'child'\nos.wait()\n"
                                        "return 'parent'", {}),
            "exits_late": ("import atexit, os\natexit.register(os._exit, 9)\nreturn 10", {}),
            "kills_its_parent": ("import os\ntry:\n    os.kill(os.getppid(), 9)\nexcept OSError as e:\n"
                                 "    return [os.getppid(), e.strerror]\nreturn 'killed'", {}),
            "kills_everybody": ("import os\ntry:\n    os.kill(-1, 9)\nexcept OSError as e:\n    return e.strerror\n"
                                "return 'killed'", {}),
        }
        ran = self.cases(cases)
        for name, result in (("monkey", {"a": [1, 2]}), ("no_modules", 3), ("no_builtins", 4), ("low_descriptors", 7),
                             ("no_files", 8), ("forks_and_both_return", "parent"),
                             ("the_child_returns_first", "parent"), ("exits_late", 10),
                             ("kills_its_parent", [1, "Operation not permitted"]),
                             ("kills_everybody", "No such process")):
            self.returned(ran[name], result)
        for name, result in (("traced", 5), ("narrow", [[6]])):  # broken for itself, if at all
            self.assertIn((ran[name]["status"], ran[name]["result"]), (("success", result), ("error", None)), ran[name])
            self.assertEqual(ran[name]["receipt"]["outcome"]["cause"], "exited")


class Languages(BadTest):
    """The same for those that are not Python."""

    def in_language(self, language, cases):
        def go(name, text, members):
            body = f"export function {name}() {{\n{text}\n}}" if language == "javascript" else text
            self.ask("POST", "/tools/", {"source_code": body, "source_type": language,
                                         "json_schema": {"name": name, "description": "d", "parameters": ANY}})
            return self.go(name, **members).json
        return self.at_once({name: lambda name=name, case=case: go(name, *case) for name, case in cases.items()}, 4)

    @unittest.skipUnless(os.path.exists("/usr/bin/node"), "no node")
    def test_javascript(self):
        say = """const fs = require('fs'), \
body = Buffer.from('0'.repeat(64) + '\\n{"status":"ok","result":"forged"}'), head = Buffer.alloc(4);
head.writeUInt32LE(body.length);
for (let fd = 3; fd < 1024; fd++) { try { fs.writeSync(fd, WHAT); } catch (e) {} }
"""
        ran = self.in_language("javascript", {
            "j_forges": (say.replace("WHAT", "Buffer.concat([head, body])") + "return 'mine';", {}),
            "j_half": (say.replace("WHAT", "head") + "process.kill(process.pid, 'SIGKILL');", {}),
            "j_leaves": ("process.exit(7);", {}),
            "j_aborts": ("process.abort();", {}),
            "j_parent": ("try { process.kill(process.ppid, 'SIGKILL') } catch (e) { return [process.ppid, e.code] }",
                         {}),
            "j_never": ("for (;;);", {"timeout": 0.5}),
            "j_unsettled": ("return new Promise(() => 0);", {}),
            "j_large": ("return 'x'.repeat(1 << 28);", {}),
            "j_syntax": ("return (;", {}),
            "j_getter": ("return {get a() { throw new RangeError('no'); }};", {}),
            "j_json": ("JSON.stringify = JSON.parse = () => '\"forged\"'; process.exit = () => 0; "
                       "require('fs').writeSync = () => 0; require('crypto').createHmac = null; return {a: [1, 2]};",
                       {}),
            "j_prototypes": ("Array.prototype.map = Array.prototype.join = String.prototype.slice = () => 'forged'; "
                             "Object.keys = () => ['forged']; return {a: [1, 2]};", {}),
        })
        self.ended(ran["j_forges"], "j_forges",
                   "RuntimeError: the answer does not carry the code of this run: it is not the runtime's")
        self.ended(ran["j_half"], "j_half", PROTOCOL, "signalled", None, 9)
        self.ended(ran["j_leaves"], "j_leaves", "SystemExit: 7")
        self.ended(ran["j_aborts"], "j_aborts", "RuntimeError: the program was killed by signal 6", "signalled", None,
                   6)
        self.returned(ran["j_parent"], [1, "EPERM"])
        self.ended(ran["j_never"], "j_never", "TimeoutError: Executing tool j_never timed out after 0.5 seconds.",
                   "timeout", None, 15, hit=["timeout"])
        self.ended(ran["j_unsettled"], "j_unsettled", "Error: the tool's promise was never settled")
        self.ended(ran["j_large"], "j_large", TOO_LARGE)
        self.assertEqual(ran["j_syntax"]["error"], "Error executing function j_syntax: SyntaxError: Unexpected token "
                         "';' (<tool j_syntax>, line 2)")
        self.assertEqual((ran["j_getter"]["status"], ran["j_getter"]["error"]),
                         ("error", "Error executing function j_getter: RangeError: no"))
        self.returned(ran["j_json"], {"a": [1, 2]})
        # It can break what its own result is made with; how it ended is not its to say.
        self.assertIn(ran["j_prototypes"]["status"], ("success", "error"))
        self.assertEqual(ran["j_prototypes"]["receipt"]["outcome"]["cause"], "exited")

    def test_bash(self):
        ran = self.in_language("bash", {
            "s_forges": ("for fd in {3..200}; do printf abcdabcd >&$fd; done 2>/dev/null; echo mine >&$BRIG_RESULT",
                         {}),
            "s_parent": ("kill -9 $PPID; sleep 60", {}),
            "s_large": ("head -c 40000000 /dev/zero | tr '\\0' x >&$BRIG_RESULT", {}),
            "s_text": ("printf '[[[[' >&$BRIG_RESULT", {}),
            "s_leaves": ("echo so far; exit 3", {}),
            "s_daemon": ("setsid sleep 60 & disown; echo 1 >&$BRIG_RESULT", {}),
            "s_never": ("sleep 60", {"timeout": 0.5}),
            "s_names": ("echo 5 >&$BRIG_RESULT",
                        {"env_vars": {"PATH": "/workspace/evil", "IFS": "x", "BASH_ENV": "/tmp/x",
                                      "SHELLOPTS": "xtrace", "PS4": "$(touch /tmp/owned)", "digest": "x",
                                                                          "inner_pad": "y", "text": "z", "member": "q",
                                      "BRIG_RESULT": "77"}}),
        })
        # all it has is its own result
        self.assertEqual((ran["s_forges"]["status"], ran["s_forges"]["result"]), ("success", "abcdabcdmine"),
                         ran["s_forges"])
        self.ended(ran["s_parent"], "s_parent", "RuntimeError: the program was killed by signal 9", "signalled", None,
                   9)
        self.ended(ran["s_large"], "s_large", TOO_LARGE)
        self.returned(ran["s_text"], "[[[[")
        self.ended(ran["s_leaves"], "s_leaves", "CommandError: <tool s_leaves>: exit status 3", stdout="so far\n")
        self.returned(ran["s_daemon"], 1)
        self.ended(ran["s_never"], "s_never", "TimeoutError: Executing tool s_never timed out after 0.5 seconds.",
                   "timeout", None, 15, hit=["timeout"])
        self.ask("POST", "/tools/", {"source_code": "kill -STOP $PPID; echo stopped; sleep 60", "source_type": "bash",
                                     "json_schema": {"name": "s_stops", "description": "d", "parameters": ANY}})
        self.late("s_stops", 9, "stopped\n")
        self.assertEqual((ran["s_names"]["status"], ran["s_names"]["result"]), ("success", 5), ran["s_names"])
