"""Every tool, driven by the clients of the official SDK: both major versions, both eras of the protocol."""

from __future__ import annotations

import json
import shlex
from typing import Any

import jsonschema
import pytest
import yaml
from manuals import blocks, commands
from mcprig.client import Client, sdk
from mcprig.memory import Memory
from waiting import wait_for

# (version of the server's SDK, version of the client's SDK, era)
NATIVE = [(1, 1, "handshake"), (2, 2, "stateless")]
MIXED = [(1, 2, "handshake"), (1, 2, "either"), (2, 1, "handshake"), (2, 2, "handshake"), (2, 2, "either")]
PAIRS = [
    pytest.param(pair, marks=pytest.mark.slow if pair in MIXED else [], id="-".join(map(str, pair)))
    for pair in (*NATIVE, *MIXED)
]


def connect(memory: Memory, transport: str, pair: tuple[int, int, str]) -> Client:
    server, client, era = pair
    if transport == "stdio":
        return memory.stdio("garden", server=sdk(server), client=sdk(client), era=era)
    return memory.http(memory.served(sdk(server)), memory.token("garden"), sdk(client), era)


@pytest.mark.parametrize("transport", ["stdio", "http"])
@pytest.mark.parametrize("pair", PAIRS)
def test_every_tool_answers_in_the_form_that_it_promises(
    memory: Memory, transport: str, pair: tuple[int, int, str]
) -> None:
    session = connect(memory, transport, pair)
    tools = {tool["name"]: tool for tool in session.request("list_tools")["tools"]}
    used: dict[str, dict[str, Any]] = {}

    def use(tool: str, **arguments: Any) -> dict[str, Any]:
        used[tool] = session.call(tool, **arguments)
        jsonschema.validate(used[tool], tools[tool]["outputSchema"])
        return used[tool]

    kept = use("remember", content="the kelp is green", metadata={"ticket": 7}, tags=["sea"], expires="9d", sync=True)
    changed = use("update", id=kept["id"], content="the kelp is brown")
    assert use("list_memories")["counts"] == {"memory": 1, "user": 0}
    (hit,) = use("recall_memory", query="which colour has the kelp?")["hits"]
    assert (hit["content"], hit["id"], hit["tags"]) == ("the kelp is brown", changed["id"], ["sea"])
    assert use("recall_conversation", query="kelp")["hits"] == []
    assert use("forget", id=changed["id"])["content"] == "the kelp is brown"
    assert session.call("recall_memory", query="kelp")["count"] == 0
    first = use("memory_write", content="V[srv.prod]: api.example.com:3005", scope="move")
    assert use("memory_write", content="V[srv.prod]: api.example.com:3006")["superseded"][0]["id"] == first["id"]
    assert use("memory_search", query="3006", limit="5")["facts"][0]["scope"] == "move"
    assert "V[srv.prod]: api.example.com:3006" in use("memory_status")["block"]
    assert use("memory_reflect", topic="srv.prod")["values"]
    assert use("memory_tick", turn="1", message="it works now")["closed"] == ["move"]
    assert use("memory_purge", older_than_days="0")["purged"] == 1
    assert use("memory_export", status="cold")["facts"] == "V[srv.prod]: api.example.com:3006"
    assert "are for theme default only" in session.refused("memory_optimize")
    assert set(used) | {"memory_optimize"} == set(tools)
    for tool in tools.values():
        assert {"readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"} <= tool["annotations"].keys()
    assert session.close() == 0
    ((ticket,),) = memory.history("metadata ->> 'ticket'", text="the kelp is green")
    assert ticket == "7"


@pytest.mark.parametrize("pair", PAIRS[1:])
def test_an_entry_is_read_by_its_uri_in_its_own_theme_only(memory: Memory, pair: tuple[int, int, str]) -> None:
    session = connect(memory, "http", pair)
    number = session.call("remember", content="the kelp is green", tags=["sea"], sync=True)["id"]
    uri = f"memory://entry/{number}"
    templates = session.request("list_resource_templates")["resourceTemplates"]
    assert [template["uriTemplate"] for template in templates] == ["memory://entry/{id}"]
    ((shown,),) = (session.request("read_resource", uri)["contents"],)
    entry = json.loads(shown["text"])
    assert (entry["content"], entry["theme"], entry["tags"]) == ("the kelp is green", "garden", ["sea"])
    assert shown["mimeType"] == "application/json"
    later = session.call("update", id=number, content="the kelp is brown")["id"]
    assert json.loads(session.request("read_resource", uri)["contents"][0]["text"])["id"] == later
    wrong = [f"memory://entry/{later + 1}", "memory://entry/0", f"memory://entry/{'9' * 19}", "memory://facts/cold",
             "file:///etc/passwd", f"memory://entry/{later}?theme=garden"]  # fmt: skip
    assert all("raised" in session.request("read_resource", name) for name in wrong)
    other = memory.stdio("cellar")
    assert "has no entry" in other.request("read_resource", uri)["raised"]


