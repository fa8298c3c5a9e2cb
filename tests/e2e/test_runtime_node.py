# SPDX-License-Identifier: Apache-2.0
"""The Node runtime: what docs/TOOLS.md promises, row by row, and what user code does to it."""

import json
import os
import pathlib
import subprocess
import tempfile
import unittest

from runtimekit import Child, code, many, rows, run

NODE = "/usr/bin/node"
ESBUILD = os.environ.get("BRIG_TEST_ESBUILD") or next(
    (p for p in ("/usr/bin/esbuild", "/usr/local/bin/esbuild") if os.path.exists(p)), None)
SCHEMA = {"name": "f",
          "parameters": {"type": "object", "properties": {"b": {}, "a": {}, "c": {}}, "required": ["a", "b"]}}


def strips():
    done = subprocess.run([NODE, "-p", "typeof require('module').stripTypeScriptTypes"], stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL)
    return done.stdout.strip() == b"function"


@unittest.skipUnless(os.path.exists(NODE), "no /usr/bin/node")
class Node(unittest.TestCase):
    maxDiff = None

    def many(self, cases):
        return many(cases, "javascript")

    def good(self, answer, result=None):
        self.assertEqual((answer.error, answer.get("status")), (None, "ok"), answer.stderr)
        self.assertEqual(answer["result"], result)
        return answer

    def bad(self, answer, error):
        self.assertEqual(answer.get("status"), "error", answer.raw)
        self.assertIsNone(answer["result"])
        self.assertEqual(answer.error, error)
        return answer

    def test_each_row_of_the_values(self):
        cases = rows("JavaScript values", ["value", "JSON", "noted"])
        answers = self.many([(f"function f() {{\n  return ({code(value)});\n}}", {}) for value, _, _ in cases])
        for answer, (value, shown, noted) in zip(answers, cases):
            with self.subTest(value):
                self.good(answer, json.loads(code(shown)))
                self.assertEqual(bool(answer.get("notes")), noted == "yes")

    def test_each_row_of_the_errors(self):
        cases = rows("JavaScript values", ["value", "error"])
        for answer, (value, error) in zip(
                self.many([(f"function f() {{\n  return ({code(value)});\n}}", {}) for value, _ in cases]), cases):
            with self.subTest(value):
                self.bad(answer, code(error))

    def test_result_limits(self):
        answers = self.many([("function f() { return 'x'.repeat(100) }", {"result_max": 50}),
                             ("function f() { return Buffer.alloc(100) }", {"result_max": 100}),
                             ("function f() { return Array(2000000).fill(1) }", {}),
                             ("function f() { let a = []; for (let i = 0; i < 60; i++) a = [a]; return a }", {}),
                             ("function f() { return 2n ** 2000n }", {})])
        for answer in answers[:3]:
            self.assertTrue(answer.error.startswith("ResultTooLarge: the result "), answer.error)
        self.bad(answers[3], "RangeError: the result is nested deeper than 60 levels")
        self.assertEqual(answers[4]["result"], str(2**2000))

    def test_how_a_tool_may_be_written(self):
        forms = ["export function f(a, b) { return [a, b]; }", "function f(a, b) { return [a, b]; }",
                 "export const f = async (a, b) => [a, b];", "export default function f(a, b) { return [a, b]; }",
                 "export default (a, b) => [a, b];", "module.exports = (a, b) => [a, b];",
                 "exports.f = function (a, b) { return [a, b]; };", "const f = async ({a, b}) => [a, b];",
                 "function helper() { return 0; }\nexport async function f(a, b) {\n  helper();\n  return [a, b];\n}",
                 "const x = await Promise.resolve(1);\nfunction f(a, b) { return [a, b]; }",
                 "import { strictEqual } from 'node:assert';\nimport os from 'os';\n"
                 "export function f(a, b) { strictEqual(typeof os.EOL, 'string'); return [a, b]; }",
                 "const os = require('os');\nfunction f(a, b) { return os.EOL && [a, b]; }",
                 "import os from 'os';\nconst p = require('path');\nexport function f(a, b) { return p && [a, b]; }",
                 "async function f(a, b) { const os = await import('os'); return os.EOL && [a, b]; }",
                 "export async function f(a, b) { const os = await import('node:os'); return os.EOL && [a, b]; }"]
        for answer, form in zip(
                self.many([(form, {"args": {"b": 2, "a": 1}, "schema": SCHEMA, "name": "f"}) for form in forms]),
                forms):
            with self.subTest(form):
                self.good(answer, [1, 2])
        # no schema, no name
        for answer, form in zip(self.many([(form, {"args": {"b": 2, "a": 1}}) for form in forms[:3]]), forms):
            with self.subTest(form):
                self.good(answer, [1, 2])

    def test_arguments_keep_their_places(self):
        source = "function f(...all) { return all.map((one) => one === undefined ? 'gap' : one); }"
        schema = {"parameters": {"properties": {"x": {}, "y": {}, "z": {}}, "required": ["y"]}}
        answers = self.many([(source, {"args": {"z": 3, "y": 2, "more": 4}, "schema": schema}),
                             (source, {"args": {"y": 2}, "schema": schema}), (source, {"args": {}}),
                             ("function f(s) { return s; }", {"args": {"s": "`${process.exit(1)}`'\"\\"}}),
                             ("function f(s) { return s.length; }", {"args": {"s": "x" * (4 << 20)}}),
                             ("function f(a) { return [typeof client, client]; }", {})])
        self.good(answers[0], [2, "gap", 3, 4])
        self.good(answers[1], [2])
        self.good(answers[2], [])
        self.good(answers[3], "`${process.exit(1)}`'\"\\")
        self.good(answers[4], 4 << 20)
        self.good(answers[5], ["object", None])

    def test_errors(self):
        cases = [("function f() {\n  throw new TypeError('bad');\n}", "TypeError: bad", 2),
                 ("export async function f() {\n  await null;\n\n  throw new RangeError('late');\n}",
                  "RangeError: late", 4),
                 ("class Odd extends Error {}\nfunction f() {\n  throw new Odd('a\\nb');\n}", "Error: a\nb", 3),
                 ("function f() {\n  null.x;\n}", "TypeError: Cannot read properties of null (reading 'x')", 2),
                 ("function f() { throw 'text'; }", "Error: text", None),
                 ("function f() { throw {a: 1}; }", 'Error: {"a":1}', None),
                 ("function f() { throw null; }", "Error: null", None),
                 ("let x = 1;", "NoFunctionError: No functions found in source code", None),
                 ("", "NoFunctionError: No functions found in source code", None),
                 ("let a = 1;\nfunction f( {", "SyntaxError: Unexpected end of input (<tool f>, line 2)", None),
                 ("export function f() {\n  let 5;\n}", "SyntaxError: Unexpected number (<tool f>, line 2)", None),
                 ("function f() { process.exit(3); }", "SystemExit: 3", None),
                 ("import x from 'nosuch';\nexport function f() {}", None, None),
                 ("function f() { return new Promise(() => {}); }", "Error: the tool's promise was never settled",
                  None),
                 ("function f() {\n  setTimeout(() => { throw new Error('callback'); }, 1);\n"
                  "  return new Promise((done) => setTimeout(done, 5000));\n}", "Error: callback", 2),
                 ("function f() {\n  Promise.reject(new Error('nobody'));\n"
                  "  return new Promise((done) => setTimeout(done, 5000));\n}", "Error: nobody", 2),
                 ("function f() { f(); }", "RangeError: Maximum call stack size exceeded", 1)]
        for answer, (source, error, line) in zip(self.many([(source, {"name": "f"}) for source, _, _ in cases]), cases):
            with self.subTest(source):
                self.bad(answer, error or answer.error)
                if line:
                    self.assertIn(f"<tool f>:{line}:", answer["error"]["traceback"])
                    self.assertIn(answer["error"]["traceback"], answer.stderr)
                self.assertNotRegex(answer["error"]["traceback"], r"\[eval\]|node:internal")
        self.assertIn("nosuch", answers_of(cases, "nosuch", self)[0].error)
        for answer in self.many([("function f() { process.exit(); }", {}), ("function f() { process.exit(0); }", {}),
                                 ("function f() {}", {})]):
            self.good(answer)

    def test_surroundings(self):
        with tempfile.TemporaryDirectory() as place:
            modules = pathlib.Path(place, "npm/node_modules")
            for name, text in (("plain/index.js", "module.exports = 'plain';"),
                               ("esm/package.json",
                                '{"name": "esm", "type": "module", "exports": {"import": "./main.js"}}'),
                               ("esm/main.js", "export default 'esm';")):
                modules.joinpath(name).parent.mkdir(parents=True, exist_ok=True)
                modules.joinpath(name).write_text(text)
            pathlib.Path(place, "beside.mjs").write_text("export const x = 'beside';")
            answers = self.many(
                [("function f() { return [process.env, process.cwd(), process.argv.slice(1), process.execArgv, "
                  "require('child_process').execSync('echo $A').toString()]; }",
                  {"cwd": place, "env": {"A": "b c", "PATH": "/usr/bin:/bin"}, "name": "f"}),
                 ("import esm from 'esm';\nimport plain from 'plain';\nimport { x } from './beside.mjs';\nexport "
                  "function f() { return [esm, plain, require('plain'), x]; }", {"cwd": place, "site": str(modules)}),
                 ("function f() { return require('fs').readFileSync('a/in', 'utf8'); }",
                  {"cwd": place, "files": [{"path": "a/in", "base64": "aGk="}], "collect": ["a/in", "none"]})])
        self.good(answers[0],
                  [{"A": "b c", "PATH": "/usr/bin:/bin"}, os.path.realpath(place), ["<tool f>"], [], "b c\n"])
        self.good(answers[1], ["esm", "plain", "plain", "beside"])
        self.good(answers[2], "hi")
        self.assertEqual(answers[2]["files"][0], {"path": "a/in", "base64": "aGk="})
        self.assertEqual(list(answers[2]["files"][1]), ["path", "error"])

    def test_packages_that_are_modules_only(self):
        """From the dependency set, by every kind of import; as Node itself would find them."""
        with tempfile.TemporaryDirectory() as site:
            def package(name, about, **files):
                os.makedirs(f"{site}/node_modules/{name}")
                for file, text in {"package.json": json.dumps({"name": name, "version": "1.0.0", **about}),
                                   **files}.items():
                    with open(f"{site}/node_modules/{name}/{file}", "w", encoding="utf-8") as f:
                        f.write(text)

            package("only", {"type": "module", "exports": {".": {"import": "./m.js"}, "./sub": {"import": "./s.js"}}},
                    **{"m.js": "import { deep } from 'deep';\nexport const said = `only ${deep}`;\n"
                       "export default said;", "s.js": "export default 'sub';"})
            package("deep", {"type": "module", "exports": {"import": "./m.mjs"}},
                    **{"m.mjs": "export const deep = 'deep';"})
            package("both", {"exports": {"import": "./m.mjs", "require": "./c.cjs"}},
                    **{"m.mjs": "export default 'module';", "c.cjs": "module.exports = 'common';"})
            package("plain", {"main": "c.js"}, **{"c.js": "module.exports = 'plain';"})
            for source, result in (("import said, { said as again } from 'only';\n"
                                    "export function f() { return [said, again]; }", ["only deep", "only deep"]),
                                   ("async function f() { return (await import('only')).said; }", "only deep"),
                                   ("import sub from 'only/sub';\nexport function f() { return sub; }", "sub"),
                                   ("import one from 'both';\nexport async function f() { return [one, "
                                    "require('both'), (await import('both')).default]; }",
                                    ["module", "common", "module"]),
                                   ("import plain from 'plain';\n"
                                    "export function f() { return [plain, require('plain')]; }", ["plain", "plain"]),
                                   ("import { join } from 'node:path';\nimport fs from 'fs';\n"
                                    "export function f() { return [join('a', 'b'), typeof fs.readFileSync]; }",
                                    ["a/b", "function"])):
                answer = run(source, language="javascript", cwd="/tmp", site=f"{site}/node_modules")
                self.assertEqual((answer.error, answer.get("result")), (None, result), source)
            for source, words in (("import x from 'only/hidden';\nexport function f() {}",
                                   "is not defined by \"exports\""),
                                  ("import x from 'nosuch';\nexport function f() {}", "Cannot find package 'nosuch'")):
                self.assertIn(words, run(source, language="javascript", cwd="/tmp", site=f"{site}/node_modules").error)

    def test_snippets_and_commands(self):
        answers = self.many(
            [("setTimeout(() => console.log('late'), 20);\nprocess.on('exit', () => {});\nconsole.log('early');",
              {"kind": "code"}), ("console.log(await Promise.resolve(5));\nprocess.exit(4);", {"kind": "code"}),
             ("console.log(1);\nthrow new Error('x');", {"kind": "code"}), ("process.exitCode = 7;", {"kind": "code"}),
             ("", {"kind": "command", "command": ["sh", "-c", "cat; echo '[1]' >&$BRIG_RESULT"], "args": {"a": 1}}),
             ('["sh", "-c", "exit 3"]', {"kind": "command"}), ("x", {"kind": "schema"})])
        self.assertEqual(self.good(answers[0]).stdout, "early\nlate\n")
        self.assertEqual(answers[0]["exit_code"], 0)
        self.assertEqual(self.bad(answers[1], "SystemExit: 4").stdout, "5\n")
        self.assertEqual(self.bad(answers[2], "Error: x")["exit_code"], 1)
        self.assertIn("<code>:2:", answers[2].stderr)
        self.assertEqual(self.bad(answers[3], "SystemExit: 7")["exit_code"], 7)
        self.assertEqual(self.good(answers[4], [1]).stdout, '{"a":1}')
        self.assertEqual(self.bad(answers[5], "CommandError: sh: exit status 3")["exit_code"], 3)
        self.bad(answers[6], "TypeError: TypeScript tools require an explicit json_schema parameter.")

    def test_hostile(self):
        bodies = ["JSON.stringify = JSON.parse = null", "require('fs').writeSync = require('fs').readSync = () => 0",
                  "require('crypto').createHmac = null; Buffer.from = Buffer.concat = Buffer.alloc = null",
                  "process.exit = process.reallyExit = () => {}", "process.removeAllListeners()",
                  "process.stdout.end(); process.stderr.destroy()", "setInterval(() => {}, 10)",
                  "require('child_process').spawn('sleep', ['0.2'], {detached: true, stdio: 'ignore'})",
                  "process.stdout.write(Buffer.from('460000007b7d', 'hex'))",
                  "Error.prepareStackTrace = () => { throw 1 }",
                  "Object.getPrototypeOf(require('crypto').createHmac('sha256', 'x')).update = () => null"]
        for answer, body in zip(
                self.many([(f"function f() {{\n  {body};\n  return [1, 'x'];\n}}", {}) for body in bodies]), bodies):
            with self.subTest(body):
                self.good(answer, [1, "x"])
                self.assertTrue(answer.keyed)
                self.assertFalse(answer.more)
        for answer in self.many([("function f() { process.kill(process.pid, 'SIGKILL'); }", {}),
                                 ("function f() { require('fs').closeSync(3); return 1; }", {}),
                                 ("function f() { process.abort(); }", {})]):
            self.assertIsNone(answer.raw)
        answer = run("function f() { return require('child_process').execFileSync('ls', ['-l', '/proc/self/fd'], "
                     "{stdio: ['ignore', 'pipe', 'ignore']}).toString(); }", "javascript")
        self.assertNotRegex(answer["result"], r" 3 -> socket:")

    def test_ready(self):
        child = Child("javascript")
        self.assertEqual(child.ready,
                         {"ready": 1, "language": "node", "version": child.ready["version"], "pid": child.process.pid})
        child.ours.close()
        self.assertEqual(child.process.wait(60), 0)

    def test_typescript(self):
        source = ("interface P { n: number }\n\nexport async function f(p: P, s?: string): Promise<number> {\n"
                  "  const x: number = p.n as number;\n  if (s) throw new Error(s);\n  return x + 1;\n}\n")
        if not strips() and not ESBUILD:
            answer = run(source, "typescript", args={"p": {"n": 1}})
            self.assertRegex(answer.error, r"^TypeScriptError: Node v\S+ cannot strip types \(22.13 and later can\), "
                             r"and there is no esbuild in this template$")
            return
        with tempfile.TemporaryDirectory() as place:
            site = pathlib.Path(place, "node_modules/.bin")
            site.mkdir(parents=True)
            if ESBUILD:
                site.joinpath("esbuild").symlink_to(ESBUILD)
            cases = [(source, {"args": {"p": {"n": 1}}}), (source, {"args": {"p": {"n": 1}, "s": "boom"}, "name": "f"}),
                     ("enum E { A = 4 }\nexport function f() { return E.A; }", {}),
                     ("export function f(: number) {}", {})]
            answers = many([(text, {**more, "site": str(site.parent)}) for text, more in cases], "typescript")
        self.good(answers[0], 2)
        self.assertIn("<tool f>:5:", self.bad(answers[1], "Error: boom")["error"]["traceback"])
        self.good(answers[2], 4)
        self.assertEqual(answers[3]["error"]["type"], "SyntaxError")


def answers_of(cases, word, test):
    return test.many([(source, {"name": "f"}) for source, _, _ in cases if word in source])


if __name__ == "__main__":
    unittest.main()
