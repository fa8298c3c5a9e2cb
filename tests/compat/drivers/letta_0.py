# SPDX-License-Identifier: Apache-2.0
"""What the published letta-client does against a daemon, of its generation 0.1 (made by Fern). That generation takes
whatever comes; what comes is held against its models here.

letta_0.py URL KEY
"""

import asyncio
import sys

import pydantic
from letta_client import (AgentState, AsyncLetta, ContinueToolRule, CreateBlock, Letta, PipRequirement,
                          StreamableHttpServerConfig, Tool, ToolReturnMessage)
from letta_client.client import BaseTool
from letta_client.core.api_error import ApiError
from watch import Watched, refused, same

URL, KEY = sys.argv[1:]
SECRETS = ('def secrets() -> list:\n    """Tells what it was given."""\n    import os\n'
           '    return [os.environ.get(n, "")[::-1] for n in ("FIRST_WORD", "SECOND_WORD")]\n')
NOWHERE = "tool-00000000-0000-4000-8000-000000000000"

client = Letta(base_url=URL, token=KEY, project="p")
tools, agents, attached = Watched(client.tools), Watched(client.agents), Watched(client.agents.tools)


def valid(kind, value):
    """It has all that the model wants, of the types it wants."""
    assert isinstance(value, kind), value
    kind.model_validate(value.model_dump(by_alias=True, exclude_unset=True), strict=False)
    return value


def roll(sides: int, times: int = 1) -> list:
    """
    Rolls dice that always show their last side.

    Args:
        sides (int): How many sides.
        times (int): How often.
    """
    print("rolled")
    return [sides] * times


class Item(pydantic.BaseModel):
    sku: str
    price: float


class Stock(pydantic.BaseModel):
    item: Item
    change: int = pydantic.Field(description="By how many")


def stock(item, change: int) -> str:
    """Changes a stock."""
    return f"{item['sku'] if isinstance(item, dict) else item.sku}: {change}"


class Greeting(BaseTool):
    name: str = "greeting"
    description: str = "Greets."
    args_schema: type = None

    def run(self, whom: str) -> str:
        """
        Greets.

        Args:
            whom (str): Who is greeted.
        """
        return "Hello " + whom


def registry():
    made = valid(Tool, tools.create_from_function(func=roll, tags=["dice"], return_char_limit=900))
    same((made.name, made.description, made.source_type, made.tool_type, made.tags, made.return_char_limit),
         ("roll", "Rolls dice that always show their last side.", "python", "custom",
          ["dice"], 900))
    same(made.json_schema["parameters"]["required"], ["sides"])
    same(tools.retrieve(made.id), made)
    after = valid(Tool, tools.modify(made.id, description="Dice.", metadata={"kept": True},
                                     pip_requirements=[PipRequirement(name="idna", version="3.7")]))
    same((after.description, after.metadata["kept"], [(p.name, p.version) for p in after.pip_requirements]),
         ("Dice.", True, [("idna", "3.7")]))
    after = tools.upsert_from_function(func=roll, description="More dice.")
    same((after.id, after.description, after.tags, after.pip_requirements), (made.id, "More dice.", ["dice"], None))
    other = valid(Tool, tools.create(source_code=SECRETS, default_requires_approval=False))
    same(tools.upsert(source_code=SECRETS, tags=["told"]).id, other.id)
    typed = valid(Tool, tools.upsert_from_function(func=stock, args_schema=Stock))
    same((typed.name, typed.json_schema["parameters"]["required"], typed.args_json_schema["title"]),
         ("stock", ["item", "change"], "Stock"))
    greeting = valid(Tool, tools.add(tool=Greeting()))
    same((greeting.name, greeting.description), ("greeting", "Greets."))
    same(tools.count(), 4)
    same(tools.count(search="gree"), 1)
    same([t.name for t in tools.list(order="asc", limit=3)], ["roll", "secrets", "stock"])
    same([t.name for t in tools.list(after=other.id, order="asc")], ["stock", "greeting"])
    same([t.name for t in tools.list(names=["roll", "stock"], order="desc")], ["stock", "roll"])
    same([t.name for t in tools.list(name="roll")], ["roll"])
    same(tools.upsert_base_tools(), [])  # none of Letta's own tools is here
    same(refused(ApiError, 404, tools.retrieve, NOWHERE).body["detail"][:14], "Tool not found")
    return made, other, typed, greeting


