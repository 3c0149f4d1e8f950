"""After a day of chats no identifier and no secret stands anywhere but in the columns that hold what people said."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from faultrig.releases import HookAgent
from logins import with_row_security
from loopback import Endpoint
from psycopg.conninfo import make_conninfo
from psycopg.rows import dict_row
from servers import Server
from traces import dump, titles
from waiting import wait_for

# What hosts say of people, and clients of the API write into a header.
PHONE, ROOM, MEMBER, SLACK = "4917055512345", "-100777123456", "4917099988877", "D0456EFGH77"
NAME, CHAT_NAME, MAIL, HEADER = "Annegret", "Aebischers", "annegret.aebischer@example.com", "+49 170 7776665"
# Passwords of the home, and a key that somebody shows the agent.
PASSWORD, TOKEN, KEY = "vertraulich-7731", "embedder-4489-token", "sk-proj-" + "a1B2c3D4" * 6
UNRECORDED = "marzipanhaus"
SECRET = [PHONE, ROOM, MEMBER, SLACK, NAME, CHAT_NAME, MAIL, "7776665", PASSWORD, TOKEN, KEY, KEY[-20:], UNRECORDED]
# Said on the record, so in the columns of texts and their words, and nowhere else.
SAID = "5559876"
TEXTS = {
    ("conversations", "content"), ("conversations", "search"), ("memory_entries", "content"),
    ("memory_entries", "search"), ("memory_history", "content"), ("memory_history", "replaced_by"),
    # What the planner knows of the indexes of words.
    ("conversations_words", "expr"), ("memory_entries_words", "expr"),
}  # fmt: skip
DM: dict[str, str] = {
    "platform": "whatsapp", "chat_type": "dm", "chat_id": PHONE, "user_id": PHONE, "user_name": NAME,
    "chat_name": CHAT_NAME, "agent_identity": "default", "agent_workspace": "hermes",
}  # fmt: skip
PEOPLE: dict[str, dict[str, str]] = {
    "20261125_080000_dm": {**DM, "gateway_session_key": f"agent:main:whatsapp:dm:{PHONE}"},
    "20261125_090000_room": {
        **DM, "chat_type": "group", "chat_id": ROOM, "gateway_session_key": f"agent:main:whatsapp:group:{ROOM}:{PHONE}"
    },
    "20261125_100000_task": {**DM, "platform": "slack", "chat_id": SLACK, "user_id": MEMBER},
    "api-0123456789abcdef": {"platform": "api_server", "gateway_session_key": MAIL},
    "api-fedcba9876543210": {"platform": "api_server", "gateway_session_key": HEADER},
    # It claims to be the person, and is refused.
    "api-aaaaaaaaaaaaaaaa": {"platform": "api_server", "gateway_session_key": f"agent:main:whatsapp:dm:{PHONE}"},
}  # fmt: skip


@pytest.fixture
def agents(tmp_path: Path, agents_database: str, endpoint: Endpoint) -> Iterator[list[HookAgent]]:
    """Two agents of a home, one after the other, that log all they can."""
    verbose, home = tmp_path / "verbose", tmp_path / "home"
    verbose.mkdir()
    (verbose / "sitecustomize.py").write_text("import logging\nlogging.basicConfig(level=logging.DEBUG)\n")
    values = {
        "dsn": make_conninfo(agents_database, password=PASSWORD), "embed_url": endpoint.url, "embed_model": "test",
        "embed_key_env": "HERMES_PGVECTOR_TOKEN", "token": TOKEN, "tools": "all", "batch_linger_s": "0",
        "hash_personal_keys": "true", "adopt_interval_s": "1", "recall_budget_s": "20",
    }  # fmt: skip
    made = [HookAgent(verbose, home, values, log=tmp_path / f"log{number}") for number in range(2)]
    yield made
    for agent in made:
        agent.kill()


def live(agent: HookAgent, session: str, parts: range) -> None:
    """A part of a day in a session."""
    for number in parts:
        message = f"Please call the shop number {number} at 030 {SAID} before noon; their key is {KEY}"
        if number % 5 == 4:
            message = f"off the record: in shop {number} I buy a {UNRECORDED} for her birthday tomorrow"
        agent.call(session, "on_turn_start", number, message, author_id=MEMBER if number % 2 else PHONE)
        agent.call(session, "prefetch", message, session_id=session)
        answer = f"I have called shop {number}, and they are open until six. OPENAI_API_KEY={KEY}"
        agent.call(session, "sync_turn", message, answer, session_id=session)
    first = parts[0]
    text = f"Shop {first} has the number 030 {SAID}"
    agent.call(session, "handle_tool_call", "remember", {"content": text, "tags": ["shop"]})
    agent.call(session, "handle_tool_call", "recall_memory", {"query": "shop", "scope": MAIL})
    agent.call(session, "handle_tool_call", "recall_conversation", {"query": PHONE, "scope": f"dm-whatsapp-{PHONE}"})
    agent.call(session, "on_memory_write", "add", "memory", f"{text}, opens at {first}", {})
    replaced = {"old_text": f"opens at {first}", "previous_content": f"{text}, opens at {first}"}
    agent.call(session, "on_memory_write", "replace", "memory", f"{text}, opens late", replaced)
    agent.call(session, "on_delegation", f"Call {SAID} with {KEY}", f"Done with {KEY}", child_session_id="child")
    agent.call(session, "on_session_switch", f"{session}_{first}", parent_session_id=session, reason="compression")


def columns_with(dsn: str, wanted: str) -> set[tuple[str, str]]:
    """The columns of all tables, and of what the planner knows of them, that hold a text."""
    found: set[tuple[str, str]] = set()
    with psycopg.connect(dsn, autocommit=True, row_factory=dict_row) as connection:
        connection.execute("analyze")
        tables = connection.execute("select tablename from pg_tables where schemaname = 'public'").fetchall()
        for table in (row["tablename"] for row in tables):
            for row in connection.execute(f'select to_jsonb(t) as row from "{table}" t'.encode()):
                found |= {(table, name) for name, value in row["row"].items() if wanted in json.dumps(value).lower()}
        known = "select tablename, attname, to_jsonb(s)::text as row from pg_stats s where schemaname = 'public'"
        found |= {(r["tablename"], r["attname"]) for r in connection.execute(known) if wanted in r["row"].lower()}
    return found


def elsewhere(dsn: str, folder: Path, agents: list[HookAgent], programs: Path | None) -> dict[str, str]:
    """Everything beside the tables that somebody may look at, by what it is."""
    found = titles(dsn, *(agent.process.pid for agent in agents))
    with psycopg.connect(dsn, autocommit=True) as connection:
        logs = connection.execute("select current_setting('data_directory')").fetchone()
    paths = [path for path in folder.rglob("*") if path.is_file() and path.name != "sitecustomize.py"]
    if logs and os.access(logs[0], os.R_OK):
        paths += Path(logs[0]).parent.glob("*.log")
    found |= {
        str(path): f"{path.relative_to(path.anchor)} {path.read_bytes().decode(errors='replace')}" for path in paths
    }
    return found | {"dump": dump(dsn, programs)}


@with_row_security(pytest.mark.slow)
def test_identifiers_and_secrets_are_nowhere_but_in_what_was_said(
    agents: list[HookAgent], database: str, tmp_path: Path, server: Server
) -> None:
    first, second = agents
    for agent, parts in ((first, range(5)), (second, range(5, 10))):
        for session, identity in PEOPLE.items():
            agent.begin(session, **identity)
            live(agent, session, parts)
        if agent is first:
            # The other one stores what is left of it.
            first.process.kill()
            first.process.wait(10)
    spool = tmp_path / "home" / "pgvector" / "spool"
    second.call("20261125_080000_dm", "on_session_end", [{"role": "user", "content": "bye"}])
    with psycopg.connect(database, autocommit=True) as connection:
        count = "select count(distinct agent_identity) from conversations where content like '%shop number 8%'"
        wait_for(lambda: connection.execute(count).fetchone() == (5,))
        wait_for(lambda: len(list(spool.glob("[!.]*"))) == 1)
        themes = {row[0] for row in connection.execute("select distinct agent_identity from conversations")}
    assert sorted(theme.rsplit("-", 1)[0] for theme in themes) == [
        "dm-key", "dm-key", "dm-slack", "dm-whatsapp", "group-whatsapp"
    ]  # fmt: skip
    places = elsewhere(database, tmp_path, agents, server.bin)
    assert any("comm" in place for place in places)
    assert any(place.endswith("log1") for place in places)
    for wanted in SECRET:
        assert columns_with(database, wanted.lower()) == set(), wanted
        assert [place for place, text in places.items() if wanted.lower() in text.lower()] == [], wanted
    assert {("conversations", "content"), ("memory_entries", "content")} <= columns_with(database, SAID) <= TEXTS
