# SPDX-License-Identifier: Apache-2.0
"""The behaviours of Letta's own test matrix that apply here, one test each, named after theirs (docs/COMPATIBILITY.md
has the whole list). Tools run in real sandboxes of a real daemon; what Letta asserts inside its process is asserted
here through its interface."""

import hashlib
import json
import os
import re
import tempfile

from lettakit import (ADD, ASYNC_ADD, ASYNC_CLEAR, ASYNC_COMPLEX, ASYNC_ERROR, ASYNC_GET_ENV, ASYNC_LIST, CLEAR_MEMORY,
                      COWSAY, CREATE_LIST, ERROR, GET_ENV, USER, WARN, LettaTest,
                      wheel)
from service import DEFAULT_ORG

TOOL_KEYS = ["id", "tool_type", "description", "source_type", "name", "tags", "source_code", "json_schema",
             "args_json_schema", "return_char_limit", "pip_requirements",
             "npm_requirements", "default_requires_approval", "enable_parallel_execution", "created_by_id",
             "last_updated_by_id", "metadata_", "project_id"]
CONFIG_KEYS = ["created_by_id", "last_updated_by_id", "created_at", "updated_at", "id", "type", "organization_id",
               "config"]
VARIABLE_KEYS = ["created_by_id", "last_updated_by_id", "created_at", "updated_at", "id", "key", "value", "description",
                 "organization_id", "value_enc", "sandbox_config_id"]
BLOCKS = [{"label": "human", "value": "name: Ada", "limit": 2000}, {"label": "persona", "value": "kind", "limit": 2000}]
MENU = '''
def adjust_menu_prices(percentage: float) -> str:
    """
    Adjusts the prices.

    Args:
        percentage (float): By how much.
    """
    import cowsay
    from tqdm import tqdm
    from core.menu import Menu
    from core.utils import format_currency
    menu = Menu()
    lines = ["Price Adjustments:"]
    for name, price in tqdm(menu.items()):
        lines.append(f"{name}: {format_currency(price)} -> {format_currency(price * (1 + percentage / 100))}")
    cowsay.cow("Hello World")
    return "\\n".join(lines)
'''


