# SPDX-License-Identifier: Apache-2.0
"""What the published letta-client does against a daemon, of its generation 1 (made by Stainless). Answers are validated
strictly by the client's own models.

letta_1.py URL KEY
"""

import asyncio
import sys

from letta_client import APIStatusError, AsyncLetta, AuthenticationError, Letta, NotFoundError
from watch import Watched, refused, same

URL, KEY = sys.argv[1:]
SOURCE = '''
def roll(sides: int, times: int = 1) -> list:
    """
    Rolls dice that always show their last side.

    Args:
        sides (int): How many sides.
        times (int): How often.
    """
    print("rolled")
    return [sides] * times
'''
SECRETS = ('def secrets() -> list:\n    """Tells what it was given."""\n    import os\n'
           '    return [os.environ.get(n, "")[::-1] for n in ("FIRST_WORD", "SECOND_WORD")]\n')
NOWHERE = "tool-00000000-0000-4000-8000-000000000000"

client = Letta(base_url=URL, api_key=KEY, project_id="p-1", _strict_response_validation=True)
tools, agents, attached = Watched(client.tools), Watched(client.agents), Watched(client.agents.tools)


def registry():
    made = tools.create(source_code=SOURCE, tags=["dice"], return_char_limit=900, pip_requirements=[],
                        default_requires_approval=False, enable_parallel_execution=True)
    same((made.name, made.description, made.source_type, made.tool_type, made.tags, made.return_char_limit),
         ("roll", "Rolls dice that always show their last side.", "python", "custom",
          ["dice"], 900))
    same((made.enable_parallel_execution, made.project_id, made.json_schema["parameters"]["required"]),
         (True, "p-1", ["sides"]))
    assert made.id.startswith("tool-") and made.source_code == SOURCE and made.metadata["tool_hash"]
    same(tools.retrieve(made.id), made)
    after = tools.update(made.id, description="Dice.", metadata={"kept": True}, tags=["dice", "game"])
    same((after.description, after.metadata["kept"], after.tags, after.enable_parallel_execution),
         ("Dice.", True, ["dice", "game"], True))
    again = tools.upsert(source_code=SOURCE.replace("always", "never"))
    same((again.id, again.description, again.tags),
         (made.id, "Rolls dice that never show their last side.", ["dice", "game"]))
    schema = {"name": "shout", "description": "Shouts.",
              "parameters": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}}
    script = tools.create(source_code="export function shout(text: string): string { return text.toUpperCase(); }",
                          source_type="typescript", json_schema=schema)
    same((script.name, script.source_type, script.json_schema), ("shout", "typescript", schema))
    # a Node that strips no types runs it too
    script = tools.upsert(source_code="export function shout(text) { return text.toUpperCase(); }",
                          source_type="javascript", json_schema=schema)
    same(client.tools.with_raw_response.retrieve(script.id).parse(), script)
    found = tools.search(query="shout", search_mode="fts", limit=1)
    same([hit.tool.id for hit in found], [script.id])
    assert found[0].combined_score > 0
    same(refused(NotFoundError, 404, tools.retrieve, NOWHERE).body["detail"][:14], "Tool not found")
    same(refused(APIStatusError, 422, tools.create, source_code="export function f() {}",
                 source_type="typescript").status_code,
         422)
    return made, script


def pages():
    """The client asks for the pages one after the other by itself."""
    for n in range(5):
        tools.create(source_code=f'def paged_{n}() -> int:\n    """Number {n}."""\n    return {n}\n')
    page = tools.list(limit=2, order="asc", search="paged_")
    same([t.name for t in page.items], ["paged_0", "paged_1"])
    same([t.name for t in page], [f"paged_{n}" for n in range(5)])
    same([t.name for t in tools.list(names=["paged_1", "paged_3"], order="desc")], ["paged_3", "paged_1"])
    same([t.name for t in tools.list(name="paged_4", tool_types=["custom"], exclude_tool_types=["letta_core"])],
         ["paged_4"])
    same(list(tools.list(return_only_letta_tools=True)), [])
    for tool in list(tools.list(search="paged_")):
        tools.delete(tool.id)
    same(list(tools.list(search="paged_")), [])


def from_source():
    """This generation has no method for it; its way for such routes is post()."""
    def run(**body):
        return client.post("/v1/tools/run", cast_to=dict, body=body)

    ran = run(source_code=SOURCE, args={"sides": 6, "times": 2}, name="roll")
    same((ran["status"], ran["tool_return"], ran["stdout"], ran["name"], ran["message_type"]),
         ("success", "[6, 6]", ["rolled\n"], "roll", "tool_return_message"))
    ran = run(source_code=SECRETS, args={}, env_vars={"FIRST_WORD": "stressed", "SECOND_WORD": "drawer"})
    same((ran["status"], ran["tool_return"]), ("success", "['desserts', 'reward']"))
    ran = run(source_code='def f():\n    """F."""\n    return 1 / 0\n', args={}, name="f")
    same((ran["status"], ran["tool_return"]),
         ("error", "Error executing function f: ZeroDivisionError: division by zero"))