def from_source():
    ran = valid(ToolReturnMessage,
                tools.run_tool_from_source(source_code=SECRETS, args={},
                                           env_vars={"FIRST_WORD": "stressed", "SECOND_WORD": "drawer"}))
    same((ran.status, ran.tool_return, ran.stderr), ("success", "['desserts', 'reward']", []))
    source = ('def twice(n: int) -> dict:\n    """\n    Doubles.\n\n    Args:\n        n (int): What.\n    """\n'
              '    print("doubling")\n    return {"n": n * 2}\n')
    ran = valid(ToolReturnMessage,
                tools.run_tool_from_source(source_code=source, args={"n": 4}, name="twice", json_schema={
                    "name": "twice", "description": "Doubles.",
                    "parameters": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}}))
    same((ran.status, ran.tool_return, ran.stdout, ran.name), ("success", "{'n': 8}", ["doubling\n"], "twice"))
    ran = valid(ToolReturnMessage,
                tools.run_tool_from_source(source_code='def f():\n    """F."""\n    raise KeyError("gone")\n', args={},
                                           name="f"))
    same((ran.status, ran.tool_return), ("error", "Error executing function f: KeyError: 'gone'"))
    refused(ApiError, 400, tools.run_tool_from_source, source_code="x = 1", args={})


def not_served():
    """Servers of the Model Context Protocol and Composio are not brig's: refused, each of them."""
    server = StreamableHttpServerConfig(server_name="s", server_url="http://127.0.0.1:1/")
    for call, args in ((tools.list_mcp_servers, ()), (tools.list_mcp_tools_by_server, ("s",)),
                       (tools.add_mcp_tool, ("s", "t")), (tools.delete_mcp_server, ("s",)),
                       (tools.list_composio_apps, ()), (tools.list_composio_actions_by_app, ("a",)),
                       (tools.add_composio_tool, ("a",))):
        refused(ApiError, 404, call, *args)
    refused(ApiError, 404, tools.update_mcp_server, "s", request={"server_url": "http://127.0.0.1:1/"})
    for call in (tools.add_mcp_server, tools.test_mcp_server,
                 lambda request: list(tools.connect_mcp_server(request=request))):
        refused(ApiError, 404, call, request=server)


def agent(dice, teller, typed):
    made = valid(AgentState,
                 agents.create(name="gambler", tool_ids=[dice.id], model="openai/gpt-4o-mini",
                               embedding="openai/text-embedding-3-small", include_base_tools=False, tags=["t1"],
                               memory_blocks=[CreateBlock(label="human", value="Ada", limit=200)],
                               metadata={"kept": [1, 2]}, timezone="Europe/Oslo",
                               tool_rules=[ContinueToolRule(tool_name="roll")],
                               tool_exec_environment_variables={"FIRST_WORD": "stressed"}))
    same((made.name, made.tags, made.metadata, made.timezone, [t.id for t in made.tools]),
         ("gambler", ["t1"], {"kept": [1, 2]}, "Europe/Oslo", [dice.id]))
    same([(b.label, b.value, b.limit) for b in made.memory.blocks], [("human", "Ada", 200)])
    same([(r.type, r.tool_name) for r in made.tool_rules], [("continue_loop", "roll")])
    same((made.llm_config.model, made.embedding_config.embedding_model),
         ("openai/gpt-4o-mini", "openai/text-embedding-3-small"))
    # A secret is there under both names, and its value is not shown.
    same([(s.key, s.value, s.agent_id) for s in made.secrets], [("FIRST_WORD", "", made.id)])
    same(made.tool_exec_environment_variables, made.secrets)
    same(agents.retrieve(made.id, include_relationships=["tools"]), made)
    # replaces the set
    after = valid(AgentState, agents.modify(made.id, name="teller", secrets={"SECOND_WORD": "drawer"}))
    same((after.name, [s.key for s in after.secrets], after.metadata), ("teller", ["SECOND_WORD"], {"kept": [1, 2]}))
    same([t.name for t in valid(AgentState, attached.attach(agent_id=made.id, tool_id=teller.id)).tools],
         ["roll", "secrets"])
    attached.attach(agent_id=made.id, tool_id=typed.id)
    same({t.name for t in attached.list(made.id)}, {"roll", "secrets", "stock"})
    same({t.name for t in attached.detach(agent_id=made.id, tool_id=dice.id).tools}, {"secrets", "stock"})
    rules = valid(AgentState, attached.modify_approval(made.id, "secrets", requires_approval=True)).tool_rules
    same(("requires_approval", "secrets") in [(r.type, r.tool_name) for r in rules], True)
    attached.modify_approval(made.id, "secrets", requires_approval=False)
    return made


