# SPDX-License-Identifier: Apache-2.0
"""The Python runtime: what docs/TOOLS.md promises, row by row, and what user code does to it."""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

from runtimekit import ROOT, Child, argv, code, many, rows, run, texts

SITE = os.environ.get("BRIG_TEST_SITE")  # a folder with numpy and pydantic; else those of the system

PREAMBLE = """
import collections, dataclasses, datetime, decimal, enum, fractions, pathlib, types, typing, uuid
class Color(enum.Enum):
    RED = "red"
@dataclasses.dataclass
class Point:
    x: int
    y: int
class Pair(typing.NamedTuple):
    a: int
    b: str
class Plain:
    def __str__(self):
        return "a plain thing"
class Broken:
    def __repr__(self):
        raise RuntimeError("no repr")
cycle = []
cycle.append(cycle)
deep = []
for _ in range(60):
    deep = [deep]
"""


def has(module):
    return subprocess.run(["/usr/bin/python3", "-c",
                           f"import sys; sys.path += {[SITE] if SITE else []}; import {module}"],
                          stderr=subprocess.DEVNULL).returncode == 0


class Base(unittest.TestCase):
    maxDiff = None

    def good(self, answer, result=None):
        self.assertEqual((answer.error, answer.get("status")), (None, "ok"), answer.stderr)
        self.assertEqual(answer["result"], result)
        return answer

    def bad(self, answer, error):
        self.assertEqual(answer.get("status"), "error", answer.raw)
        self.assertIsNone(answer["result"])
        self.assertEqual(answer.error, error)
        return answer


class Values(Base):
    def test_each_row_of_the_table(self):
        cases, wanted = [], []
        for value, shown, noted in rows("Python values", ["value", "JSON", "noted"]):
            head = PREAMBLE
            for module in ("numpy", "pydantic"):
                if f"{module}." in value or f"({module})" in value:
                    head = ("import numpy\n" if module == "numpy"
                            else "import pydantic\nclass Model(pydantic.BaseModel):\n    name: str\n    tags: set\n")
                    if not has(module):
                        head = None
                        break
            if head is None:
                continue
            cases.append((f"{head}\ndef f():\n    return {code(value)}\n",
                          {"env": {"PYTHONPATH": SITE} if SITE else {}}))
            wanted.append((value, code(shown), noted == "yes"))
        self.assertGreater(len(cases), 30)
        for answer, (value, shown, noted) in zip(many(cases), wanted):
            with self.subTest(value):
                self.assertEqual(answer.get("status"), "ok", answer.stderr)
                if shown is not None:
                    self.assertEqual(json.dumps(answer["result"]), json.dumps(json.loads(shown)))
                else:
                    self.assertRegex(answer["result"], "^<generator object")
                self.assertEqual(bool(answer.get("notes")), noted)

    def test_each_row_of_the_errors(self):
        cases = rows("Python values", ["value", "error"])
        answers = many([(f"{PREAMBLE}\ndef f():\n    return {code(value)}\n", {}) for value, _ in cases])
        for answer, (value, error) in zip(answers, cases):
            with self.subTest(value):
                self.bad(answer, code(error))
        self.assertIn('line 17, in __repr__\n    raise RuntimeError("no repr")', answers[-1]["error"]["traceback"])

    def test_numpy_and_pydantic_are_known_by_their_ways(self):
        """Doubles: the rows with the real ones are skipped where they are not installed."""
        numpy = ("class ndarray:\n    size = 2\n    def tolist(self): return [1, 2]\nclass int64:\n"
                 "    def item(self): return 5\nclass big(ndarray):\n    size = 1 << 40\n")
        pydantic = ("class BaseModel:\n    def __init__(self, **k): self.__dict__.update(k)\n"
                    "    def model_dump(self): return dict(self.__dict__)\n"
                    "    @classmethod\n    def model_validate(cls, v):\n"
                    "        if 'bad' in v: raise ValueError('1 validation error')\n        return cls(**v)\n")
        with tempfile.TemporaryDirectory() as place:
            pathlib.Path(place, "numpy.py").write_text(numpy)
            pathlib.Path(place, "pydantic.py").write_text(pydantic)
            model = ("from pydantic import BaseModel\nclass M(BaseModel): pass\n"
                     "def f(m: M, o: Optional[List[M]] = None):\n    assert type(m) is M\n    return m, o\n")
            answers = many([("import numpy\ndef f(): return [numpy.ndarray(), numpy.int64()]", {"cwd": place}),
                            ("import numpy\ndef f(): return numpy.big()", {"cwd": place}),
                            (model, {"cwd": place, "args": {"m": {"a": 1}, "o": '[{"b": 2}]'}}),
                            (model, {"cwd": place, "args": {"m": {"bad": 1}}})])
        self.good(answers[0], [[1, 2], 5])
        self.assertTrue(answers[1].error.startswith("ResultTooLarge"))
        self.good(answers[2], [{"a": 1}, [{"b": 2}]])
        self.bad(answers[3], "ValueError: 1 validation error")

    def test_result_limits(self):
        answers = many([("def f(): return 'x' * 100", {"result_max": 50}),
                        ("def f(): return b'x' * 100", {"result_max": 100}),
                        ("def f(): return list(range(100))", {"result_max": 200}),
                        ("def f(): return {str(i): i for i in range(100)}", {"result_max": 200}),
                        ("def f(): return list(range(10))", {"result_max": 200}),
                        ("def f(): return 'x' * (1 << 30)", {}), ("def f(): return 10 ** 5000", {})])
        for answer in answers[:4] + answers[5:6]:
            self.assertTrue(answer.error.startswith("ResultTooLarge: the result is larger than the "), answer.error)
        self.good(answers[4], list(range(10)))
        self.assertRegex(answers[6]["result"], "^0x")


