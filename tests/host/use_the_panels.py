"""Run in a host's Python: show and save our settings as its desktop and its web dashboard do, and print it as JSON."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

from fastapi import HTTPException

try:
    from hermes_cli.web_models import MemoryProviderConfigUpdate
    from hermes_cli.web_routers.memory_providers import get_memory_provider_config, update_memory_provider_config
except ImportError:
    from hermes_cli.web_server import (
        MemoryProviderConfigUpdate,
        get_memory_provider_config,
        update_memory_provider_config,
    )


def shown(surface: str | None) -> dict[str, Any]:
    payload = asyncio.run(get_memory_provider_config("pgvector", surface=surface))
    return {field["key"]: field for field in payload["fields"]}


def saved(surface: str | None, **values: Any) -> str:
    """Save; what the host answers when it is not content."""
    try:
        body = MemoryProviderConfigUpdate(values=values)
        asyncio.run(update_memory_provider_config("pgvector", body, surface=surface))
    except HTTPException as error:
        return str(error.detail)
    return ""


answer: dict[str, Any] = {"before": {"desktop": shown("declared"), "web": shown(None)}}
answer["refused"] = saved(None, prefetch_limit=99)
answer["web_saved"] = saved(None, prefetch_limit=7, sync_turns=False, embed_api="openai")
answer["desktop_saved"] = saved("declared", turn_min_chars="12", dsn="postgresql://me:hunter2@127.0.0.1:9/db")
answer["after"] = {"desktop": shown("declared"), "web": shown(None)}
home = Path(os.environ["HERMES_HOME"])
answer["file"] = json.loads((home / "pgvector" / "config.json").read_text())
answer["env"] = (home / ".env").read_text()
print(json.dumps(answer))