@pytest.mark.parametrize("pair", PAIRS[1:])
def test_hot_facts_are_a_resource_and_the_prompt_introduces_their_notation(
    memory: Memory, pair: tuple[int, int, str]
) -> None:
    session = connect(memory, "stdio", pair)
    (resource,) = session.request("list_resources")["resources"]
    assert resource["uri"] == "memory://facts/hot"
    for content in ("D[api.port]: 3005", "D[api.port]: 3006"):
        session.call("memory_write", content=content)
    ((hot,),) = (session.request("read_resource", "memory://facts/hot")["contents"],)
    assert "D[api.port]: 3006" in hot["text"]
    assert "3005" not in hot["text"]
    assert hot["text"] == session.call("memory_status")["block"]
    (prompt,) = session.request("list_prompts")["prompts"]
    (message,) = session.request("get_prompt", prompt["name"])["messages"]
    assert "C[target]: constraint" in message["content"]["text"]
    assert hot["text"] in message["content"]["text"]
    assert "use facts" in session.request("get_prompt", "other")["raised"]


def test_facts_of_eight_clients_at_once_leave_one_that_holds_for_each_target(memory: Memory) -> None:
    url, token = memory.served(), memory.token("garden")
    sessions = [memory.stdio("garden") for _ in range(4)] + [memory.http(url, token) for _ in range(4)]
    for round_ in range(8):
        for number, session in enumerate(sessions):
            session.begin("call_tool", "memory_write", {"content": f"V[port.{round_}]: {number}", "scope": "move"})
    for session in sessions:
        for _ in range(8):
            assert session.result()["structuredContent"]["status"] in ("stored", "accepted, pending")
    wait_for(lambda: memory.count("select count(*) from facts") == 64)
    current = "select count(*), count(distinct target) from facts where status in ('active', 'cold')"
    assert memory.select(current) == [(8, 8)]
    shown = sessions[0].call("memory_export")["facts"].splitlines()
    assert sorted(fact.split("]")[0] for fact in shown) == [f"V[port.{round_}" for round_ in range(8)]


def test_a_wrong_call_is_answered_by_an_error_that_names_the_argument(memory: Memory) -> None:
    session = memory.stdio("garden")
    wrong = [
        ("recall_memory", {}, "query is missing or empty"),
        ("recall_memory", {"query": "x", "limit": 10**30}, "limit is"),
        ("recall_memory", {"query": ["x"]}, "query is a list"),
        ("recall_memory", {"query": "x", "theme": "other"}, "unknown argument 'theme'"),
        ("remember", {"content": "x", "theme": "other"}, "unknown argument 'theme'"),
        ("remember", {"content": "\0 "}, "content is missing or empty"),
        ("remember", {"content": "x" * 1_200_000}, "content has 1200000 characters; it may have 200000"),
        ("remember", {"content": "x", "metadata": {"origin": "me"}}, "metadata may not hold origin"),
        ("forget", {"id": "seven"}, "id is 'seven'"),
        ("forget", {"id": 7}, "id is 7; the memory of theme garden has no such entry"),
        ("recall_nothing", {}, "there is no tool 'recall_nothing'; use recall_memory"),
    ]
    for tool, arguments, part in wrong:
        assert part in session.refused(tool, **arguments)
    assert session.call("remember", content="x" * 190_000, sync=True)["status"] == "stored"


def test_an_agent_of_the_home_and_a_client_on_one_theme_see_each_others_entries(memory: Memory) -> None:
    session = memory.stdio("garden")
    saved = memory.home / "memories" / "MEMORY.md"
    saved.parent.mkdir()
    with memory.agent() as agent:
        saved.write_text("the gate is locked at nine")
        agent("initialize", "s1", platform="api_server", gateway_session_key="garden", agent_context="primary")
        agent("on_memory_write", "add", "memory", "the gate is locked at nine")
        # The hook returns before the entry is stored.
        wait_for(lambda: bool(memory.rows()))
        (hit,) = session.call("recall_memory", query="when is the gate locked?")["hits"]
        assert hit["content"] == "the gate is locked at nine"
        session.call("remember", content="the pond freezes in January", sync=True)
        answer = agent("handle_tool_call", "recall_memory", {"query": "when does the pond freeze?"})
        assert "the pond freezes in January" in answer


def test_an_agent_and_a_client_on_one_theme_see_each_others_facts_at_once(memory: Memory) -> None:
    config = {**memory.settings, "tools": "facts", "write_wait_s": 20, "prefetch_budget_s": 7}
    (memory.home / "pgvector" / "config.json").write_text(json.dumps(config))
    session = memory.stdio("garden")
    with memory.agent() as agent:
        agent("initialize", "s1", platform="api_server", gateway_session_key="garden", agent_context="primary")
        told = json.loads(agent("handle_tool_call", "memory_write", {"content": "V[gate]: locked at nine"}))
        assert told["status"] == "stored"
        assert "V[gate]: locked at nine" in session.call("memory_status")["block"]
        assert session.call("memory_write", content="V[gate]: locked at ten")["superseded"][0]["id"] == told["id"]
        agent("on_turn_start", 1, "when is the gate locked?")
        assert "V[gate]: locked at ten" in agent("prefetch", "when is the gate locked?")
        found = json.loads(agent("handle_tool_call", "memory_search", {"query": "gate"}))["facts"]
        assert [fact["fact"] for fact in found] == ["V[gate]: locked at ten"]