class Arguments(Base):
    def test_each_row_of_the_table(self):
        cases = rows("Arguments", ["annotation", "value that comes", "value the function gets"])
        answers = many([(f"{PREAMBLE}\ndef f(x: {code(want)}):\n    return repr(x)\n",
                         {"args": {"x": json.loads(code(given))}}) for want, given, _ in cases])
        for answer, (want, given, got) in zip(answers, cases):
            with self.subTest(f"{want} {given}"):
                self.good(answer, code(got))

    def test_calls(self):
        two = "def add(a: int, b: int) -> int:\n    return a + b\n"
        answers = many(
            [(two, {"args": {"a": 1, "b": "2"}}), (two, {"args": {"a": 1}, "name": "add"}),
             (two, {"args": {"a": 1, "b": 2, "c": 3}}),
             ("def f(**kw): return kw", {"args": {"class": 1, "a b": 2}}),
             ("def f(a): return a", {"args": {"lambda": 1}}),
             ("def f(a, /, b, *, c): return [a, b, c]", {"args": {"a": 1, "b": 2, "c": 3}}),
             ("def f(f): return f", {"args": {"f": "__import__('os').getpid()"}}),
             ("def f(x: Undefined = 1): return x", {"args": {"x": "2"}}),
             ("from __future__ import annotations\ndef f(x: Undefined, y: Optional[int]): return [x, y]",
              {"args": {"x": "2", "y": "3"}}),
             ("import functools\ndef deco(g):\n    @functools.wraps(g)\n    def inner(*a, **k): return g(*a, **k)\n"
              "    return inner\n@deco\ndef f(n: int): return n\n", {"args": {"n": "2"}}),
             ("class F:\n    def __call__(self, x): return x\ndef g(): pass\nf = F()", {"name": "f", "args": {"x": 1}}),
             ("def f(big): return len(big)", {"args": {"big": "x" * (10 << 20)}})])
        self.good(answers[0], 3)
        self.bad(answers[1], "TypeError: add() missing 1 required positional argument: 'b'")
        self.bad(answers[2], "TypeError: add() got an unexpected keyword argument 'c'")
        self.good(answers[3], {"class": 1, "a b": 2})
        self.bad(answers[4], "TypeError: f() got an unexpected keyword argument 'lambda'")
        self.good(answers[5], [1, 2, 3])
        self.good(answers[6], "__import__('os').getpid()")
        self.bad(answers[7], "NameError: name 'Undefined' is not defined")
        self.good(answers[8], ["2", 3])
        self.good(answers[9], 2)
        self.good(answers[10], 1)
        self.good(answers[11], 10 << 20)

    def test_which_function(self):
        answers = many([("def a(): return 'a'\ndef b(): return 'b'\n", {}),
                        ("def a(): return 'a'\ndef b(): return 'b'\n", {"name": "a"}),
                        ("def a(): return 'a'\n", {"name": "other"}),
                        ("class C:\n    def m(self): pass\ndef a():\n    def inner(): pass\n    return 'a'\n"
                         "x = lambda: 1\n", {}), ("if True:\n    def a(): return 'a'\n", {}),
                        ("x = 1\n", {"name": "f"}), ("", {}), ("def f(:\n", {"name": "f"}),
                        ("x = 1\n\ndef f():\nreturn 1\n", {"name": "f"}),
                        ("if __name__ == '__main__':\n    1 / 0\ndef f(): return __name__", {})])
        for answer, result in zip(answers, ("b", "a", "a", "a", "a")):
            self.good(answer, result)
        for answer in answers[5:7]:
            self.bad(answer, "NoFunctionError: No functions found in source code")
        self.bad(answers[7], "SyntaxError: invalid syntax (<tool f>, line 1)")
        self.assertRegex(answers[8].error, r"^(IndentationError): expected an indented block.*\(<tool f>, line 4\)$")
        self.assertIn('  File "<tool f>", line 4\n    return 1\n', answers[8]["error"]["traceback"])
        self.good(answers[9], "__tool__")

    def test_async(self):
        answers = many(
            [("import asyncio\nasync def f(n: int):\n    await asyncio.sleep(0)\n    return n\n", {"args": {"n": "3"}}),
             ("import asyncio\nx = await asyncio.sleep(0, 7)\ndef f(): return asyncio.run(g()) + x\n"
              "async def g(): return 1\n", {"name": "f"}),
             ("async def f():\n    raise KeyError('k')\n", {"name": "f"}),
             ("async def g(): return 4\ndef f(): return g()", {}),
             ("import asyncio\nasync def back():\n    try:\n        await asyncio.sleep(1000)\n    finally:\n"
              "        print('cancelled')\n"
              "async def f():\n    asyncio.ensure_future(back())\n    await asyncio.sleep(0)\n", {})])
        self.good(answers[0], 3)
        self.good(answers[1], 8)
        self.assertEqual(self.bad(answers[2], "KeyError: 'k'")["error"]["traceback"],
                         "Traceback (most recent call last):\n  File \"<tool f>\", line 2, in f\n"
                         "    raise KeyError('k')\nKeyError: 'k'\n")
        self.good(answers[3], 4)
        self.assertEqual(self.good(answers[4]).stdout, "cancelled\n")


