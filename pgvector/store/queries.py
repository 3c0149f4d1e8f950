"""The SQL statements, loaded from `sql/*.sql`: one file a statement, named by its file."""

from __future__ import annotations

from pathlib import Path
from typing import LiteralString


def _load() -> dict[str, LiteralString]:
    folder = Path(__file__).parent / "sql"
    # The files are part of the package, so their text is as trustworthy as a literal in the code.
    return {path.stem: path.read_text(encoding="utf-8") for path in folder.glob("*.sql")}


QUERIES: dict[str, LiteralString] = _load()
