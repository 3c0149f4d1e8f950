"""The SQL statements, loaded from `sql/`: one file a statement, named by its file.

A file of `sql/each/` is a statement for each kind of rows, which stands for `kind` in its name. In its text `$table`,
`$pieces`, `$time` and `$kind` are those of the kind, and further names in `$` are files of `sql/parts/`: what several
statements must have in common, above all `$scope`, the themes that a recall may see, and `$narrow`, what a question
asks for beside them. One with `width` in its name is there for each number of terms that a question may have.
"""

from __future__ import annotations

from pathlib import Path
from string import Template
from typing import Literal, LiteralString, TypeAlias

from ..recall.scan import BITS

FOLDER = Path(__file__).parent / "sql"
Kind: TypeAlias = Literal["entries", "turns"]
KINDS: dict[Kind, dict[str, str]] = {
    "entries": {
        "table": "memory_entries", "pieces": "memory_entry_pieces", "time": "created_at", "session": "id::text"
    },
    "turns": {"table": "conversations", "pieces": "conversation_pieces", "time": "ts", "session": "session_id"},
}  # fmt: skip
WIDTHS = (8, 16, 32, 60, 120)
# Whether a row of these columns holds the nth term.
HOLDS = f"case when a.n <= {BITS} then held >> a.n - 1 else held_beyond >> a.n - {BITS + 1} end & 1 = 1"


def _load() -> tuple[dict[str, LiteralString], dict[str, LiteralString]]:
    """All statements, and those for a plain scope."""
    statements, plain = _texts(FOLDER), {}
    templates, parts = _texts(FOLDER / "each"), _texts(FOLDER / "parts")
    for kind, names in KINDS.items():
        values = {**parts, **names, "kind": kind, "narrow": parts[f"narrow_{kind}"], "holds": HOLDS}
        for name, text in templates.items():
            for width in WIDTHS if "width" in name else (0,):
                stem = name.replace("kind", kind).replace("width", str(width))
                template, held = Template(text), _held(width)
                statements[stem] = template.substitute(values, held=held)
                if "$narrow" in text:
                    plain[stem] = template.substitute(values, held=held, scope=parts["scope_plain"], narrow="true")
    # The files are part of the package, so their text is as trustworthy as a literal in the code.
    return statements, plain


def _held(width: int) -> str:
    """The columns that tell as bits which of the first `width` terms of a question a row holds."""
    bits = [f"case when search @@ %(term_{n})s::tsquery then {1 << n % BITS} else 0 end::bigint" for n in range(width)]
    columns = [" | ".join(bits[start : start + BITS]) or "0::bigint" for start in (0, BITS)]
    return f"{columns[0]} as held, {columns[1]} as held_beyond"


def _texts(folder: Path) -> dict[str, str]:
    return {path.stem: path.read_text(encoding="utf-8").rstrip() for path in folder.glob("*.sql")}


QUERIES, PLAIN = _load()