class Surroundings(Base):
    def test_environment_and_paths(self):
        with tempfile.TemporaryDirectory() as place:
            site = pathlib.Path(place, "venv/lib/python%d.%d/site-packages" % python_version())
            site.mkdir(parents=True)
            pathlib.Path(site, "packed.py").write_text("X = 'set'")
            pathlib.Path(site, "more.pth").write_text("deeper\n")
            pathlib.Path(site, "deeper").mkdir()
            pathlib.Path(site, "deeper/below.py").write_text("X = 'pth'")
            pathlib.Path(place, "beside.py").write_text("X = 'cwd'")
            source = ("import os, sys\ndef f():\n    import beside\n    return [dict(os.environ), os.getcwd(), "
                      "sys.path[0], beside.X, sys.argv, os.popen('echo $A').read()]\n")
            packed = ("import packed, below, os, sys\ndef f():\n"
                      "    return [packed.X, below.X, os.environ['VIRTUAL_ENV'], os.environ['PATH'], sys.prefix]\n")
            answers = many(
                [(source, {"cwd": place, "env": {"A": "b c"}, "name": "f"}),
                 (packed, {"cwd": place, "site": place + "/venv", "env": {"PATH": "/bin"}}),
                 ("import os\ndef f(): return open('a/b/in').read()",
                  {"cwd": place, "files": [{"path": "a/b/in", "base64": "aGk="}], "collect": ["a/b/in", "none"]})])
            self.good(answers[0], [{"A": "b c"}, place, place, "cwd", ["<tool f>"], "b c\n"])
            self.good(answers[1], ["set", "pth", place + "/venv", place + "/venv/bin:/bin", place + "/venv"])
            self.assertEqual(self.good(answers[2], "hi")["files"],
                             [{"path": "a/b/in", "base64": "aGk="},
                              {"path": "none", "error": "No such file or directory"}])

    def test_agent_state(self):
        state = {"name": "x", "memory":
                 {"blocks": [{"label": "human", "value": "old", "limit": 10}, {"label": "persona", "value": "p"}]}}
        body = ["agent_state.memory.update_block_value(label='human', value='new')",
                "agent_state.memory.get_block('human').value = 'new'",
                "agent_state['memory']['blocks'][0]['value'] = 'new'",
                "agent_state.memory.blocks[0].value = 'new'", "agent_state.memory.get_block('none')", "pass"]
        answers = many([(f"def f(agent_state, agent_id):\n    {line}\n"
                         "    return [agent_id, agent_state.memory.list_block_labels(), agent_state.name]\n",
                         {"agent_state": state, "agent_id": "agent-1", "args": {"agent_state": "forged"}})
                        for line in body])
        for answer in answers[:4]:
            self.good(answer, ["agent-1", ["human", "persona"], "x"])
            self.assertEqual(answer["agent_state"]["memory"]["blocks"][0],
                             {"label": "human", "value": "new", "limit": 10})
        self.bad(answers[4], "KeyError: 'Block field none does not exist (available sections = human, persona)'")
        self.assertNotIn("agent_state", answers[4])
        self.assertNotIn("agent_state", answers[5])
        answers = many([("def f(agent_state, agent_id='x'): return [agent_state, agent_id, client]", {}),
                        ("def f(agent_id): return agent_id", {"args": {"agent_id": "mine"}}),
                        ("def f(agent_state):\n    agent_state.memory = object()\n    agent_state.me = agent_state\n",
                         {"agent_state": state})])
        self.good(answers[0], [None, None, None])
        self.good(answers[1], "mine")
        self.bad(answers[2], "ValueError: Circular reference detected")

    def test_client(self):
        with tempfile.TemporaryDirectory() as place:
            pathlib.Path(place, "letta_client.py").write_text("class Letta:\n"
                                                              "    def __init__(self, token): self.token = token\n")
            answers = many([("def f(): return client.token", {"cwd": place, "env": {"LETTA_API_KEY": "k"}}),
                            ("def f(): return client", {"cwd": place}),
                            ("def f(): return client", {"env": {"LETTA_API_KEY": "k"}})])
        for answer, result in zip(answers, ("k", None, None)):
            self.good(answer, result)

    def test_snippets_and_commands(self):
        answers = many(
            [("import sys, atexit, threading, time\natexit.register(print, 'last')\nthreading.Thread(target=lambda: "
              "(time.sleep(0.05), print('thread'))).start()\nprint(__name__)\n", {"kind": "code"}),
             ("import sys\nsys.exit(3)", {"kind": "code"}), ("print(1)\n1 / 0\n", {"kind": "code"}),
             ("import asyncio\nprint(await asyncio.sleep(0, 5))", {"kind": "code"}),
             ("", {"kind": "command", "command": ["sh", "-c", "cat; echo '{\"a\": 1}' >&$BRIG_RESULT"],
                   "args": {"x": 1}}), ('["sh", "-c", "kill -9 $$"]', {"kind": "command"}), ("", {"kind": "none"})])
        self.assertEqual(self.good(answers[0]).stdout, "__main__\nthread\nlast\n")
        self.assertEqual(answers[0]["exit_code"], 0)
        self.assertEqual(self.bad(answers[1], "SystemExit: 3")["exit_code"], 3)
        trace = 'Traceback (most recent call last):\n  File "<code>", line 2, in <module>\n    1 / 0\n'
        self.assertTrue(self.bad(answers[2], "ZeroDivisionError: division by zero").stderr.startswith(trace))
        self.assertEqual((answers[2].stdout, answers[2]["exit_code"]), ("1\n", 1))
        self.assertEqual(answers[3].stdout, "5\n")
        self.assertEqual(self.good(answers[4], {"a": 1}).stdout, '{"x": 1}')
        self.assertEqual(self.bad(answers[5], "CommandError: sh: signal 9")["exit_code"], 137)
        self.bad(answers[6], "ValueError: unknown kind of request: 'none'")


