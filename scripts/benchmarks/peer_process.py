"""Process that answers recall questions with the earlier package, in its virtual environment.

One question a line on stdin and one answer a line on stdout, as JSON.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time


def main(dsn: str, embed_url: str, package: str) -> None:
    provider_of = next(
        value for value in vars(importlib.import_module(package)).values()
        if isinstance(value, type) and hasattr(value, "handle_tool_call")
    )  # fmt: skip
    config = {
        "dsn": dsn,
        "embed_url": embed_url,
        "embed_model": "m",
        "embed_protocol": "openai",
        "bulk_sync_on_init": False,
    }
    providers = {}
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        theme, arguments = json.loads(line)
        if theme not in providers:
            providers[theme] = provider_of(config)
            providers[theme].initialize("bench", agent_identity=theme, hermes_home=os.environ["HERMES_HOME"])
        started = time.perf_counter()
        answer = json.loads(providers[theme].handle_tool_call("recall_conversation", arguments))
        took_ms = 1000 * (time.perf_counter() - started)
        print(
            json.dumps({"ms": took_ms, "hits": len(answer.get("results", ())), "error": answer.get("error", "")}),
            flush=True,
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
