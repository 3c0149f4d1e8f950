"""The SQL statements, loaded from `sql/`: one file a statement, named by its file.

A file of `sql/each/` is a statement for each kind of rows, which stands for `kind` in its name. In its text `$table`,
`$pieces`, `$time` and `$kind` are those of the kind, and further names in `$` are files of `sql/parts/`: what several
statements must have in common, above all `$scope`, the themes that a recall may see, and `$narrow`, what a question
asks for beside them.
"""

from __future__ import annotations

from pathlib import Path
from string import Template
from typing import LiteralString

FOLDER = Path(__file__).parent / "sql"
KINDS = {
    "entries": {"table": "memory_entries", "pieces": "memory_entry_pieces", "time": "created_at"},
    "turns": {"table": "conversations", "pieces": "conversation_pieces", "time": "ts"},
}


def _load() -> dict[str, LiteralString]:
    statements = _texts(FOLDER)
    templates, parts = _texts(FOLDER / "each"), _texts(FOLDER / "parts")
    for kind, names in KINDS.items():
        values = {**parts, **names, "kind": kind, "narrow": parts[f"narrow_{kind}"]}
        for name, text in templates.items():
            statements[name.replace("kind", kind)] = Template(text).substitute(values)
    # The files are part of the package, so their text is as trustworthy as a literal in the code.
    return statements


def _texts(folder: Path) -> dict[str, str]:
    return {path.stem: path.read_text(encoding="utf-8").rstrip() for path in folder.glob("*.sql")}


QUERIES: dict[str, LiteralString] = _load()
