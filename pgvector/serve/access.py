"""Whom a connection speaks for: its themes, which nothing in a call can widen, and its session. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from ..errors import BadArgument
from ..model import Caller
from ..runtime import Runtime
from ..session.themes import allowed, stored_name
from ..settings import Settings
from ..text.keep import Source
from ..text.theme_names import reserved

THEMES_MAX = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """The themes of a connection, the one that it writes to first, and its session. `source` is for rules of `keep`."""

    themes: tuple[str, ...]
    session_id: str
    source: Source = field(default_factory=Source)

    def caller(self, runtime: Runtime) -> Caller:
        """The caller of a tool. Raises BadArgument when `allowed_themes` has not its theme."""
        theme, *others = self.themes
        if not allowed(theme, runtime.settings.allowed_themes):
            raise BadArgument(f"theme {theme} is not in allowed_themes")
        capture, source = runtime.context.capture, self.source
        return Caller(
            theme=theme, session_id=self.session_id, marks={"client": "mcp"}, off_record=runtime.settings.off_record,
            refusal=lambda text: capture.why_no_entry(text, source), granted=tuple(others),
        )  # fmt: skip


def themes_of(names: Collection[str], settings: Settings) -> tuple[str, ...]:
    """The stored names of themes that an operator gives to a connection.

    Raises BadArgument for the theme of a person or room, for one that is not in `allowed_themes`, and for too many.
    """
    themes = tuple(dict.fromkeys(stored_name(name, settings) for name in names))
    for theme in themes:
        if reserved(theme):
            raise BadArgument(f"theme {theme} belongs to one person or room; choose another theme")
        if not allowed(theme, settings.allowed_themes):
            raise BadArgument(f"theme {theme} is not in allowed_themes; choose one of them")
    if not 1 <= len(themes) <= THEMES_MAX:
        raise BadArgument(f"there are {len(themes)} themes; give 1 to {THEMES_MAX}")
    return themes