def python_version():
    out = subprocess.run(["/usr/bin/python3", "-c", "import sys; print(*sys.version_info[:2])"], stdout=subprocess.PIPE,
                         check=True).stdout
    return tuple(map(int, out.split()))


class Errors(Base):
    def test_tracebacks_have_the_users_lines(self):
        source = ("import traceback\n\ndef helper(n):\n    return 1 / n\n\ndef f():\n    try:\n        helper(0)\n"
                  "    except ZeroDivisionError as why:\n        print(traceback.format_exc())\n"
                  "        raise ValueError('outer') from why\n")
        answer = self.bad(run(source, name="f"), "ValueError: outer")
        self.assertIn('File "<tool f>", line 8, in f\n    helper(0)\n', answer.stdout)
        trace = re.sub(r"^ *[\^~]+\n", "", answer["error"]["traceback"], flags=re.M)
        self.assertEqual(trace, 'Traceback (most recent call last):\n  File "<tool f>", line 8, in f\n    helper(0)\n'
                         '  File "<tool f>", line 4, in helper\n    return 1 / n\n'
                         'ZeroDivisionError: division by zero\n\n'
                         'The above exception was the direct cause of the following exception:\n\n'
                         'Traceback (most recent call last):\n  File "<tool f>", line 11, in f\n'
                         '    raise ValueError(\'outer\') from why\nValueError: outer\n')
        self.assertEqual(answer.stderr, answer["error"]["traceback"])

    def test_exceptions_of_every_kind(self):
        cases = [("raise ValueError()", "ValueError: "), ("raise ValueError('a\\nb')", "ValueError: a\nb"),
                 ("class Odd(Exception): pass\n    raise Odd('x')", "Odd: x"),
                 ("class B(BaseException): pass\n    raise B(1)", "B: 1"),
                 ("raise KeyboardInterrupt", "KeyboardInterrupt: "), ("import sys; sys.exit(3)", "SystemExit: 3"),
                 ("import sys; sys.exit('bye')", "SystemExit: bye"),
                 ("def g(): g()\n    g()", "RecursionError: maximum recursion depth exceeded"),
                 ("class S(Exception):\n        def __str__(self): raise OSError\n    raise S",
                  "S: <exception str() failed>"),
                 ("class S(Exception):\n        def __str__(self): return 5\n    raise S",
                  "S: <exception str() failed>"),
                 ("raise UnicodeError('\\ud800')", "UnicodeError: \ufffd"),
                 ("import json; json.loads('{')",
                  "JSONDecodeError: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"),
                 ("import nosuchmodule", "ModuleNotFoundError: No module named 'nosuchmodule'"),
                 ("raise MemoryError", "MemoryError: "),
                 ("x = 'y' * 70000; raise ValueError(x)", "ValueError: " + "y" * 65536),
                 ("raise StopIteration(3)", "StopIteration: 3"), ("raise GeneratorExit", "GeneratorExit: ")]
        for answer, (body, error) in zip(many([(f"def f():\n    {body}\n", {}) for body, _ in cases]), cases):
            with self.subTest(body):
                self.bad(answer, error)
        for answer in many([("import sys\ndef f(): sys.exit()", {}), ("import sys\ndef f(): sys.exit(0)", {}),
                            ("import sys\nsys.exit(0)\ndef f(): return 1", {})]):
            self.good(answer)


