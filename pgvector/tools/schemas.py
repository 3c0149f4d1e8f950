"""The schemas of the tools that the settings offer. Hosts ask for them first, so nothing large is imported."""

from __future__ import annotations

from typing import Any

from ..settings import Settings
from . import entry_schemas, fact_schemas, recall_schemas

_FACTS = (*fact_schemas.SCHEMAS, fact_schemas.MEMORY_OPTIMIZE)


def schemas(settings: Settings) -> list[dict[str, Any]]:
    """The schemas of the tools that are offered."""
    if settings.recall_mode == "context":
        return []
    optional = {"recall": (), "all": entry_schemas.offered(settings), "facts": _FACTS}[settings.tools]
    return [dict(schema) for schema in (*recall_schemas.offered(settings), *optional)]


def every_schema(settings: Settings) -> list[dict[str, Any]]:
    """The schemas of all tools, whatever the settings offer."""
    return [dict(schema) for schema in (*recall_schemas.SCHEMAS, *entry_schemas.offered(settings), *_FACTS)]