def agent(roll, shout):
    teller = tools.create(source_code=SECRETS)
    made = agents.create(name="gambler", tool_ids=[roll.id], model="openai/gpt-4o-mini",
                         embedding="openai/text-embedding-3-small", include_base_tools=False, tags=["t1"],
                         memory_blocks=[{"label": "human", "value": "Ada", "limit": 200}], metadata={"kept": [1, 2]},
                         secrets={"FIRST_WORD": "stressed"}, timezone="Europe/Oslo")
    same((made.name, made.tags, made.metadata, made.timezone, made.project_id, [t.id for t in made.tools]),
         ("gambler", ["t1"], {"kept": [1, 2]}, "Europe/Oslo", "p-1", [roll.id]))
    same([(b.label, b.value, b.limit) for b in made.blocks], [("human", "Ada", 200)])
    same((made.llm_config.model, made.model), ("openai/gpt-4o-mini", "openai/gpt-4o-mini"))
    # A secret is there, and its value is not shown.
    same([(s.key, s.value, s.agent_id) for s in made.secrets], [("FIRST_WORD", "", made.id)])
    same(agents.retrieve(made.id, include=["agent.secrets", "agent.tools"]), made)
    attached.attach(teller.id, agent_id=made.id)
    same({t.name for t in attached.list(made.id)}, {"roll", "secrets"})
    ran = attached.run("secrets", agent_id=made.id)
    same((ran.status, ran.func_return), ("success", ["desserts", ""]))
    after = agents.update(made.id, secrets={"SECOND_WORD": "drawer"}, name="teller")  # replaces the set
    same((after.name, [s.key for s in after.secrets], after.metadata), ("teller", ["SECOND_WORD"], {"kept": [1, 2]}))
    same(attached.run("secrets", agent_id=made.id).func_return, ["", "reward"])
    same(agents.update(made.id,
                       tool_exec_environment_variables={"FIRST_WORD": "stressed", "SECOND_WORD": "drawer"}).name,
         "teller")
    same(attached.run("secrets", agent_id=made.id).func_return, ["desserts", "reward"])
    same(agents.update(made.id, secrets={}).secrets, [])
    attached.attach(shout.id, agent_id=made.id)
    ran = attached.run("shout", agent_id=made.id, args={"text": "six"})
    same((ran.status, ran.func_return, ran.stderr), ("success", "SIX", []))
    same(attached.run("roll", agent_id=made.id, args={"sides": 6}).stdout, ["rolled\n"])
    same(attached.run("roll", agent_id=made.id, args={"sides": 6, "times": 0.5}).status, "error")
    rules = attached.update_approval("roll", agent_id=made.id, body_requires_approval=True).tool_rules
    same([(r.type, r.tool_name) for r in rules], [("requires_approval", "roll")])
    same(attached.update_approval("roll", agent_id=made.id, body_requires_approval=False).tool_rules, [])
    attached.detach(shout.id, agent_id=made.id)
    same(refused(NotFoundError, 404, attached.run, "shout", agent_id=made.id).body["detail"],
         f"Tool 'shout' not found or not attached to agent '{made.id}'")
    return made


def listing(first):
    others = [agents.create(name=f"listed-{n}", model="openai/gpt-4o-mini", tags=["listed"]) for n in range(3)]
    same([a.id for a in agents.list(tags=["listed"], limit=2, order="asc")], [a.id for a in others])
    same([a.id for a in agents.list(name="teller")], [first.id])
    # There is no model and no conversation here, and no file of a whole agent.
    refused(NotFoundError, 404, agents.export_file, first.id)
    refused(NotFoundError, 404, agents.recompile, first.id)
    refused(APIStatusError, 405, agents.import_file, file=b"{}")
    for a in [first, *others]:
        agents.delete(a.id)
    refused(NotFoundError, 404, agents.retrieve, first.id)
    same(list(agents.list()), [])


async def asynchronous():
    async with AsyncLetta(base_url=URL, api_key=KEY, _strict_response_validation=True) as c:
        made = await asyncio.gather(*(c.tools.upsert(source_code=f'def side_{n}() -> int:\n    """Number {n}."""\n'
                                                     f'    return {n}\n') for n in range(4)))
        a = await c.agents.create(name="aside", model="openai/gpt-4o-mini", tool_ids=[t.id for t in made])
        ran = await asyncio.gather(*(c.agents.tools.run(t.name, agent_id=a.id) for t in made))
        same([r.func_return for r in ran], [0, 1, 2, 3])
        same({t.name async for t in c.agents.tools.list(a.id)}, {t.name for t in made})
        await c.agents.delete(a.id)
        await asyncio.gather(*(c.tools.delete(t.id) for t in made))


refused(AuthenticationError, 401, Letta(base_url=URL, api_key="wrong", max_retries=0).tools.retrieve, NOWHERE)
roll, shout = registry()
pages()
from_source()
listing(agent(roll, shout))
asyncio.run(asynchronous())
for left in list(tools.list()):
    tools.delete(left.id)
same((tools.unseen(), agents.unseen(), attached.unseen()), (set(), set(), set()))