class Hostile(Base):
    def test_answers_all_the_same(self):
        """What user code does to its own process does not touch the answer of what it returns."""
        bodies = ["import json, hmac, hashlib, os\n    json.dumps = json.loads = hmac.new = hashlib.sha256 = None\n"
                  "    os.write = os.getpid = os._exit = lambda *a: 0",
                  "import posix, _json\n    posix.write = posix.getpid = posix._exit = lambda *a: 0\n"
                  "    _json.encode_basestring = _json.make_scanner = None",
                  "import builtins\n    for n in ('len', 'isinstance', 'type', 'map', 'str', 'memoryview', 'min', "
                  "'bytes', 'getattr', 'print'): setattr(builtins, n, None)",
                  "import sys\n    sys.stdout.close(); sys.stderr.close()",
                  "import sys\n    sys.stdout = sys.stderr = sys.__stdout__ = None",
                  "import os\n    os.closerange(0, 64)",
                  "import sys\n    sys.modules.clear()",
                  "import sys\n    sys.meta_path.clear(); sys.path.clear(); sys.path_hooks.clear()",
                  "import threading, time\n    threading.Thread(target=time.sleep, args=(1000,)).start()",
                  "import os\n    for _ in range(3):\n        if os.fork() == 0: break",
                  "import os, signal\n    if os.fork() == 0:\n"
                  "        os.setsid(); os.execv('/bin/sleep', ['sleep', '0.2'])",
                  "import sys\n    sys.setrecursionlimit(60)",
                  "import gc\n    gc.disable(); gc.collect()", "import signal, sys\n    sys.settrace(lambda *a: 1 / 0)",
                  "import sys\n    sys.exit = sys.excepthook = None",
                  "import atexit, os\n    atexit.register(os._exit, 9)", "import struct, os\n"
                  "    os.write(1, struct.pack('<I', 70) + b'0' * 64 + b'\\n{\"status\":\"ok\",\"result\":666}')"]
        for answer, body in zip(many([(f"def f():\n    {body}\n    return [1, 'x', {{2}}]\n", {}) for body in bodies]),
                                bodies):
            with self.subTest(body):
                self.good(answer, [1, "x", [2]])
                self.assertTrue(answer.keyed)
                self.assertFalse(answer.more)

    def test_no_answer(self):
        """Gone without a word: the service sees the end of the channel."""
        for answer in many([("import os\ndef f(): os._exit(0)", {}),
                            ("import os\ndef f(): os.kill(os.getpid(), 9)", {}),
                            ("import os\ndef f():\n    os.closerange(3, 5000)\n    return 1", {})]):
            self.assertIsNone(answer.raw)

    def test_the_channel_is_not_inherited_and_the_key_is_in_no_variable(self):
        source = ("import os, subprocess, sys, gc\ndef f():\n"
                  "    fds = subprocess.run(['ls', '/proc/self/fd'], stdout=subprocess.PIPE, "
                  "close_fds=False).stdout.split()\n"
                  "    links = [os.readlink('/proc/self/fd/%s' % n.decode()) for n in fds if "
                  "os.path.exists('/proc/self/fd/%s' % n.decode())]\n"
                  "    texts = [o for o in gc.get_objects() if type(o) is dict and 'key' in o]\n"
                  "    frame, names = sys._getframe(), []\n"
                  "    while frame:\n        names += [v for v in frame.f_locals.values() if isinstance(v, (str, "
                  "bytes)) and len(v) in (32, 64)]\n        frame = frame.f_back\n"
                  "    return [[l for l in links if l.startswith('socket')], [t for t in texts if isinstance(t['key'], "
                  "(str, bytes)) and len(t['key']) in (32, 64)], names, '__main__' in sys.modules and "
                  "dir(sys.modules['__main__'])]\n")
        with tempfile.TemporaryDirectory() as place:
            answer = self.good(run(source, cwd=place), answer_any)
        self.assertEqual(answer["result"][:3], [[], [], []])
        self.assertNotIn("_serve", answer["result"][3])

    def test_only_the_first_process_answers(self):
        answer = run("import os\ndef f():\n    pid = os.fork()\n    if pid: os.waitpid(pid, 0)\n    print('here')\n"
                     "    return bool(pid)\n")
        self.assertEqual(self.good(answer, True).stdout, "here\nhere\n")
        answer = run("import os\ndef f():\n    pid = os.fork()\n    if pid == 0: raise ValueError\n"
                     "    return os.waitpid(pid, 0)[1]\n")
        self.good(answer, 0)