class Local(LettaTest):
    """A: integration_test_async_tool_sandbox.py, on the local provider."""

    def variables(self, **values):
        config = self.ask("POST", "/sandbox-config/local/default")
        for key, value in values.items():
            made = self.ask("POST", f"/sandbox-config/{config['id']}/environment-variable",
                            {"key": key, "value": value})
            self.addCleanup(self.d.ask, "DELETE", f"/v1/sandbox-config/environment-variable/{made['id']}")

    def test_A1_local_sandbox_default(self):
        tool = self.tool(ADD)
        ran = self.run_tool(tool, {"x": 10, "y": 5})
        self.assertEqual((ran["status"], ran["result"], ran["error"]), ("success", 15, None))
        self.assertEqual(ran["receipt"]["tool"]["name"], "add")

    def stateful(self, source):
        tool = self.tool(source, json_schema={"name": re.search(r"def (\w+)", source)[1], "description": "clears",
                                              "parameters": {"type": "object", "properties": {}, "required": []}})
        agent = self.agent(tool, memory_blocks=BLOCKS)
        ran = self.run_agent(agent, tool)
        self.assertEqual((ran["status"], ran["func_return"], ran["agent_state"]), ("success", None, None), ran)
        after = self.ask("GET", f"/agents/{agent['id']}")
        self.assertEqual({b["label"]: b["value"] for b in after["memory"]["blocks"]}, {"human": "", "persona": ""})

    def test_A2_local_sandbox_stateful_tool(self):
        self.stateful(CLEAR_MEMORY)

    def test_A3_local_sandbox_with_list_rv(self):
        self.assertEqual(self.run_tool(self.tool(CREATE_LIST))["result"], [1] * 5)

    def test_A4_local_sandbox_env(self):
        self.variables(secret_word="kangaroo")
        ran = self.run_tool(self.tool(GET_ENV))
        self.assertEqual(ran["status"], "success", ran)
        self.assertIn("secret_word", ran["receipt"]["environment"])
        # The value is a secret of the run: the tool had it, and it is scrubbed from all that comes back.
        self.assertNotIn("kangaroo", json.dumps(ran))
        self.assertEqual(self.source('def f():\n    """F."""\n    import os\n'
                                     '    return len(os.environ["secret_word"])\n')["tool_return"],
                         "8")

    def test_A5_local_sandbox_per_agent_env(self):
        self.variables(secret_word="sandboxword")
        tool = self.tool('def length() -> int:\n    """The length."""\n    import os\n'
                         '    return os.environ["secret_word"] == "agentword"\n')
        agent = self.agent(tool, secrets={"secret_word": "agentword"})
        self.assertIs(self.run_agent(agent, tool)["func_return"], True)

    def test_A7_local_sandbox_with_venv_and_warnings_does_not_error(self):
        self.assertEqual(self.run_tool(self.tool(WARN))["result"], "Hello World")

    def test_A8_local_sandbox_with_venv_errors(self):
        ran = self.source(ERROR)
        self.assertEqual(ran["status"], "error")
        self.assertIn("error", ran["stdout"][0])
        self.assertIn("ZeroDivisionError: This is an intentionally weird division!", ran["stderr"][0])
        self.assertIn("ZeroDivisionError: This is an intentionally weird division!", ran["tool_return"])

    def test_A22_async_function_detection(self):
        self.assertEqual(self.tool(ASYNC_ADD)["json_schema"]["name"], "async_add")

    def test_A24_local_sandbox_async_function_execution(self):
        self.assertEqual(self.run_tool(self.tool(ASYNC_ADD), {"x": 15, "y": 25})["result"], 40)

    def test_A26_local_sandbox_async_complex_computation(self):
        got = self.run_tool(self.tool(ASYNC_COMPLEX), {"iterations": 2})["result"]
        self.assertEqual((got["results"], got["iterations"], got["average"]), ([0, 2], 2, 1.0))
        self.assertGreater(got["duration"], 0.15)

    def test_A28_local_sandbox_async_list_return(self):
        self.assertEqual(self.run_tool(self.tool(ASYNC_LIST))["result"], [1, 2, 3, 4, 5])

    def test_A30_local_sandbox_async_with_env_vars(self):
        ran = self.source(ASYNC_GET_ENV.replace("return word", "return word == 'a-runtime-word'"),
                          env_vars={"secret_word": "a-runtime-word"})
        self.assertEqual((ran["status"], ran["tool_return"]), ("success", "True"), ran)

    def test_A32_local_sandbox_async_with_agent_state(self):
        self.stateful(ASYNC_CLEAR)

    def test_A34_local_sandbox_async_error_handling(self):
        ran = self.source(ASYNC_ERROR)
        self.assertIn("error", ran["stdout"][0])
        self.assertIn("ValueError: This is an intentional async error!", ran["stderr"][0])

    def test_A36_local_sandbox_async_per_agent_env(self):
        self.variables(secret_word="sandboxword")
        tool = self.tool(ASYNC_GET_ENV.replace("return word", "return word == 'agentword'"))
        self.assertIs(self.run_agent(self.agent(tool, secrets={"secret_word": "agentword"}), tool)["func_return"], True)

    def test_B8_tool_with_agent_id_injection(self):
        tool = self.tool('def who(agent_id: str) -> str:\n    """Who."""\n    return agent_id\n',
                         json_schema={"name": "who", "description": "who", "parameters": {
                             "type": "object", "properties": {}, "required": []}})
        agent = self.agent(tool)
        self.assertEqual(self.run_agent(agent, tool)["func_return"], agent["id"])

    def test_B14_same_configuration_same_fingerprint(self):
        tool = self.tool(ADD)
        agent = self.agent(tool)
        first = self.run_agent(agent, tool, {"x": 1, "y": 2})["sandbox_config_fingerprint"]
        self.assertRegex(first, r"^[0-9]{60,78}$")
        self.assertEqual(self.run_agent(agent, tool, {"x": 1, "y": 2})["sandbox_config_fingerprint"], first)
        # B18: another configuration, another fingerprint, and the run says the current one.
        config = self.ask("POST", "/sandbox-config/local/default")
        self.ask("PATCH", f"/sandbox-config/{config['id']}", {"config": {"venv_name": "other"}})
        second = self.run_agent(agent, tool, {"x": 1, "y": 2})["sandbox_config_fingerprint"]
        self.assertNotEqual(first, second)
        self.assertEqual(second, self.ask("GET", f"/sandbox-config/{config['id']}")["fingerprint"])

    # ---- run from source: test_server.py at 0.13.0 ------------------------------------------------------------------

    INGEST = '''
def ingest(message: str):
    """
    Ingest a message into the system.

    Args:
        message (str): The message to ingest into the system.

    Returns:
        str: The result of ingesting the message.
    """
    return f"Ingested message {message}"
'''

    def test_run_basic(self):
        ran = self.source(self.INGEST, {"message": "Hello, world!"}, source_type="python")
        self.assertEqual((ran["status"], ran["tool_return"], ran["stdout"], ran["stderr"]),
                         ("success", "Ingested message Hello, world!", [], []))
        self.assertEqual(list(ran), ["id", "date", "name", "message_type", "otid", "sender_id", "step_id", "is_err",
                                     "seq_id", "run_id", "tool_return", "status", "tool_call_id", "stdout",
                                     "stderr", "tool_returns", "receipt"])
        self.assertEqual((ran["id"], ran["tool_call_id"], ran["name"], ran["message_type"]),
                         ("null", "null", None, "tool_return_message"))
        self.assertRegex(ran["date"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00$")
        self.assertEqual(ran["tool_returns"], [{"type": "tool", "tool_return": ran["tool_return"], "status": "success",
                                                "tool_call_id": "null", "stdout": [], "stderr": []}])

    def test_run_env_var(self):
        ran = self.source('def ingest():\n    """Ingest."""\n    import os\n'
                          '    return "Ingested " + os.environ["secret"][::-1]\n', env_vars={"secret": "banana"})
        self.assertEqual((ran["status"], ran["tool_return"]), ("success", "Ingested ananab"), ran)

    def test_run_bad_argument(self):
        ran = self.source(self.INGEST, {"bad_arg": "oh no"}, source_type="python")
        self.assertEqual(ran["status"], "error")
        for text in (ran["tool_return"], ran["stderr"][0]):
            self.assertIn("Error", text)
        self.assertTrue("missing 1 required positional argument" in ran["tool_return"]
                        or "unexpected keyword argument" in ran["tool_return"], ran)

    def test_run_with_distractor(self):
        source = '''
def util(x: int):
    """
    A helper.

    Args:
        x (int): A number.
    """
    print("I'm a distractor")
    return None

''' + self.INGEST.replace("    return f", "    util(1)\n    return f")
        ran = self.source(source, {"message": "Well well well"})
        self.assertEqual((ran["status"], ran["tool_return"]), ("success", "Ingested message Well well well"), ran)
        self.assertIn("I'm a distractor", ran["stdout"][0])
        ran = self.source(source, {"x": 3}, name="util")
        self.assertEqual((ran["tool_return"], ran["name"]), ("None", "util"), ran)

    def test_run_explicit_schema(self):
        schema = {"name": "ingest", "description": "x",
                  "parameters": {"type": "object",
                                 "properties": {"message": {"type": "string"}, "extra": {"type": "string"}},
                                 "required": ["message"]}}
        self.assertEqual(self.source(self.INGEST, {"message": "x"}, json_schema=schema)["tool_return"],
                         "Ingested message x")

    def test_run_values_as_python_prints_them(self):
        for expression, text in (("None", "None"), ("True", "True"), ("{'a': [1, None]}", "{'a': [1, None]}"),
                                 ("'x'", "x"), ("1.5", "1.5")):
            ran = self.source(f'def f():\n    """F."""\n    return {expression}\n')
            self.assertEqual((ran["status"], ran["tool_return"]), ("success", text))

    def test_run_refusals(self):
        self.assertIn("INVALID_ARGUMENT: Tool source type is not supported at this time. Found cobol", self.detail(
            "POST", "/tools/run", {"source_code": "x", "args": {}, "source_type": "cobol"}))
        for body in ({"args": {}}, {"source_code": "x"}, {"source_code": "x", "args": {}, "unknown": 1},
                     {"source_code": 1, "args": {}}, {"source_code": "x", "args": []},
                     {"source_code": "x", "args": {}, "env_vars": {"A": 1}}):
            self.detail("POST", "/tools/run", body, status=422)
        self.detail("POST", "/tools/run", b"{nonsense", status=422)
        self.detail("POST", "/tools/run", {"source_code": "x = 1\n", "args": {}}, status=400)  # no function to be found

    def test_agent_run(self):
        """test_sdk_client.py: the result's shape, wrong arguments, a tool that is not attached."""
        tool, other = self.tool(ADD), self.tool(CREATE_LIST)
        agent = self.agent(tool)
        ran = self.run_agent(agent, tool, {"x": 2, "y": 3})
        self.assertEqual(list(ran), ["status", "func_return", "agent_state", "stdout", "stderr",
                                     "sandbox_config_fingerprint", "receipt"])
        self.assertEqual((ran["status"], ran["func_return"], ran["stdout"], ran["stderr"]), ("success", 5, [], []))
        ran = self.run_agent(agent, tool, {"x": "not a number"})
        self.assertEqual((ran["status"], ran["func_return"]), ("error", None))
        self.assertTrue(ran["stderr"][0], ran)
        self.assertEqual(self.detail("POST", f"/agents/{agent['id']}/tools/{other['name']}/run", {}, status=404),
                         f"Tool 'create_list' not found or not attached to agent '{agent['id']}'")

    def test_C13_gather_env_vars_layering(self):
        self.variables(GLOBAL_ONLY="g", SHARED="global", MIDDLE="global")
        source = '''
def show() -> dict:
    """Shows."""
    import os
    return {k: os.environ.get(k) for k in ("GLOBAL_ONLY", "SHARED", "MIDDLE", "AGENT_ONLY", "RUN_ONLY", \
"LETTA_TOOL_ID", "LETTA_AGENT_ID", "BRIG_SECRETS_KEY")}
'''
        tool = self.tool(source)
        agent = self.agent(tool, secrets={"SHARED": "agent", "MIDDLE": "agent", "AGENT_ONLY": "a"})
        ran = self.run_tool(tool, env_vars={"SHARED": "run", "RUN_ONLY": "r", "LETTA_TOOL_ID": "forged"},
                            agent_id=agent["id"])
        self.assertEqual(ran["result"], {"GLOBAL_ONLY": "g", "SHARED": "run", "MIDDLE": "agent", "AGENT_ONLY": "a",
                                         "RUN_ONLY": "r", "LETTA_TOOL_ID": tool["id"],
                                         "LETTA_AGENT_ID": agent["id"], "BRIG_SECRETS_KEY": None})
        layers = ran["receipt"]["environment"]
        self.assertEqual([layers[k] for k in ("GLOBAL_ONLY", "MIDDLE", "SHARED", "LETTA_TOOL_ID")],
                         ["sandbox", "agent", "runtime", "forced"])


    # ---- V: what is returned, of test_utils.py ----------------------------------------------------------------------

    def returned(self, name, expression, **members):
        return self.tool(f'def {name}():\n    """V."""\n    return {expression}\n', **members)

    def test_V1_values_within_the_limit_stay(self):
        for i, (expression, value) in enumerate((("'x y'", "x y"), ("None", None), ("{'a': {'b': 1}}", {"a": {"b": 1}}),
                                                 ("42", 42), ("[1, 2, 3]", [1, 2, 3]), ("True", True), ("''", ""),
                                                 ("'   '", "   "))):
            ran = self.run_tool(self.returned(f"v_{i}", expression))
            self.assertEqual((ran["status"], ran["result"]), ("success", value))

    def test_V9_cut_at_the_limit(self):
        ran = self.run_tool(self.returned("v_long", "'x' * 200", return_char_limit=50))
        self.assertTrue(ran["result"].startswith(
            "x" * 50 + "... [NOTE: function output was truncated since it exceeded the character limit: 200 > 50]"),
                        ran["result"])
        self.assertNotIn("x" * 51, ran["result"])
        self.assertEqual(self.run_tool(self.returned("v_exact", "'x' * 50", return_char_limit=50))["result"], "x" * 50)
        ran = self.run_tool(self.returned("v_dict", "{'k': 'x' * 200}", return_char_limit=50))
        self.assertIn("NOTE: function output was truncated", ran["result"])

    # ---- T: integration_test_typescript_tool_execution_sandbox.py, on the local provider ----------------------------

    def typescript(self, name, source, properties, args, **members):
        schema = {"name": name, "description": "",
                  "parameters": {"type": "object", "properties": properties, "required": list(properties)}}
        ran = self.run_tool(self.tool(source, source_type="typescript", json_schema=schema, **members), args)
        if "cannot strip types" in (ran["error"] or ""):
            self.skipTest("this host has neither a Node that strips types nor esbuild")
        return ran

    def test_T5_javascript_functions(self):
        number = {"type": "number"}
        schema = {"name": "addNumbers", "description": "",
                  "parameters": {"type": "object", "properties": {"x": number, "y": number}, "required": ["x", "y"]}}
        tool = self.tool("export async function addNumbers(x, y) {\n  return x + y;\n}\n", source_type="javascript",
                         json_schema=schema)
        self.assertEqual(self.run_tool(tool, {"x": 10, "y": 5})["result"], 15)

    def test_T5_typescript_functions(self):
        number, text = {"type": "number"}, {"type": "string"}
        ran = self.typescript("addNumbers",
                              "export function addNumbers(x: number, y: number): number {\n  return x + y;\n}\n",
                              {"x": number, "y": number}, {"x": 10, "y": 5})
        self.assertEqual((ran["status"], ran["result"]), ("success", 15), ran)
        ran = self.typescript("concat",
                              "export function concat(a: string, b: string): string { return `${a}, ${b}!`; }",
                              {"a": text, "b": text}, {"a": "Hello", "b": "World"})
        self.assertEqual(ran["result"], "Hello, World!")  # T6
        ran = self.typescript("delayed", "export async function delayed(m: string): Promise<string> { await new "
                              "Promise(r => setTimeout(r, 1)); return `Delayed: ${m}`; }", {"m": text},
                              {"m": "test"})
        self.assertEqual(ran["result"], "Delayed: test")  # T7
        ran = self.typescript("sum",
                              "export function sum(n: number[]): number { return n.reduce((a, b) => a + b, 0); }",
                              {"n": {"type": "array"}}, {"n": [1, 2, 3, 4, 5]})
        self.assertEqual(ran["result"], 15)  # T9
        ran = self.typescript("full", "interface P { first: string; last: string }\n"
                              "export function full(p: P): string { return `${p.first} ${p.last}`; }",
                              {"p": {"type": "object"}},
                              {"p": {"first": "John", "last": "Doe"}})
        self.assertEqual(ran["result"], "John Doe")  # T10

    def test_T8_typescript_error(self):
        ran = self.typescript("thrower", "export function thrower(): never { throw new Error('thrown on purpose'); }",
                              {}, {})
        self.assertEqual(ran["status"], "error")
        self.assertIn("thrown on purpose", ran["error"])


class Packages(LettaTest):
    """A, with requirements: wheels of our own stand in for an index."""

    @classmethod
    def setUpClass(cls):
        cls.wheels = tempfile.mkdtemp(prefix="brig-wheels-")
        os.chmod(cls.wheels, 0o755)
        wheel(cls.wheels, "cowsay", "6.1", {"cowsay/__init__.py": "def cow(text):\n    print('moo', text)\n"})
        wheel(cls.wheels, "tqdm", "4.66", {"tqdm/__init__.py": "def tqdm(items):\n    return items\n"})
        cls.dir = tempfile.mkdtemp(prefix="brig-tools-")
        os.chmod(cls.dir, 0o755)
        os.mkdir(f"{cls.dir}/core")
        for name, text in (("core/__init__.py", ""),
                           ("core/menu.py", "class Menu:\n    def items(self):\n"
                            "        return [('Burger', 8.99), ('Fries', 2.99), ('Soda', 1.99)]\n"),
                           ("core/utils.py", "def format_currency(v):\n    return f'${v:.2f}'\n"),
                           ("requirements.txt", "cowsay\n")):
            with open(f"{cls.dir}/{name}", "w", encoding="utf-8") as f:
                f.write(text)
        cls.CONFIG = f'[sandbox]\nallowed_dirs = "{cls.dir}"\n[tools]\nfind_links = "{cls.wheels}"\n'
        super().setUpClass()

    def test_A6_local_sandbox_external_codebase_with_venv(self):
        self.local(sandbox_dir=self.dir, use_venv=True, pip_requirements=[{"name": "tqdm"}])
        ran = self.run_tool(self.tool(MENU), {"percentage": 10})
        self.assertEqual(ran["result"],
                         "Price Adjustments:\nBurger: $8.99 -> $9.89\nFries: $2.99 -> $3.29\nSoda: $1.99 -> $2.19", ran)
        self.assertIn("Hello World", ran["stdout"])

    def test_A9_local_sandbox_with_venv_pip_installs_basic(self):
        self.local(use_venv=True, pip_requirements=[{"name": "cowsay"}])
        ran = self.source(COWSAY, env_vars={"secret_word": "abc"})
        self.assertEqual(ran["status"], "success", ran)
        self.assertIn("abc", ran["stdout"][0])

    def test_A10_local_sandbox_with_tool_pip_requirements(self):
        self.local(use_venv=True)
        tool = self.tool('def use() -> str:\n    """Uses."""\n    import cowsay\n    return "Success!"\n',
                         pip_requirements=[{"name": "cowsay", "version": "6.1"}])
        self.assertEqual(tool["pip_requirements"], [{"name": "cowsay", "version": "6.1"}])
        self.assertEqual(self.run_tool(tool)["result"], "Success!")

    def test_A11_local_sandbox_with_mixed_pip_requirements(self):
        self.local(use_venv=True, pip_requirements=[{"name": "cowsay"}])
        tool = self.tool('def both() -> str:\n    """Uses."""\n    import cowsay, tqdm\n    return "Success!"\n',
                         pip_requirements=[{"name": "tqdm"}])
        self.assertEqual(self.run_tool(tool)["result"], "Success!")

    def test_A12_local_sandbox_with_venv_pip_installs_with_update(self):
        config = self.local(use_venv=True, pip_requirements=[])
        ran = self.source(COWSAY)
        self.assertEqual((ran["status"], ran["stdout"]), ("error", []))
        self.assertIn("No module named 'cowsay'", ran["stderr"][0])
        self.ask("PATCH", f"/sandbox-config/{config['id']}", {"config": {"pip_requirements": [{"name": "cowsay"}]}})
        self.assertEqual(self.source(COWSAY, env_vars={"secret_word": "abc"})["status"], "success")

    def test_A21_broken_requirement_is_the_runs_error(self):
        self.local(use_venv=True)
        tool = self.tool('def broken() -> str:\n    """Uses."""\n    return "no"\n',
                         pip_requirements=[{"name": "nonexistent-package-12345"}])
        ran = self.run_tool(tool)
        self.assertEqual(ran["status"], "error")
        for text in ("nonexistent-package-12345", "package version incompatibility"):
            self.assertIn(text, ran["error"])


class Configurations(LettaTest):
    """C: test_sandbox_manager.py, and 1.2, 1.3 of the specification."""

    CONFIG = '[tools]\ne2b_template = "tpl-1"\n'

    def test_C1_create_or_update(self):
        made = self.ask("POST", "/sandbox-config/", {"config": {"timeout": 60, "template": "t-1"}})
        self.assertEqual(list(made)[:8], CONFIG_KEYS)
        self.assertEqual((made["type"], made["organization_id"], made["config"]["timeout"], made["config"]["template"]),
                         ("e2b", DEFAULT_ORG, 60, "t-1"))
        self.assertRegex(made["id"], r"^sandbox-[0-9a-f-]{36}$")
        self.assertEqual((made["created_by_id"], made["last_updated_by_id"]), (USER, USER))
        self.assertRegex(made["created_at"], r"^\d{4}-\d\d-\d\dT.*Z$")
        again = self.ask("POST", "/sandbox-config/", {"config": {"timeout": 60, "template": "t-1"}})
        self.assertEqual(again, made)  # equal: unchanged
        other = self.ask("POST", "/sandbox-config/", {"config": {"timeout": 61, "template": "t-1"}})
        self.assertEqual((other["id"], other["config"]["timeout"]), (made["id"], 61))
        self.assertNotEqual(other["fingerprint"], made["fingerprint"])
        wanted = hashlib.sha256(json.dumps({"type": "e2b", "organization_id": DEFAULT_ORG, "config": other["config"]},
                                           sort_keys=True, separators=(",", ":")).encode()).hexdigest()
        self.assertEqual(other["fingerprint"], str(int(wanted, 16)))
        events = self.d.ask("GET", "/v1/audit?limit=1000").body.decode()
        self.assertIn(f"{made['fingerprint']} -> {other['fingerprint']}", events)
        # an explicit type, and the intent of the union rule without one
        self.assertEqual(self.ask("POST", "/sandbox-config/", {"config": {"type": "modal", "timeout": 9}})["type"],
                         "modal")
        self.assertEqual(
            self.ask("POST", "/sandbox-config/",
                     {"config": {"timeout": 60, "language": "typescript", "npm_requirements": ["a"]}})["type"], "modal")

    def test_C2_local_defaults(self):
        made = self.ask("POST", "/sandbox-config/local/default")
        self.assertEqual(made["type"], "local")
        self.assertTrue(made["config"]["sandbox_dir"].startswith("/"), made)
        self.assertEqual([made["config"][k] for k in ("use_venv", "venv_name", "pip_requirements")],
                         [False, "venv", []])
        self.assertEqual(self.ask("POST", "/sandbox-config/local/default"), made)

    def test_C3_default_e2b(self):
        for one in self.ask("GET", "/sandbox-config/?sandbox_type=e2b"):
            self.ask("DELETE", f"/sandbox-config/{one['id']}", status=204)
        made = self.ask("POST", "/sandbox-config/e2b/default")
        self.assertEqual((made["type"], made["config"]["timeout"]), ("e2b", 300))

    def test_C4_update_existing(self):
        made = self.ask("POST", "/sandbox-config/", {"config": {"timeout": 60, "template": "t"}})
        after = self.ask("PATCH", f"/sandbox-config/{made['id']}", {"config": {"template": "template_2"}})
        self.assertEqual((after["config"]["template"], after["config"]["timeout"]), ("template_2", 60))  # merged
        after = self.ask("PATCH", f"/sandbox-config/{made['id']}", {"config": {"timeout": 120}})
        self.assertEqual((after["config"]["template"], after["config"]["timeout"]), ("template_2", 120))
        self.assertIn("Mismatched type for sandbox config update: tried to update sandbox_config of type e2b with "
                      "config of type local",
                      self.detail("PATCH", f"/sandbox-config/{made['id']}", {"config": {"venv_name": "v"}}))
        self.detail("PATCH", f"/sandbox-config/{made['id']}", {}, status=422)

    def test_C5_delete(self):
        made = self.ask("POST", "/sandbox-config/", {"config": {"type": "modal"}})
        variable = self.ask("POST", f"/sandbox-config/{made['id']}/environment-variable", {"key": "A", "value": "b"})
        self.ask("DELETE", f"/sandbox-config/{made['id']}", status=204)
        self.assertNotIn(made["id"], [c["id"] for c in self.ask("GET", "/sandbox-config/")])
        self.detail("GET", f"/sandbox-config/{made['id']}", status=404)
        self.detail("PATCH", f"/sandbox-config/environment-variable/{variable['id']}", {"value": "x"}, status=404)

    def test_C6_get_by_id_and_type(self):
        made = self.ask("POST", "/sandbox-config/local/default")
        self.assertEqual(self.ask("GET", f"/sandbox-config/{made['id']}"), made)
        self.assertEqual(self.ask("GET", "/sandbox-config/?sandbox_type=local"), [made])
        missing = "sandbox-00000000-0000-4000-8000-000000000000"
        self.assertEqual(self.detail("GET", f"/sandbox-config/{missing}", status=404),
                         f"SandboxConfig not found with id='{missing}'")
        self.detail("GET", "/sandbox-config/sandbox-nonsense", status=422)

    def test_C7_list(self):
        self.ask("POST", "/sandbox-config/local/default")
        self.ask("POST", "/sandbox-config/e2b/default")
        both = self.ask("GET", "/sandbox-config/")
        self.assertGreaterEqual(len(both), 2)
        first = self.ask("GET", "/sandbox-config/?limit=1")
        self.assertEqual(first, both[:1])
        self.assertEqual(self.ask("GET", f"/sandbox-config/?limit=1&after={first[0]['id']}"), both[1:2])
        for kind in ("local", "e2b"):
            self.assertEqual([c["type"] for c in self.ask("GET", f"/sandbox-config/?sandbox_type={kind}")], [kind])
        self.detail("GET", "/sandbox-config/?sandbox_type=..", status=422)
        self.detail("GET", "/sandbox-config/?limit=x", status=422)
        self.assertIn("No SandboxConfig found with id",
                      self.detail("GET", "/sandbox-config/?after=sandbox-00000000-0000-4000-8000-000000000000",
                                  status=404))

    def test_C8_create_env_var(self):
        config = self.ask("POST", "/sandbox-config/local/default")["id"]
        made = self.ask("POST", f"/sandbox-config/{config}/environment-variable",
                        {"key": "TEST_VAR", "value": "value-one", "description": "about"})
        self.assertEqual(list(made)[:11], VARIABLE_KEYS)
        self.assertRegex(made["id"], r"^sandbox-env-[0-9a-f-]{36}$")
        # deliberately different: the value does not come back, but by the call that reveals it
        self.assertEqual([made[k] for k in ("key", "value", "value_enc", "has_value", "description", "organization_id",
                                            "sandbox_config_id")],
                         ["TEST_VAR", "", None, True, "about", DEFAULT_ORG, config])
        self.assertEqual(self.ask("POST", f"/sandbox-config/environment-variable/{made['id']}/reveal")["value"],
                         "value-one")
        events = [json.loads(line) for line in self.d.ask("GET", "/v1/audit?limit=1000").body.splitlines()]
        self.assertTrue([e for e in events if e["action"] == "variable.reveal" and e["object"] == made["id"]])
        again = self.ask("POST", f"/sandbox-config/{config}/environment-variable",
                         {"key": "TEST_VAR", "value": "value-two"})
        self.assertEqual((again["id"], again["description"]), (made["id"], "about"))  # upsert by key
        for body in ({"key": "1A", "value": "x"}, {"key": "A=B", "value": "x"}, {"key": "A", "value": "x\0y"},
                     {"key": "A"}, {"value": "x"}, {"key": "A", "value": 1},
                     {"key": "A", "value": "x", "more": 1}):
            self.assertNotIn("x\0y",
                             self.detail("POST", f"/sandbox-config/{config}/environment-variable", body, status=422))
        self.detail("POST", f"/sandbox-config/{config}/environment-variable", {"key": "A", "value": "x" * 70000},
                    status=413)
        self.detail("POST", "/sandbox-config/sandbox-00000000-0000-4000-8000-000000000000/environment-variable",
                    {"key": "A", "value": "x"}, status=404)

    def test_C9_update_env_var(self):
        config = self.ask("POST", "/sandbox-config/local/default")["id"]
        made = self.ask("POST", f"/sandbox-config/{config}/environment-variable", {"key": "UPDATED", "value": "one"})
        after = self.ask("PATCH", f"/sandbox-config/environment-variable/{made['id']}", {"value": "two"})
        self.assertEqual(after["id"], made["id"])
        self.assertEqual(self.ask("POST", f"/sandbox-config/environment-variable/{made['id']}/reveal"),
                         {"id": made["id"], "key": "UPDATED", "value": "two"})
        self.ask("POST", f"/sandbox-config/{config}/environment-variable", {"key": "TAKEN", "value": "x"})
        self.assertIn("unique constraint", self.detail("PATCH", f"/sandbox-config/environment-variable/{made['id']}",
                                                       {"key": "TAKEN"}, status=409))

    def test_C10_delete_env_var(self):
        config = self.ask("POST", "/sandbox-config/local/default")["id"]
        made = self.ask("POST", f"/sandbox-config/{config}/environment-variable", {"key": "DELETED", "value": "x"})
        self.ask("DELETE", f"/sandbox-config/environment-variable/{made['id']}", status=204)
        self.assertEqual(self.ask("GET", f"/sandbox-config/{config}/environment-variable?key=DELETED"), [])
        self.detail("DELETE", f"/sandbox-config/environment-variable/{made['id']}", status=404)

    def test_C11_list_env_vars_and_pages(self):
        config = self.ask("POST", "/sandbox-config/", {"config": {"type": "docker"}})["id"]
        made = [self.ask("POST", f"/sandbox-config/{config}/environment-variable", {"key": f"V{i}", "value": "x"})["id"]
                for i in range(3)]
        path = f"/sandbox-config/{config}/environment-variable"
        self.assertEqual([v["id"] for v in self.ask("GET", path)], made)
        self.assertEqual([v["id"] for v in self.ask("GET", f"{path}?limit=1&after={made[0]}")], made[1:2])
        # C12: by key
        self.assertEqual([v["id"] for v in self.ask("GET", f"{path}?key=V2")], made[2:])

    def test_rest_round_trip_of_0_6(self):
        config = self.ask("POST", "/sandbox-config/local", {"venv_name": "v1"})
        self.assertEqual(self.ask("PATCH", f"/sandbox-config/{config['id']}",
                                  {"config": {"venv_name": "v2"}})["config"]["venv_name"],
                         "v2")
        var = self.ask("POST", f"/sandbox-config/{config['id']}/environment-variable",
                       {"key": "ROUND", "value": "t", "description": "d"})
        var = self.ask("PATCH", f"/sandbox-config/environment-variable/{var['id']}", {"key": "TRIP", "value": "u"})
        self.assertEqual(var["key"], "TRIP")
        self.ask("DELETE", f"/sandbox-config/environment-variable/{var['id']}", status=204)
        self.ask("DELETE", f"/sandbox-config/{config['id']}", status=204)

    def test_directories_that_were_not_named_are_refused(self):
        self.assertIn("/etc", self.detail("POST", "/sandbox-config/local", {"sandbox_dir": "/etc"}, status=403))


class Interface(LettaTest):
    """1.1: slashes, errors, users; tools and agents without running them; H of test_utils.py."""

    SCHEMA = {"name": "given", "description": "Given.",
              "parameters": {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}}

    def given(self, name="given", **members):
        return self.tool(f"def {name}(a: str):\n    pass\n", json_schema={**self.SCHEMA, "name": name}, **members)

    def test_H1_user_id_absent(self):
        self.ask("GET", "/tools/")

    def test_H2_user_id_of_a_bad_format(self):
        self.assertIn("INVALID_ARGUMENT: Invalid user ID format",
                      self.detail("GET", "/tools/", headers={"user_id": "nonsense"}))

    def test_H3_user_id_chooses_only_where_the_key_may(self):
        org = self.ask("POST", "/orgs", {"name": "other"}, status=201)["id"]
        user = "user-" + org[4:]
        made = self.ask("POST", "/sandbox-config/local/default", headers={"user_id": user})
        self.assertEqual((made["organization_id"], made["created_by_id"]), (org, user))
        plain, chooser = self.d.key(role="admin"), self.d.key(role="user", user_ids=True)
        self.assertEqual(self.ask("POST", "/sandbox-config/local/default", headers={"user_id": user},
                                  key=chooser)["organization_id"],
                         org)
        self.assertEqual(self.ask("POST", "/sandbox-config/local/default", headers={"user_id": user},
                                  key=plain)["organization_id"],
                         DEFAULT_ORG)
        unknown = {"user_id": "user-11111111-1111-4111-8111-111111111111"}
        self.assertEqual(self.ask("POST", "/sandbox-config/local/default", headers=unknown)["organization_id"],
                         DEFAULT_ORG)
        self.assertEqual(self.d.ask("POST", "/v1/keys", {"user_ids": True}, key=plain).status, 403)

    def test_slashes(self):
        for method, path, to in (("GET", "/v1/tools", "/v1/tools/"), ("POST", "/v1/tools?x=1", "/v1/tools/?x=1"),
                                 ("GET", "/v1/agents", "/v1/agents/"),
                                 ("GET", "/v1/sandbox-config", "/v1/sandbox-config/"),
                                 ("POST", "/v1/tools/run/", "/v1/tools/run"), ("GET", "/v1/health", "/v1/health/")):
            answer = self.d.ask(method, path, {} if method == "POST" else None)
            self.assertEqual((answer.status, answer.headers["Location"], answer.body), (307, to, b""))
        self.assertEqual(self.d.ask("GET", "/v1/runs/").status, 404)  # native routes have no second form
        self.assertEqual(self.d.ask("GET", "/v1/tools", tcp=True).status, 401)

    def test_health_and_authentication(self):
        answer = self.d.ask("GET", "/v1/health/", tcp=True)
        self.assertEqual((answer.status, set(answer.json), answer.json["status"]), (200, {"version", "status"}, "ok"))
        answer = self.d.ask("GET", "/v1/tools/", tcp=True)
        self.assertEqual((answer.status, answer.json), (401, {"detail": "Unauthorized"}))
        key = self.d.key()
        self.assertEqual(self.d.ask("GET", "/v1/tools/", tcp=True,
                                    headers={"X-BARE-PASSWORD": f"password {key}"}).status,
                         200)
        # a key is a key on every route, whichever interface knows the field
        asked = self.d.ask("GET", "/v1/runs", tcp=True, headers={"X-BARE-PASSWORD": f"password {key}"})
        self.assertEqual(asked.status, 200, asked)
        self.assertEqual(self.d.ask("GET", "/v1/tools/", tcp=True, key=key).status, 200)
        reader = self.d.key(role="read-only")
        self.assertEqual(self.detail("POST", "/tools/", {"source_code": "x"}, status=403, key=reader),
                         "this key is read-only")

    # ---- tools: test_tool_manager.py --------------------------------------------------------------------------------

    def test_tool_object(self):
        made = self.given("object", tags=["x"], description="D.",
                          pip_requirements=[{"name": "a", "version": "4.1.0-beta"}])
        self.assertEqual([k for k in made if k != "brig"], TOOL_KEYS)
        self.assertRegex(made["id"], r"^tool-[0-9a-f-]{36}$")
        self.assertEqual([made[k] for k in ("tool_type", "source_type", "name", "tags", "return_char_limit",
                                            "enable_parallel_execution", "created_by_id", "description", "project_id")],
                         ["custom", "python", "object", ["x"], 50000, False, USER, "D.", None])
        self.assertEqual(made["pip_requirements"], [{"name": "a", "version": "4.1.0-beta"}])
        self.assertEqual(made["brig"]["version"], 1)
        self.assertEqual(self.ask("GET", f"/tools/{made['id']}"), made)
        self.assertEqual(self.ask("GET", "/tools/object"), made)  # beyond Letta: by name
        self.detail("GET", "/tools/tool-00000000-0000-4000-8000-000000000000", status=404)
        self.assertIn("String should match pattern 'tool-{uuid4}'", self.detail("GET", "/tools/nonsense", status=422))

    def test_tool_hash_and_modal(self):
        source = "def f():\n    return 1\n"
        made = self.tool(source, json_schema={"name": "f", "description": "",
                                              "parameters": {"type": "object", "properties": {}}})
        self.assertEqual(made["metadata_"], {"tool_hash": "f3c5e04f87b1"})
        made = self.ask("PUT", "/tools/", {"source_code": source, "json_schema": made["json_schema"]},
                        headers={"X-Experimental-Modal-Sandbox": "true", "X-Project-Id": "p1"})
        self.assertEqual((made["metadata_"], made["project_id"]),
                         ({"tool_hash": "f3c5e04f87b1", "sandbox": "modal"}, "p1"))

    def test_tool_upsert_by_name(self):
        first = self.given("upsert", tags=["keep"], pip_requirements=[{"name": "a"}])
        again = self.ask("PUT", "/tools/", {"source_code": "def upsert(a: str):\n    return a\n",
                                            "json_schema": {**self.SCHEMA, "name": "upsert"}})
        self.assertEqual((again["id"], again["tags"], again["pip_requirements"], again["brig"]["version"]),
                         (first["id"], ["keep"], None, 2))

    def test_tool_update(self):
        made = self.given("updated", pip_requirements=[{"name": "a"}], enable_parallel_execution=True)
        path = f"/tools/{made['id']}"
        after = self.ask("PATCH", path, {"description": "new", "unknown": "ignored"})
        self.assertEqual((after["description"], after["pip_requirements"], after["enable_parallel_execution"]),
                         ("new", [{"name": "a"}], True))
        self.assertEqual(self.ask("PATCH", path, {"pip_requirements": []})["pip_requirements"], [])
        self.assertIn("does not match", self.detail("PATCH", path, {"source_code": "def another():\n    pass\n"}))
        after = self.ask("PATCH", path, {"source_code": "def updated(a: str):\n    return 2\n"})
        self.assertEqual(after["json_schema"], made["json_schema"])
        self.assertNotEqual(after["metadata_"]["tool_hash"], made["metadata_"]["tool_hash"])
        after = self.ask("PATCH", path, {"json_schema": {**self.SCHEMA, "name": "renamed"},
                                         "source_code": "def renamed(a: str):\n    return 2\n"})
        self.assertEqual((after["id"], after["name"]), (made["id"], "renamed"))
        self.given("taken")
        self.assertIn("INVALID_ARGUMENT", self.detail("PATCH", path, {"json_schema": {**self.SCHEMA, "name": "taken"}}))
        self.assertEqual(self.ask("PATCH", path, {"metadata_": {"sandbox": "modal"}})["metadata_"]["sandbox"], "modal")
        self.detail("PATCH", "/tools/tool-00000000-0000-4000-8000-000000000000", {}, status=404)

    def test_tool_refusals(self):
        for body in ({}, {"source_code": 1}, {"source_code": "x", "name": "n"}, {"source_code": "x", "metadata_": {}},
                     {"source_code": "x", "json_schema": []},
                     {"source_code": "x", "return_char_limit": 0}, {"source_code": "x", "return_char_limit": 1000001},
                     {"source_code": "x", "pip_requirements": [{"name": ""}]},
                     {"source_code": "x", "tags": [1]}):
            self.detail("POST", "/tools/", body, status=422)
        for name in ("run", "count", "search", "generate-schema", "add-base-tools", "x" * 49, "with blank"):
            self.detail("POST", "/tools/", {"source_code": "x", "json_schema": {**self.SCHEMA, "name": name}},
                        status=400)

    def test_T1_typescript_needs_a_schema(self):
        body = {"source_code": "export function f(a: string) { return a; }", "source_type": "typescript"}
        self.assertIn("TypeScript tools require an explicit json_schema",
                      self.detail("POST", "/tools/", body, status=422))
        # T2: with one it is fine
        self.assertEqual(self.ask("POST", "/tools/",
                                  {**body, "json_schema": {**self.SCHEMA, "name": "ts_tool"}})["source_type"],
                         "typescript")

    def test_T3_python_without_schema(self):
        made = self.tool(ADD)
        self.assertEqual(made["json_schema"],
                         {"name": "add", "description": "Adds two numbers.",
                          "parameters": {"type": "object", "properties": {
                              "x": {"type": "integer", "description": "The first."},
                              "y": {"type": "integer", "description": "The second."}}, "required": ["x", "y"]}})
        self.assertEqual(made["description"], "Adds two numbers.")
        self.assertEqual(self.ask("POST", "/tools/generate-schema", {"code": ADD}), made["json_schema"])
        self.detail("POST", "/tools/", {"source_code": "def no_docstring(x: int):\n    return x\n"}, status=400)
        self.detail("POST", "/tools/generate-schema", {"code": "x = 1\n"}, status=400)

    def test_tool_list_count_delete(self):
        names = [f"listed_{i}" for i in range(5)]
        made = [self.given(n) for n in names]
        ids = [t["id"] for t in made]
        mine = "search=listed_"
        self.assertEqual([t["name"] for t in self.ask("GET", f"/tools/?{mine}")], names[::-1])  # newest first
        self.assertEqual([t["name"] for t in self.ask("GET", f"/tools/?{mine}&order=asc&limit=2")], names[:2])
        self.assertEqual([t["name"] for t in self.ask("GET", f"/tools/?{mine}&order=asc&after={ids[1]}&limit=2")],
                         names[2:4])
        self.assertEqual([t["name"] for t in self.ask("GET", f"/tools/?{mine}&order=asc&before={ids[3]}&limit=2")],
                         names[1:3])
        self.assertEqual([t["name"] for t in self.ask("GET", f"/tools/?{mine}&after={ids[3]}&limit=1")], [names[2]])
        self.assertEqual([t["id"] for t in self.ask("GET", "/tools/?name=listed_2")], ids[2:3])
        self.assertEqual({t["name"] for t in self.ask("GET", "/tools/?names=listed_1&names=listed_4")},
                         {"listed_1", "listed_4"})
        self.assertEqual({t["id"] for t in self.ask("GET", f"/tools/?tool_ids={ids[0]}&tool_ids={ids[1]}")},
                         set(ids[:2]))
        self.assertEqual(self.ask("GET",
                                  f"/tools/?{mine}&tool_types=custom&exclude_tool_types=letta_core&limit=1")[0]["name"],
                         names[4])
        self.assertEqual(self.ask("GET", "/tools/?exclude_tool_types=custom"), [])
        self.assertEqual(self.ask("GET", "/tools/?return_only_letta_tools=true"), [])
        self.assertEqual(self.ask("GET", f"/tools/count?{mine}"), 5)
        self.detail("GET", "/tools/?order=sideways", status=422)
        self.detail("GET", "/tools/?tool_types=none")
        self.detail("GET", "/tools/?after=tool-00000000-0000-4000-8000-000000000000", status=404)
        found = self.ask("POST", "/tools/search", {"query": "listed 3", "limit": 3})
        self.assertEqual((len(found), found[0]["tool"]["name"]), (3, names[3]))
        self.assertEqual(self.ask("POST", "/tools/add-base-tools"), [])
        answer = self.d.ask("DELETE", f"/v1/tools/{ids[0]}")
        self.assertEqual((answer.status, answer.body), (200, b"null"))
        self.assertEqual(self.detail("DELETE", f"/tools/{ids[0]}"), f"Tool with id {ids[0]} not found.")
        self.assertEqual(self.ask("GET", f"/tools/count?{mine}"), 4)

    def test_organisations_are_apart(self):
        made = self.given("private")
        org = self.ask("POST", "/orgs", {"name": "apart"}, status=201)["id"]
        key = self.d.key(org=org)
        self.assertEqual(self.ask("GET", "/tools/", key=key), [])
        for method in ("GET", "PATCH"):
            self.detail(method, f"/tools/{made['id']}", {} if method == "PATCH" else None, status=404, key=key)
        self.detail("DELETE", f"/tools/{made['id']}", key=key)
        config = self.ask("POST", "/sandbox-config/local/default")["id"]
        self.detail("POST", f"/sandbox-config/{config}/environment-variable", {"key": "SQUAT", "value": "x"},
                    status=404, key=key)
        self.detail("GET", f"/sandbox-config/?after={config}", status=404, key=key)

    # ---- agents: test_agent_manager.py ------------------------------------------------------------------------------

    def test_agent_life(self):
        tool = self.given("of_agent")
        made = self.agent(tool, tags=["t1"], metadata={"kept": True}, llm_config={"model": "m"}, memory_blocks=BLOCKS)
        self.assertRegex(made["id"], r"^agent-[0-9a-f-]{36}$")
        self.assertEqual((made["name"], made["tags"], made["metadata"], made["llm_config"],
                          [t["id"] for t in made["tools"]]),
                         ("a", ["t1"], {"kept": True}, {"model": "m"}, [tool["id"]]))
        self.assertEqual(made["memory"]["blocks"][0]["value"], "name: Ada")
        path = f"/agents/{made['id']}"
        self.assertEqual(self.ask("GET", path), made)
        self.assertIn(made["id"], [a["id"] for a in self.ask("GET", "/agents/?name=a&tags=t1")])
        self.assertEqual(self.ask("GET", "/agents/?tags=none"), [])
        self.assertGreaterEqual(self.ask("GET", "/agents/count"), 1)
        after = self.ask("PATCH", path, {"name": "b"})
        self.assertEqual((after["name"], after["metadata"], len(after["tools"])), ("b", {"kept": True}, 1))
        other = self.given("attached")
        self.assertEqual(len(self.ask("PATCH", f"{path}/tools/attach/{other['id']}")["tools"]), 2)
        self.assertEqual({t["name"] for t in self.ask("GET", f"{path}/tools")}, {"of_agent", "attached"})
        self.assertEqual([t["name"] for t in self.ask("PATCH", f"{path}/tools/detach/{tool['id']}")["tools"]],
                         ["attached"])
        self.detail("PATCH", f"{path}/tools/attach/tool-00000000-0000-4000-8000-000000000000", status=404)
        rules = self.ask("PATCH", f"{path}/tools/approval/attached", {"requires_approval": True})["tool_rules"]
        self.assertEqual(rules, [{"tool_name": "attached", "type": "requires_approval"}])
        self.assertEqual(self.ask("PATCH", f"{path}/tools/approval/attached?requires_approval=false")["tool_rules"], [])
        self.ask("DELETE", path)
        self.detail("GET", path, status=404)

    def test_agent_secrets(self):
        made = self.agent(secrets={"A": "value-a", "B": "value-b"}, tool_exec_environment_variables={"C": "x"})
        self.assertEqual(made["secrets"], made["tool_exec_environment_variables"])
        self.assertEqual({s["key"]: (s["value"], s["value_enc"], s["has_value"], s["agent_id"])
                          for s in made["secrets"]},
                         {k: ("", None, True, made["id"]) for k in "AB"})
        self.assertRegex(made["secrets"][0]["id"], r"^agent-env-[0-9a-f-]{36}$")
        path = f"/agents/{made['id']}"
        self.assertEqual(self.ask("POST", f"{path}/secrets/A/reveal"), {"key": "A", "value": "value-a"})
        after = self.ask("PATCH", path, {"tool_exec_environment_variables": {"D": "value-d"}})  # replaces the set
        self.assertEqual([s["key"] for s in after["secrets"]], ["D"])
        self.assertEqual(self.ask("POST", f"{path}/secrets/D/reveal")["value"], "value-d")
        self.assertEqual(self.d.ask("POST", f"/v1{path}/secrets/A/reveal").status, 404)
        self.assertEqual(self.ask("PATCH", path, {"secrets": {}})["secrets"], [])
        self.detail("PATCH", path, {"secrets": {"A": 1}}, status=422)
        self.detail("PATCH", path, {"secrets": {"A B": "x"}}, status=422)


class Reveal(LettaTest):
    """The switch that restores Letta's shape."""

    CONFIG = "[tools]\nreveal_secrets = true\n"

    def test_values_as_the_original_has_them(self):
        config = self.ask("POST", "/sandbox-config/local/default")["id"]
        made = self.ask("POST", f"/sandbox-config/{config}/environment-variable", {"key": "K", "value": "plain value"})
        self.assertEqual(made["value"], "plain value")
        self.assertEqual(self.ask("GET", f"/sandbox-config/{config}/environment-variable")[0]["value"], "plain value")
        agent = self.agent(secrets={"S": "plain secret"})
        self.assertEqual([s["value"] for s in self.ask("GET", f"/agents/{agent['id']}")["secrets"]], ["plain secret"])
