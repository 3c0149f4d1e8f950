"""import --from holographic: the facts of the memory provider `holographic`, which the hosts bring."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Any

from ...errors import BadArgument, Refused
from ...files import expanded
from .hermes_memory import opened
from .rows import Rules

_FACTS = "select fact_id, content, category, tags, trust_score, created_at, updated_at from facts order by fact_id"


def read(path: str, rules: Rules) -> Iterator[tuple[int, str, dict[str, Any]]]:  # noqa: ARG001
    """Its facts as entries. The category becomes a tag, and `user_pref` the target `user`."""
    file = expanded(path)
    if not file.is_file():
        raise BadArgument(f"{file} is no file; give the database of holographic, usually memory_store.db in the home")
    try:
        with opened(file) as database:
            found = database.execute(_FACTS).fetchall()
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
        raise Refused(f"{file} cannot be read as a database of holographic: {error}; nothing is imported") from None
    for fact in found:
        category = str(fact["category"] or "general")
        tags = [tag for tag in (category, *str(fact["tags"] or "").split(",")) if tag.strip(" #@-")]
        marks = {"imported_from": "holographic", "trust": fact["trust_score"]}
        yield (
            fact["fact_id"],
            "entry",
            {
                "content": fact["content"], "target": "user" if category == "user_pref" else "memory", "tags": tags,
                "created_at": fact["created_at"], "updated_at": fact["updated_at"], "metadata": marks,
            },
        )  # fmt: skip