class AnythingAtAll:
    def __eq__(self, other):
        return True


answer_any = AnythingAtAll()


class Schemas(Base):
    HEAD = "import dataclasses\n@dataclasses.dataclass\nclass Point:\n    x: int\n    y: int\n"

    def test_each_row_of_the_table(self):
        cases = rows("Schema", ["annotation", "schema"])
        source = '{}def f(x: {}):\n    """It.\n\n    Args:\n        x: an x\n    """\n'
        answers = many([(source.format(self.HEAD, code(want)), {"kind": "schema"}) for want, _ in cases])
        for answer, (want, shown) in zip(answers, cases):
            with self.subTest(want):
                if code(shown) == "ValueError":
                    self.assertTrue(answer.error.startswith("ValueError: Parameter 'x' in function 'f': "), answer.raw)
                    continue
                optional = "None" in want and want != "`None`" or "Optional" in want
                self.good(answer, {"name": "f", "description": "It.", "parameters": {
                    "type": "object", "properties": {"x": {**json.loads(code(shown)), "description": "an x"}},
                    "required": [] if optional else ["x"]}})

    def test_docstring_and_parameters(self):
        source = '''
class Base(BaseModel):
    name: str = Field(..., description="who")
class Person(Base):
    age: Optional[int] = None
    friends: List[Base] = Field(default_factory=list)

def helper(x): pass

async def roll(self, n: int, who: Person, *, agent_state: "AgentState" = None, times: int = 1) -> str:
    """
    Rolls it.

    More about it,
    on two lines.

    Args:
        n (int): how many
            and more: of it
        who: a person
        times (int, optional): how often

    Returns:
        str: what came

    Examples:
        >>> roll(1)
        "4"
    """
    raise SystemExit
'''
        person = {"type": "object", "properties":
                  {"name": {"type": "string", "description": "who"}, "age": {"type": "integer"}, "friends": {
                      "type": "array",
                      "items": {"type": "object", "properties": {"name": {"type": "string", "description": "who"}},
                                "required": ["name"]}}}, "required": ["name"]}
        given = {"type": "object", "properties": {"z": {"type": "string"}}, "required": ["z"]}
        answers = many([(source, {"kind": "schema"}), (source, {"kind": "schema", "schema": given}),
                        ("def f(): pass", {"kind": "schema", "schema": given})])
        self.good(answers[0], {
            "name": "roll", "description": 'Rolls it.\n\nMore about it,\non two lines.\n\nExamples:\n>>> roll(1)\n"4"',
            "parameters": {"type": "object", "properties":
                           {"n": {"type": "integer", "description": "how many\nand more: of it"},
                            "who": {**person, "description": "a person"},
                            "times": {"type": "integer", "description": "how often"}}, "required": ["n", "who"]}})
        self.assertEqual(answers[1]["result"]["parameters"], given)
        self.good(answers[2], {"name": "f", "description": "The f tool", "parameters": given})

    def test_errors_are_readable(self):
        cases = [("x = 1", "NoFunctionError: No functions found in source code"),
                 ("class A:\n    def f(self): 'x'", "NoFunctionError: No functions found in source code"),
                 ("def f(a):\n    'd'", "TypeError: Parameter 'a' in function 'f' lacks a type annotation"),
                 ("def f(a: int):\n    'd'",
                  "ValueError: Parameter 'a' in function 'f' lacks a description in the docstring"),
                 ("def f(a: int): pass", "ValueError: Function 'f' has no docstring: a Google-style docstring "
                  "describes the tool and its parameters"),
                 ("def f(:", "SyntaxError: invalid syntax (<tool source>, line 1)")]
        for answer, (source, error) in zip(many([(source, {"kind": "schema"}) for source, _ in cases]), cases):
            with self.subTest(source):
                self.bad(answer, error)


