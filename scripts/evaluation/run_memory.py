"""Stores conversations in a memory and asks it questions: `run_memory.py PLAN ANSWERS`, in the Python of that memory.

The plan is JSON: module of the `provider`, its `settings`, its `dsn`, whether to wait for `vectors`, `conversations`
with `entries`, `turns` and `questions`, each with its `tools`, `limit` of hits. The answers are the whole texts of the
rows of each hit, by conversation, question and tool, and the size of each answer in bytes.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from pathlib import Path
from typing import Any

import psycopg

STORE_S_MAX = 1800.0


def main() -> None:
    plan = json.loads(Path(sys.argv[1]).read_text())
    started = time.monotonic()
    providers = [_provider(plan, talk) for talk in plan["conversations"]]
    for provider, talk in zip(providers, plan["conversations"], strict=True):
        for target, text in talk.get("entries", ()):
            provider.on_memory_write("add", target, text)
        for session, user, assistant in talk["turns"]:
            provider.sync_turn(user, assistant, session_id=session)
    rows = _wait_until_stored(plan["dsn"], plan["vectors"])
    stored = time.monotonic()
    texts = _texts(plan["dsn"])
    answers = [
        [[_contents(provider, tool, question, plan, texts) for tool in tools] for question, tools in talk["questions"]]
        for provider, talk in zip(providers, plan["conversations"], strict=True)
    ]
    result = {"answers": answers, "rows": rows, "stored_s": stored - started, "asked_s": time.monotonic() - stored}
    Path(sys.argv[2]).write_text(json.dumps(result))
    for provider in providers:
        provider.shutdown()


def _provider(plan: dict[str, Any], talk: dict[str, Any]) -> Any:
    made = importlib.import_module(plan["provider"]).PgvectorMemoryProvider
    provider = made(plan["settings"]) if "settings" in plan else made()
    provider.initialize(talk["turns"][0][0], agent_identity=talk["theme"], platform="cli", agent_context="primary")
    return provider


def _wait_until_stored(dsn: str, with_vectors: bool) -> int:
    """Wait until rows have not changed for two seconds, each with a vector if wanted; returns their number."""
    deadline, before, since = time.monotonic() + STORE_S_MAX, -1, time.monotonic()
    with psycopg.connect(dsn, autocommit=True) as connection:
        while time.monotonic() < deadline:
            rows, vectors = connection.execute("select count(*), count(embedding) from conversations").fetchone()
            if rows + vectors != before:
                before, since = rows + vectors, time.monotonic()
            elif rows > 0 and (rows == vectors or not with_vectors) and time.monotonic() - since > 2.0:
                return int(rows)
            time.sleep(0.2)
    sys.exit(f"the memory stored only {rows} rows and {vectors} vectors in {STORE_S_MAX:g} s")


def _texts(dsn: str) -> dict[tuple[str, str], str]:
    """The whole texts of all rows, by tool and id: a tool shortens long ones."""
    read = (
        "select 'recall_conversation', id::text, content from conversations union all "
        "select 'recall_memory', id::text, content from memory_entries"
    )
    with psycopg.connect(dsn) as connection:
        return {(tool, number): content for tool, number, content in connection.execute(read)}


def _contents(
    provider: Any, tool: str, question: str, plan: dict[str, Any], texts: dict[tuple[str, str], str]
) -> dict[str, Any]:
    """The whole texts of each hit, one or both sides of a turn, and the size of the answer."""
    told = provider.handle_tool_call(tool, {"query": question, "limit": plan["limit"]})
    answer = json.loads(told)
    problem = answer.get("error") or (plan["vectors"] and answer.get("degraded"))
    if problem:
        sys.exit(f"the memory did not answer completely: {problem}")
    hits = answer.get("hits", answer.get("results", ()))
    shown = [[one for one in (hit, hit.get("side")) if one] for hit in hits]
    contents = [[texts.get((tool, str(one.get("id"))), one["content"]) for one in of_hit] for of_hit in shown]
    return {"contents": contents, "bytes": len(told.encode())}


if __name__ == "__main__":
    main()
