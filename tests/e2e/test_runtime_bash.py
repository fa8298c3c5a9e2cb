# SPDX-License-Identifier: Apache-2.0
"""The bash runtime: scripts and commands as docs/TOOLS.md has them."""

import json
import shutil
import tempfile
import unittest

from runtimekit import Child, many, run

JSON = ['{"a": [1, -2.5e3, "x\\n"], "b": null}', "[]", "{}", "7", '"text"', "true", ' [ 1 , { "a" : [ ] } ] ',
        '"\\u00e9\\ud83d\\ude00 \\\\ud800"', '{"q": "a\\"}]"}', "[[[[1]]],\n{}]", '"é"', "-0.5", '["[", "{"]']
TEXT = ["plain text", "[1,", "{a: 1}", "[01]", "1 2", "1.", "nul", '"open', '"a" "b"', "[1,]", '{"a"}', '"\\x"',
        '"\\ud800"', "a\tb\x01\x7f", "back\\slash", "[truefalse]", "two\nlines", '{"a":1}}', "?", "--1", "[1 2]"]


class Bash(unittest.TestCase):
    maxDiff = None

    def many(self, cases):
        return many(cases, "bash")

    def good(self, answer, result=None):
        self.assertEqual((answer.error, answer.get("status")), (None, "ok"), answer.stderr)
        self.assertEqual(answer["result"], result)
        return answer

    def bad(self, answer, error):
        self.assertEqual(answer.get("status"), "error", answer.raw)
        self.assertEqual(answer.error, error)
        return answer

    def test_results_are_json_or_text(self):
        source = 'printf %s "$ARG_TEXT" >&$BRIG_RESULT'
        for answer, text in zip(self.many([(source, {"args": {"text": text}}) for text in JSON + TEXT]), JSON + TEXT):
            with self.subTest(text):
                self.good(answer, json.loads(text) if text in JSON else text)
        answers = self.many([("printf 'a\\xffb\\n' >&$BRIG_RESULT", {}), ("printf '\"a\\xffb\"' >&$BRIG_RESULT", {}),
                             ("echo only output", {}), ("echo a >&4; echo b >&$BRIG_RESULT", {}),
                             ("printf 'a\\0b' >&4", {}),
                             ("head -c 200 /dev/zero | tr '\\0' x >&4", {"result_max": 100})])
        self.good(answers[0], "ab")
        self.good(answers[1], '"ab"')
        self.assertEqual(self.good(answers[2]).stdout, "only output\n")
        self.good(answers[3], "a\nb")
        self.good(answers[4], "ab")
        self.bad(answers[5], "ResultTooLarge: the result is larger than the 100 bytes that are allowed")

    def test_arguments_and_environment(self):
        args = {"who": 'wörld "q" \\ \n\t\U0001f600 /', "n": 5, "f": 1.5, "yes": True, "none": None,
                "list": [1, {"a": "}"}], "with-dash": "d", "": "empty", "back": "\\n\\\\u0041\\\"",
                "code": "$(touch /tmp/x) `id` ; exit 9"}
        names = ["WHO", "N", "F", "YES", "LIST", "WITH_DASH", "BACK", "CODE"]
        source = "cat >&1\n" + "\n".join(f'printf "%s\\0" "$ARG_{name}" >>"$PLACE"'
                                         for name in names) + "\necho ${ARG_NONE-unset}; env -0 >>\"$PLACE\"; exec 4>&-"
        with tempfile.TemporaryDirectory() as place:
            env = {"PLACE": place + "/out", "A": "x\ny 'z'", "PATH": "/usr/bin:/bin", "E": ""}
            answer = self.good(run(source, "bash", args=args, env=env, cwd=place))
            with open(place + "/out", encoding="utf-8") as out:
                got = out.read().split("\0")
        self.assertEqual(json.loads(answer.stdout.rpartition("unset\n")[0]), args)
        self.assertEqual(got[:8], [args["who"], "5", "1.5", "true", '[1, {"a": "}"}]', "d", args["back"], args["code"]])
        seen = dict(one.split("=", 1) for one in got[8:] if one)
        for name in [n for n in seen if n.startswith("ARG_")] + ["PWD", "SHLVL", "_", "BRIG_RESULT"]:
            seen.pop(name, None)
        self.assertEqual(seen, env)

    def test_big_things(self):
        big = "x" * (2 << 20)
        answers = self.many([("wc -c; echo ${ARG_BIG-unset}", {"args": {"big": big}}),
                             ("#" + "c" * 200000 + "\necho done", {}),
                             ("head -c 3000000 /dev/zero | tr '\\0' y >&4", {}),
                             ("python3 -c 'print(list(range(100000)))' >&4", {"env": {"PATH": "/usr/bin:/bin"}}),
                             ("echo '" + '\\"' * 5000 + "'", {})])
        self.assertEqual(answers[0].stdout, f"{len(json.dumps({'big': big}))}\nunset\n")
        self.assertEqual(answers[1].stdout, "done\n")
        self.good(answers[2], "y" * 3000000)
        self.good(answers[3], list(range(100000)))
        self.assertEqual(answers[4].stdout, '\\"' * 5000 + "\n")

    def test_ends(self):
        place = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, place)
        answers = self.many(
            [("exit 3", {"name": "f"}), ("kill -9 $$", {"name": "f"}), ("echo out; nosuch x\nexit 1", {"name": "f"}),
             ("if", {"name": "f"}), ("false", {"kind": "code"}),
             ("cat; echo hi >out.txt", {"kind": "code", "cwd": place, "collect": ["out.txt", "no"]}),
             ("", {"kind": "command", "command": ["sh", "-c", "cat; echo '[1, 2]' >&$BRIG_RESULT"], "args": {"a": 1}}),
             ('["/nosuch"]', {"kind": "command"}), ("x", {"kind": "schema"}), ("true", {"cwd": "/nosuch"}),
             ("cat a/b/in", {"kind": "code", "cwd": place, "files": [{"path": "a/b/in", "base64": "aGk="}]}),
             ("true", {"files": [{"path": "/proc/no", "base64": ""}]})])
        self.bad(answers[0], "CommandError: <tool f>: exit status 3")
        self.assertEqual(self.bad(answers[1], "CommandError: <tool f>: signal 9").stderr, "")
        self.assertEqual(self.bad(answers[2], "CommandError: <tool f>: exit status 1").stderr,
                         "<tool f>: line 1: nosuch: command not found\n")
        self.assertIn("<tool f>: -c: line ", self.bad(answers[3], "CommandError: <tool f>: exit status 2").stderr)
        self.assertEqual(self.bad(answers[4], "CommandError: <code>: exit status 1")["exit_code"], 1)
        self.assertEqual(self.good(answers[5])["files"],
                         [{"path": "out.txt", "base64": "aGkK"}, {"path": "no", "error": "No such file or directory"}])
        self.assertEqual(self.good(answers[6], [1, 2]).stdout, '{"a": 1}')
        self.assertEqual(self.bad(answers[7], "CommandError: /nosuch: exit status 127")["exit_code"], 127)
        self.bad(answers[8], "TypeError: a tool in bash requires an explicit json_schema")
        self.bad(answers[9], "FileNotFoundError: /nosuch: no such directory")
        self.assertEqual(self.good(answers[10]).stdout, "hi")
        self.bad(answers[11], "OSError: /proc/no cannot be written")

    def test_hostile(self):
        sources = ["exec 3>&-; echo 1 >&4", "sleep 0.3 & echo 1 >&4", "(setsid sleep 0.3 &) ; echo 1 >&4",
                   "trap '' TERM; echo 1 >&4", "printf '\\x46\\0\\0\\0{}'; echo 1 >&4", "exec >&- 2>&-; echo 1 >&4",
                   "set -e; shopt -s extglob; declare -r LC_ALL=C; echo 1 >&4", "PATH=/nowhere; echo 1 >&4"]
        for answer, source in zip(self.many([(source, {}) for source in sources]), sources):
            with self.subTest(source):
                self.good(answer, 1)
                self.assertTrue(answer.keyed)
        answer = run("ls -l /proc/self/fd; set; env", "bash")
        self.assertNotRegex(answer.stdout, "socket:|_pad|got=")
        self.assertIsNone(run("kill -9 $PPID; sleep 5", "bash").raw)

    def test_ready(self):
        child = Child("bash")
        self.assertEqual(child.ready,
                         {"ready": 1, "language": "bash", "version": child.ready["version"], "pid": child.process.pid})
        child.ours.close()
        self.assertEqual(child.process.wait(60), 0)


if __name__ == "__main__":
    unittest.main()