ZYGOTE = """
import gc, os, sys
space = {"__name__": "brig", "BRIG_ZYGOTE": True, "BRIG_PARTS": sys.argv[2:]}
exec(compile(sys.argv[1], "<brig>", "exec"), space)
space["load"]()
import uuid; uuid.getnode()
gc.collect(); gc.freeze()
if os.fork() == 0:
    space["park"](3)
os.close(3)
os.wait()
"""

REHEARSAL = """
import json, os, sys, warnings
space = {"__name__": "brig", "BRIG_ZYGOTE": True, "BRIG_PARTS": sys.argv[2:]}
exec(compile(sys.argv[1], "<brig>", "exec"), space)
space["load"]()
look = lambda: [sorted(sys.modules), dict(os.environ), warnings.filters[:], sys.warnoptions[:], sys.argv, sys.path, \
os.getcwd(), sorted(space), sys.modules["linecache"].cache, sys.orig_argv, list(map(id, sys.meta_path)), \
id(sys.modules["__main__"])]
import copy
before = copy.deepcopy(look())
went = [space["_rehearse"](here) for here in (False, True, True)]
after = look()
print(json.dumps([[i for i in range(len(after)) if before[i] != after[i]], went]))
"""


class Zygote(Base):
    def test_a_rehearsal_leaves_no_trace(self):
        """And it goes through: one that fails is only slow, and nobody would see it."""
        text = texts()
        command = ["/usr/bin/python3", "-I", "-S", "-c", REHEARSAL, text["python_core"], text["python_values"],
                   text["python_schema"]]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env={"A": "b"})
        self.assertEqual((done.stdout, done.stderr), ("[[], [true, true, true]]\n", ""))

    def test_a_forked_child_is_a_runtime(self):
        text = texts()
        command = ["/usr/bin/python3", "-I", "-S", "-c", ZYGOTE, text["python_core"], text["python_values"],
                   text["python_schema"]]
        source = ("import random, uuid, os, sys\ndef f(x: Optional[int]):\n    return [x, random.random(), uuid._node, "
                  "sorted(os.environ), 'space' in vars(sys.modules['__main__'])]\n")
        seen = []
        for _ in range(2):
            child = Child(command=command)
            self.assertEqual((child.ready["ready"], child.ready["language"]), (1, "python"))
            self.assertNotEqual(child.ready["pid"], child.process.pid)
            answer = child.ask({"source": source, "args": {"x": "4"}, "env": {"A": "b"}})
            self.assertTrue(answer.keyed)
            self.assertEqual(answer["result"][:1] + answer["result"][2:], [4, None, ["A"], False])
            seen.append(answer["result"][1])
        self.assertNotEqual(*seen)
        answer = Child(command=command).ask({"source": "def f():\n    1 / 0\n", "name": "f"})
        self.assertEqual(answer.error, "ZeroDivisionError: division by zero")
        self.assertNotIn("brig", answer["error"]["traceback"])


