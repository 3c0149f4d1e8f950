"""Checks of themes: which of them others may read, and names that tell whose they are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from ...settings import EARLIER, Settings, given_values
from ...text import personal_keys
from ...text.theme_names import reserved
from ..check import Check
from ..console import counted

HASH = "hermes-pgvector settings set hash_personal_keys true"
REMAP = "hermes-pgvector remap --personal"


def readable(settings: Settings, home: Path) -> Check:
    """Whether a theme may read others only where somebody said so."""
    _, origin = given_values(home)
    if origin.get("cross_theme_recall") == EARLIER:
        what = "cross_theme_recall is `all`, as in earlier releases: a tool may search the themes of others"
        return Check("scopes", "warning", what, "hermes-pgvector settings set cross_theme_recall none")
    rule = settings.cross_theme_recall
    return Check("scopes", "ok", f"cross_theme_recall is {rule if isinstance(rule, str) else 'a mapping'}")


def names(settings: Settings, themes: Iterable[str]) -> Iterator[Check]:
    """Whether themes with rows have names that look like persons."""
    kinds = Counter(personal_keys.kind(theme) for theme in themes if not reserved(theme))
    del kinds[""]
    if not kinds:
        return
    found = ", ".join(f"{number} like {what}" for what, number in sorted(kinds.items()))
    what = f"{counted(kinds.total(), 'theme')} named by persons, readable in the database: {found}"
    yield Check("names of themes", "warning", what, REMAP if settings.hash_personal_keys else f"{HASH} && {REMAP}")
