"""The indexes and triggers of the schema, each with the statement that makes it again."""

from __future__ import annotations

import re
from functools import cache

from ...errors import SchemaNotApplied
from .distribution import SETUP
from .migrations import migration_files

# What a block makes, which is indented, depends on the length of the vectors.
_STATEMENT = re.compile(
    r"^(?:CREATE (?:OR REPLACE |UNIQUE )?(?:INDEX|TRIGGER)(?: CONCURRENTLY)?(?: IF NOT EXISTS)? (?P<made>\w+)"
    r"|DROP (?:INDEX|TRIGGER)(?: CONCURRENTLY)?(?: IF EXISTS)? (?P<dropped>\w+))\b[^;]*",
    re.MULTILINE,
)


@cache
def definitions(*, distributed: bool = False) -> dict[str, str]:
    """Statements by the names of indexes and triggers; empty where the files of the migrations are missing.

    With `distributed`, those of a Citus cluster are among them.
    """
    try:
        texts = [migration.text for migration in migration_files()]
        texts += [SETUP.read_text(encoding="utf-8")] if distributed else []
    except SchemaNotApplied:
        return {}
    found: dict[str, str] = {}
    for statement in _STATEMENT.finditer("\n".join(texts)):
        found.pop(statement["dropped"] or statement["made"], None)
        if statement["made"]:
            text = " ".join(statement[0].split())
            # Agents go on while an index is built.
            found[statement["made"]] = re.sub(r" INDEX (?!CONCURRENTLY)", " INDEX CONCURRENTLY ", text, count=1)
    return found
