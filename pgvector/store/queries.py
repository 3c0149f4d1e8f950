"""The SQL statements, loaded from `sql/`: one file a statement, named by its file.

A file of `sql/each/` is a template: it becomes one statement for each kind of rows, whose name replaces `kind` in the
name of the file. In its text `$table`, `$pieces`, `$time`, `$session`, `$role`, `$kind`, `$text`, which is embedded,
`$answers`, the text before it in its session, `$searched`, where an operator looks for a text, `$written_in`, the
session that wrote it, and `$current`, the rows that are recalled, are those of the kind. In every file, other names
after `$` are files of `sql/parts/`, the text that several statements share: above all `$scope`, the themes that a
recall may see, and `$narrow`, the further conditions of a question, which name parts themselves; a count takes
`$counted` instead. `$held` depends on how many words the question has; `for_words` fills it in.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from string import Template
from typing import Literal, LiteralString, TypeAlias

FOLDER = Path(__file__).parent / "sql"
Kind: TypeAlias = Literal["entries", "turns", "facts"]
KINDS: dict[Kind, dict[str, str]] = {
    "entries": {
        "table": "memory_entries", "pieces": "memory_entry_pieces", "time": "created_at", "session": "id::text",
        "role": "''", "text": "content", "answers": "null::text", "current": "true",
        "written_in": "metadata ->> 'session_id'",
        "searched": "content || ' ' || coalesce(array_to_string(tags, ' '), '')",
    },
    "turns": {
        "table": "conversations", "pieces": "conversation_pieces", "time": "ts", "session": "session_id",
        "role": "role", "text": "content", "answers": "($before_turn)", "current": "true", "written_in": "session_id",
        "searched": "content",
    },
    "facts": {
        "table": "facts", "pieces": "fact_pieces", "time": "written_at", "session": "id::text",
        "role": "''", "text": "target || ': ' || content", "answers": "null::text",
        "current": "status in ('active', 'cold')",
        "written_in": "session_id", "searched": "target || ': ' || content || ' ' || scope",
    },
}  # fmt: skip
# A statement about the rows of a scope has another form for a scope with tags, whose name ends in this: without tags,
# the server need not read their conditions.
TAGGED = "_tagged"
# A bit of a bigint tells whether a row holds a word.
WORDS_MAX = 64
_COMMENT = re.compile(r"^\s*--.*\n", re.MULTILINE)


def _load() -> dict[str, LiteralString]:
    statements, templates, parts = _texts(FOLDER), _texts(FOLDER / "each"), _texts(FOLDER / "parts")
    for kind, names in KINDS.items():
        for suffix, tagged in (("", ""), (TAGGED, f"\n  and {parts[f'tagged_{kind}']}")):
            narrow = Template(f"{parts[f'narrow_{kind}']}{tagged}")
            # A count may have rows that have expired: then it reads an index only.
            conditions = {"narrow": _filled(narrow, parts), "counted": _filled(narrow, {**parts, "live": "true"})}
            answers = _filled(Template(names["answers"]), parts)
            values = {**parts, **names, "kind": kind, "answers": answers, **conditions, "held": "$held"}
            for name, text in templates.items():
                if not tagged or "$narrow" in text or "$counted" in text:
                    statements[name.replace("kind", kind) + suffix] = Template(text).substitute(values)
    # The files are part of the package, so their text is as trustworthy as a literal in the code.
    return {name: Template(text).safe_substitute(parts) for name, text in statements.items()}


def _filled(text: Template, parts: Mapping[str, LiteralString]) -> str:
    """A text with the parts that it names, and with those that they name."""
    return Template(text.substitute(parts)).substitute(parts)


def _texts(folder: Path) -> dict[str, LiteralString]:
    """The statements of a folder, without the comments: the driver and the server read each statement anew."""
    return {path.stem: _COMMENT.sub("", path.read_text(encoding="utf-8")).strip() for path in folder.glob("*.sql")}


QUERIES = _load()


# The second column of vectors and the tables of its chunks, while another model takes over.
SECOND = "_next"


@cache
def query(name: str, *, second: bool) -> LiteralString:
    """The statement of this name; with `second`, as it reads and writes the second column of vectors."""
    return re.sub(r"\b(embedding|\w+_pieces)\b", rf"\1{SECOND}", QUERIES[name]) if second else QUERIES[name]


def containing(text: str) -> str:
    """The pattern of `like` for what contains a text; empty for an empty text."""
    escaped = "".join(f"\\{char}" if char in "\\%_" else char for char in text)
    return f"%{escaped}%" if escaped else ""


def index_name(kind: Kind, theme: str) -> str:
    """The name of the graph index that a theme may have of its own."""
    return f"{KINDS[kind]['table']}_meaning_{hashlib.sha256(theme.encode()).hexdigest()[:16]}"


@cache
def for_words(name: str, count: int) -> LiteralString:
    """The statement of this name for a question of `count` words, at most WORDS_MAX.

    Its `held` is a bigint that has bit n set when a row holds the term of word n of the parameter `words`, counted from
    0. The words are named one by one because Postgres then takes each term for a constant, which is faster than a join.
    """
    bits = [
        f"case when search @@ plainto_tsquery('english', (%(words)s::text[])[{n + 1}]) then 1::bigint << {n} else 0 end"
        for n in range(count)
    ]
    return QUERIES[name].replace("$held", f"{' | '.join(bits) or '0::bigint'} as held")