def test_eight_clients_that_write_at_once_lose_and_double_nothing(memory: Memory) -> None:
    url, token = memory.served(), memory.token("garden")
    sessions = [memory.stdio("garden") for _ in range(4)] + [memory.http(url, token) for _ in range(4)]
    for count in range(10):
        for number, session in enumerate(sessions):
            session.begin("call_tool", "remember", {"content": f"note {count} of {number}"})
            session.begin("call_tool", "remember", {"content": f"note {count} of all"})
    for session in sessions:
        for _ in range(20):
            assert session.result()["structuredContent"]["status"] == "accepted"
        session.call("remember", content="the last note", sync=True)
    mine = {f"note {count} of {number}" for count in range(10) for number in range(8)}
    shared = {f"note {count} of all" for count in range(10)} | {"the last note"}
    assert sorted(content for (content,) in memory.rows()) == sorted(mine | shared)


def configured(language: str) -> list[dict[str, Any]]:
    """The servers in the configurations of clients that the manual shows."""
    found: list[dict[str, Any]] = []
    for block in blocks("docs/mcp.md", language):
        shown = yaml.safe_load(block)
        servers = next(shown[key] for key in ("mcpServers", "servers", "mcp_servers") if key in shown)
        found += servers if isinstance(servers, list) else servers.values()
    return found


def test_a_client_in_the_theme_of_the_home_makes_room_in_its_memory_file(memory: Memory) -> None:
    saved = memory.home / "memories" / "MEMORY.md"
    saved.parent.mkdir()
    entries = [
        f"machine {number} stands in row {number} of the hall and has " + "many disks " * 20 for number in range(8)
    ]
    saved.write_text("\n§\n".join(entry.strip() for entry in entries))
    before = saved.read_text()
    session = memory.stdio("default")
    tools = {tool["name"]: tool for tool in session.request("list_tools")["tools"]}
    planned = session.call("memory_optimize")
    jsonschema.validate(planned, tools["memory_optimize"]["outputSchema"])
    assert (planned["dry_run"], saved.read_text()) == (True, before)
    assert {"MEMORY.md"} <= {file["file"] for file in planned["files"]}


def test_the_commands_of_the_manual_make_list_and_revoke_a_token(memory: Memory) -> None:
    typed = [command for block in blocks("docs/mcp.md", "sh") for command in commands(block)]
    pip, stdio, first, http, add, listing, revoke = (shlex.split(command, comments=True) for command in typed)
    assert pip == ["pip", "install", ".[embedded,mcp]"]
    session = memory.kept(Client(sdk(2), "either", command=[sdk(2).program, *stdio[1:]], env=memory.environment))
    assert session.call("list_memories")["theme"] == "garden"
    assert memory.run(*first[1:]).stdout.startswith("hpg_")
    token = memory.run(*add[1:]).stdout.strip()
    assert http == ["hermes-pgvector", "mcp", "--http"]
    client = memory.http(memory.served(), token)
    assert client.call("list_memories")["theme"] == "garden"
    assert "garden, house" in memory.run(*listing[1:]).stdout
    assert memory.run(*revoke[1:]).returncode == 0
    assert "raised" in client.request("call_tool", "list_memories", {})


def test_the_configurations_of_the_manual_lead_to_the_memory(memory: Memory) -> None:
    servers = configured("json") + configured("yml")
    assert len(servers) == 9
    started = set()
    tokens = []
    for server in servers:
        if "url" in server:
            assert server["url"] == "http://127.0.0.1:8765/mcp"
            tokens.append(server.get("requestOptions", server)["headers"]["Authorization"])
        else:
            assert server["command"] == "/path/to/hermes-pgvector"
            assert "/home/me/.hermes" in server["args"]
            started.add(tuple(str(memory.home) if each == "/home/me/.hermes" else each for each in server["args"]))
    # Each client reads a token in its own way: Cursor, Claude Code, VS Code, Continue, Hermes.
    names = ["env:MEMORY_TOKEN", "MEMORY_TOKEN", "input:memory-token", "{ secrets.MEMORY_TOKEN }", "MEMORY_TOKEN"]
    assert tokens == [f"Bearer ${{{name}}}" for name in names]
    for arguments in started:
        command = [sdk(2).program, *arguments]
        session = memory.kept(Client(sdk(2), "stateless", command=command, env=memory.environment))
        assert session.call("list_memories")["theme"] == "garden"
    session = memory.http(memory.served(), memory.token("garden"))
    assert session.call("list_memories")["theme"] == "garden"
