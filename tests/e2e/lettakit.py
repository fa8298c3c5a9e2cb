# SPDX-License-Identifier: Apache-2.0
"""The fixture tools of Letta's suite, and a client for its interface on a real daemon."""

import base64
import hashlib
import os
import unittest
import zipfile

from helpers import own_cgroups, wait_until
from service import Daemon

KEY = "k1:000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
USER = "user-00000000-0000-4000-8000-000000000000"

ADD = '''
def add(x: int, y: int) -> int:
    """
    Adds two numbers.

    Args:
        x (int): The first.
        y (int): The second.
    """
    return x + y
'''
GET_ENV = '''
def get_env() -> str:
    """Returns the secret word."""
    import os
    word = os.getenv("secret_word")
    print(word)
    return word
'''
CREATE_LIST = '''
def create_list() -> list:
    """Returns five ones."""
    return [1] * 5
'''
CLEAR_MEMORY = '''
def clear_memory(agent_state):
    """Clears the core memory."""
    for block in agent_state.memory.blocks:
        block.value = ""
'''
WARN = '''
def warn_hello_world() -> str:
    """Warns and greets."""
    import warnings
    warnings.warn("This is a warning.")
    return "Hello World"
'''
ERROR = '''
def error() -> str:
    """Fails."""
    print("Going to error now")
    raise ZeroDivisionError("This is an intentionally weird division!")
'''
COWSAY = '''
def cowsay() -> str:
    """Says the secret word."""
    import os
    import cowsay
    cowsay.cow(os.getenv("secret_word"))
'''
ASYNC_ADD = '''
async def async_add(x: int, y: int) -> int:
    """
    Adds two numbers, later.

    Args:
        x (int): The first.
        y (int): The second.
    """
    import asyncio
    await asyncio.sleep(0)
    return x + y
'''
ASYNC_GET_ENV = GET_ENV.replace("def get_env", "async def async_get_env")
ASYNC_CLEAR = CLEAR_MEMORY.replace("def clear_memory", "async def async_clear_memory")
ASYNC_ERROR = '''
async def async_error() -> str:
    """Fails, later."""
    import asyncio
    print("Going to error now")
    await asyncio.sleep(0)
    raise ValueError("This is an intentional async error!")
'''
ASYNC_LIST = '''
async def async_create_list() -> list:
    """Returns a list, later."""
    import asyncio
    await asyncio.sleep(0)
    return [1, 2, 3, 4, 5]
'''
ASYNC_COMPLEX = '''
async def async_complex_computation(iterations: int = 3) -> dict:
    """
    Computes, later.

    Args:
        iterations (int): How often.
    """
    import asyncio
    import time
    start = time.time()
    results = []
    for i in range(iterations):
        await asyncio.sleep(0.1)
        results.append(i * 2)
    return {"results": results, "iterations": iterations, "average": sum(results) / len(results), \
"duration": time.time() - start}
'''


def wheel(directory, name, version, files):
    """A wheel that pip takes: a name, a version, and {path: text}."""
    info = f"{name}-{version}.dist-info"
    files = {**files, f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
             f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: brig\nRoot-Is-Purelib: true\nTag: py3-none-any\n"}
    record = []
    with zipfile.ZipFile(os.path.join(directory, f"{name}-{version}-py3-none-any.whl"), "w") as z:
        for path, text in files.items():
            z.writestr(path, text)
            digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
            record.append(f"{path},sha256={digest},{len(text.encode())}")
        z.writestr(f"{info}/RECORD", "\n".join([*record, f"{info}/RECORD,,", ""]))


class LettaTest(unittest.TestCase):
    """One daemon per class, with a key for secrets."""

    CONFIG = ""
    ENV = {}
    LIMIT_SECONDS = 180

    @classmethod
    def setUpClass(cls):
        cls.d = Daemon(cls.CONFIG, env={"BRIG_SECRETS_KEY": KEY, **cls.ENV})

    @classmethod
    def tearDownClass(cls):
        tag = cls.d.cgroup_tag()
        cls.d.close()
        wait_until("no cgroup is left", lambda: not [c for c in own_cgroups() if c.endswith(tag) or f"{tag}/" in c])

    def ask(self, method, path, body=None, status=200, **more):
        answer = self.d.ask(method, f"/v1{path}", body, **more)
        self.assertEqual(answer.status, status, answer)
        return answer.json if answer.body else None

    def detail(self, method, path, body=None, status=400, **more):
        """The text of a refusal, whose shape is looked at too."""
        answer = self.ask(method, path, body, status=status, **more)
        self.assertEqual(set(answer), {"detail", "trace_id"} if status == 422 else {"detail"})
        return answer["detail"]

    def tool(self, source, **members):
        return self.ask("POST", "/tools/", {"source_code": source, **members})

    def agent(self, *tools, **members):
        made = self.ask("POST", "/agents/", {"name": "a", "tool_ids": [t["id"] for t in tools], **members})
        self.addCleanup(self.d.ask, "DELETE", f"/v1/agents/{made['id']}")
        return made

    def run_tool(self, tool, args=None, **members):
        """A native run."""
        return self.ask("POST", f"/tools/{tool['name']}/run", {"args": args or {}, **members})

    def run_agent(self, agent, tool, args=None):
        return self.ask("POST", f"/agents/{agent['id']}/tools/{tool['name']}/run", {"args": args or {}})

    def source(self, source, args=None, **members):
        return self.ask("POST", "/tools/run", {"source_code": source, "args": args or {}, **members})

    def local(self, **config):
        return self.ask("POST", "/sandbox-config/local", config)
