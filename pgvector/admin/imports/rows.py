"""Rows of an import that were not written by this package: checked, cleaned, and in the form of an archive. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from ...errors import BadArgument
from ...model import TARGETS, now
from ...recall.quarantine import RELEASED
from ...session.themes import allowed, stored_name
from ...settings import Settings
from ...store.archive.lines import Line
from ...text import tags as tag_names
from ...text.cleaning import clean, clean_metadata, cut
from ...text.masks import masked
from ...text.theme_names import reserved
from ...text.times import NEVER, utc

ROLES = ("user", "assistant", "system", "tool")
YEARS = (1970, 9999)
_MS_MIN = 1e11
# Metadata that say where a row comes from: whoever wrote a file of JSON lines must not set them.
_SOURCE = frozenset({"origin", "client"})
# The fields of the rows of a file of JSON lines.
FIELDS: Mapping[str, frozenset[str]] = {
    "entry": frozenset(["theme", "target", "content", "created_at", "updated_at", "tags", "expires", "metadata"]),
    "turn": frozenset(["theme", "session_id", "role", "content", "at", "metadata"]),
}


@dataclass(frozen=True, slots=True)
class Rules:
    """How rows are made: `theme` gets all of them; when it is empty, `own` gets those that name no theme."""

    settings: Settings
    theme: str
    own: str

    def theme_of(self, row: Mapping[str, Any]) -> str:
        """The theme of a row. Raises BadArgument for one that may not be used."""
        if self.theme or not row.get("theme"):
            return self.theme or self.own
        named = stored_name(_text(row, "theme"), self.settings)
        if reserved(named):
            raise BadArgument(f"theme {named[:60]!r} is reserved for one person or room")
        if not allowed(named, self.settings.allowed_themes):
            raise BadArgument(f"theme {named[:60]!r} is not in allowed_themes")
        return named


def entry(number: int, row: Mapping[str, Any], rules: Rules) -> Line:
    """An entry. `row` has `content`, and perhaps other FIELDS. Raises BadArgument for one that cannot be stored."""
    target = row.get("target") or "memory"
    if target not in TARGETS:
        raise BadArgument(f"target is {str(target)[:40]!r}; it must be one of {', '.join(TARGETS)}")
    created_at = time(row.get("created_at"), "created_at") or now()
    given = row.get("expires") or ""
    expires = given if given == NEVER else str(time(given, "expires") or "")
    content = _content(row, rules.settings).strip()
    if rules.settings.mask_secrets_in_entries:
        content = masked(content)
    return _line(
        number, "entry", theme=rules.theme_of(row), home="", target=target,
        content=content, created_at=created_at.isoformat(),
        updated_at=max(created_at, time(row.get("updated_at"), "updated_at") or created_at).isoformat(),
        metadata=_metadata(row), tags=list(tag_names.normalised(_tags(row))), replaces=None,
        expires_at=None if expires in ("", NEVER) else expires,
    )  # fmt: skip


def turn(number: int, row: Mapping[str, Any], rules: Rules) -> Line:
    """One side of a turn. `row` has `content`, `role`, `session_id` and `at`. Raises BadArgument as `entry`."""
    role, at = row.get("role"), time(row.get("at"), "at")
    if role not in ROLES:
        raise BadArgument(f"role is {str(role)[:40]!r}; it must be one of {', '.join(ROLES)}")
    if at is None:
        raise BadArgument("it has no `at`; a turn needs its time, by which it is known when it comes again")
    return _line(
        number, "turn", theme=rules.theme_of(row), session_id=clean(_text(row, "session_id"))[:500],
        parent_session_id="", role=role, content=_content(row, rules.settings), ts=at.isoformat(),
        metadata=_metadata(row),
    )  # fmt: skip


def plain(line: Line, rules: Rules) -> Line:
    """A row of a file of JSON lines. Raises BadArgument."""
    known = FIELDS.get(line.kind)
    if known is None:
        raise BadArgument(f"kind is {line.kind[:40]!r}; it must be one of {', '.join(FIELDS)}")
    if unknown := sorted(set(line.row) - known):
        raise BadArgument(f"it has the field {clean(unknown[0])[:40]!r}; {line.kind} has {', '.join(sorted(known))}")
    metadata = line.row.get("metadata")
    if isinstance(metadata, Mapping):
        metadata = {name: metadata[name] for name in metadata if name not in _SOURCE}
    return of_kind(line.kind, line.number, {**line.row, "metadata": metadata}, rules)


def of_kind(kind: str, number: int, row: Mapping[str, Any], rules: Rules) -> Line:
    """A row of a kind of FIELDS. Raises BadArgument for one that cannot be stored."""
    return (entry if kind == "entry" else turn)(number, row, rules)


def time(value: Any, name: str) -> datetime | None:
    """A time in ISO 8601, or in seconds or milliseconds since 1970; None for none, and now for one of the future."""
    if value is None or value == "":
        return None
    try:
        if isinstance(value, int | float) and not isinstance(value, bool):
            at = datetime.fromtimestamp(value / 1000 if value > _MS_MIN else value, UTC)
        else:
            at = utc(datetime.fromisoformat(value))
        if not YEARS[0] <= at.year < YEARS[1]:
            raise ValueError
    except (TypeError, ValueError, OverflowError, OSError):
        raise BadArgument(f"{name} is {str(value)[:40]!r}; it must be a time like 2026-11-21T09:30Z") from None
    return at if name == "expires" else min(at, now())


def _line(number: int, kind: str, **row: Any) -> Line:
    return Line(number, kind, row, json.dumps(row))


def _text(row: Mapping[str, Any], name: str) -> str:
    value = row.get(name)
    if not isinstance(value, str) or not value.strip():
        raise BadArgument(f"its {name} is empty, or no text")
    return value


def _content(row: Mapping[str, Any], settings: Settings) -> str:
    content = cut(clean(_text(row, "content")), settings.content_chars_max)
    if not content.strip():
        raise BadArgument("its content is empty")
    return content


def _metadata(row: Mapping[str, Any]) -> dict[str, Any]:
    given = row.get("metadata") or {}
    if not isinstance(given, Mapping):
        raise BadArgument("its metadata are no object in JSON")
    # Whoever wrote the file cannot release a row from quarantine.
    return clean_metadata({"origin": "import", **{name: given[name] for name in given if name != RELEASED}})


def _tags(row: Mapping[str, Any]) -> Sequence[str]:
    given = row.get("tags") or []
    if not isinstance(given, list) or not all(isinstance(tag, str) for tag in given):
        raise BadArgument("its tags are no list of texts")
    return given
