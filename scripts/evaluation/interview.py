"""Tell a memory what was said and ask it: run in the Python of that memory, `interview.py PLAN ANSWERS`.

The plan is JSON: which `provider`, its `settings`, its `dsn`, whether there are to be `vectors`, `conversations` with
`turns` and `questions`, the `limit` of hits. The answers are the contents of the hits, by conversation and question.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from pathlib import Path
from typing import Any

import psycopg

SETTLED_S_MAX = 1800.0


def main() -> None:
    plan = json.loads(Path(sys.argv[1]).read_text())
    started = time.monotonic()
    providers = [_provider(plan, talk) for talk in plan["conversations"]]
    for provider, talk in zip(providers, plan["conversations"], strict=True):
        for session, user, assistant in talk["turns"]:
            provider.sync_turn(user, assistant, session_id=session)
    rows = _settled(plan["dsn"], plan["vectors"])
    told = time.monotonic()
    answers = [
        [_asked(provider, question, plan) for question in talk["questions"]]
        for provider, talk in zip(providers, plan["conversations"], strict=True)
    ]
    result = {"answers": answers, "rows": rows, "told_s": told - started, "asked_s": time.monotonic() - told}
    Path(sys.argv[2]).write_text(json.dumps(result))
    for provider in providers:
        provider.shutdown()


def _provider(plan: dict[str, Any], talk: dict[str, Any]) -> Any:
    made = importlib.import_module(plan["provider"]).PgvectorMemoryProvider
    provider = made(plan["settings"]) if "settings" in plan else made()
    provider.initialize(talk["turns"][0][0], agent_identity=talk["theme"], platform="cli", agent_context="primary")
    return provider


def _settled(dsn: str, vectors_too: bool) -> int:
    """Wait until rows have stopped coming and each has its vector, if there are any; returns how many there are."""
    deadline, before, since = time.monotonic() + SETTLED_S_MAX, -1, time.monotonic()
    with psycopg.connect(dsn, autocommit=True) as connection:
        while time.monotonic() < deadline:
            rows, vectors = connection.execute("select count(*), count(embedding) from conversations").fetchone()
            if rows + vectors != before:
                before, since = rows + vectors, time.monotonic()
            elif rows > 0 and (rows == vectors or not vectors_too) and time.monotonic() - since > 2.0:
                return int(rows)
            time.sleep(0.2)
    sys.exit(f"the memory has {rows} rows and {vectors} vectors after {SETTLED_S_MAX:g} s")


def _asked(provider: Any, question: str, plan: dict[str, Any]) -> list[str]:
    arguments = {"query": question, "limit": plan["limit"]}
    answer = json.loads(provider.handle_tool_call("recall_conversation", arguments))
    complaint = answer.get("error") or (plan["vectors"] and answer.get("degraded"))
    if complaint:
        sys.exit(f"the memory is not well: {complaint}")
    return [hit["content"] for hit in answer.get("hits", answer.get("results", ()))]


if __name__ == "__main__":
    main()