class Started(Base):
    def test_argv_is_the_services(self):
        source = (ROOT / "src/pool/pool_runtime.c").read_text(encoding="utf-8")
        for name, language in (("python", "python"), ("node", "javascript"), ("bash", "bash")):
            body = re.search(rf"{name}_argv\[\] = \{{(.*?),\s*NULL\}};", source, re.S).group(1)
            parts = [w.strip() for w in re.split(r",\s*", body)]
            words = [texts()[w[8:]] if w.startswith("runtime_") else w.strip(chr(34)) for w in parts]
            self.assertEqual(words, argv(language))
            self.assertTrue(all(len(word.encode()) < 120 * 1024 for word in words))

    def test_ready_and_an_end_without_a_request(self):
        child = Child()
        self.assertEqual(child.ready, {"ready": 1, "language": "python", "version": child.ready["version"],
                                       "pid": child.process.pid})
        self.assertRegex(child.ready["version"], r"^3\.\d+\.\d+$")
        child.ours.close()
        self.assertEqual(child.process.wait(60), 0)
        self.assertEqual(child.text(child.err), "")

    def test_start_imports_little(self):
        """A refill costs a start: what is loaded at the ready frame is what this list says."""
        known = run("import sys\nnames = sorted(n for n in sys.modules if '.' not in n)\ndef f(): return names",
                    args={})["result"]
        heavy = {"json", "re", "typing", "inspect", "asyncio", "traceback", "ast", "dataclasses", "hashlib", "hmac",
                 "enum", "functools", "collections", "site", "socket", "threading", "warnings"}
        self.assertEqual(heavy & set(known), set())


if __name__ == "__main__":
    sys.exit(unittest.main())