def run_attached(made):
    """This generation has no method for it; the newest one has. What its secrets do to a run is asked through its own
    transport."""
    http = client._client_wrapper.httpx_client  # pylint: disable=protected-access

    def run(name, args):
        return http.request(f"v1/agents/{made.id}/tools/{name}/run", method="POST", json={"args": args}).json()

    same(run("secrets", {})["func_return"], ["", "reward"])
    agents.modify(made.id, tool_exec_environment_variables={"FIRST_WORD": "stressed", "SECOND_WORD": "drawer"})
    same(run("secrets", {})["func_return"], ["desserts", "reward"])
    same(agents.modify(made.id, secrets={}).secrets, [])
    same(run("secrets", {})["func_return"], ["", ""])
    same(run("stock", {"item": {"sku": "a1", "price": 2.5}, "change": -2})["func_return"], "a1: -2")


def listing(first):
    others = [agents.create(name=f"listed-{n}", tags=["listed"]) for n in range(3)]
    same([a.id for a in agents.list(tags=["listed"], ascending=True)], [a.id for a in others])
    same([valid(AgentState, a).id for a in agents.list(query_text="tell")], [first.id])
    same([a.id for a in agents.list(tags=["listed"], order="asc", after=others[0].id, limit=1)], [others[1].id])
    same(agents.count(), 4)
    # There is no model and no conversation here, and no file of a whole agent.
    refused(ApiError, 404, agents.export_file, first.id)
    refused(ApiError, 405, agents.search)
    refused(ApiError, 405, agents.import_file, file=b"{}")
    for a in [first, *others]:
        agents.delete(a.id)
    refused(ApiError, 404, agents.retrieve, first.id)
    same((agents.count(), agents.list()), (0, []))


async def asynchronous():
    c = AsyncLetta(base_url=URL, token=KEY)
    made = await asyncio.gather(*(c.tools.upsert(source_code=f'def side_{n}() -> int:\n    """Number {n}."""\n'
                                                 f'    return {n}\n') for n in range(4)))
    ran = await asyncio.gather(*(c.tools.run_tool_from_source(source_code=t.source_code, args={}) for t in made))
    same([r.tool_return for r in ran], ["0", "1", "2", "3"])
    await asyncio.gather(*(c.tools.delete(t.id) for t in made))


refused(ApiError, 401, Letta(base_url=URL, token="wrong").tools.list)
four = registry()
from_source()
not_served()
gambler = agent(*four[:3])
run_attached(gambler)
listing(gambler)
asyncio.run(asynchronous())
for left in tools.list():
    tools.delete(left.id)
same((tools.count(), tools.unseen(), agents.unseen(), attached.unseen()), (0, set(), set(), set()))
