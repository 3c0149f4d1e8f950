"""Names of themes: their one spelling, and the names that only their owners may read. Pure."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Collection
from functools import lru_cache

from . import normalization

DEFAULT_THEME = "default"
THEME_CHARS_MAX = 128
NAME_CHARS_KEPT_MAX = 256
# Themes of one person or room. The pattern means the same to Python's `re` and to Postgres' `~`.
RESERVED_PATTERN = "^(dm|group)-[a-z0-9_]{1,24}-[0-9a-f]{16}$"
_RESERVED = re.compile(RESERVED_PATTERN)
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn"})


def normalise(name: str) -> str:
    """The one spelling of a theme's name: NFKC, folded case, no hidden characters, white space as `-`.

    At most 128 characters (a longer name ends in a hash of itself), never empty (`default`). Idempotent.
    """
    # Each hook asks several times; names longer than a header's are not worth their memory.
    return _normalised(name) if len(name) <= NAME_CHARS_KEPT_MAX else _normalised.__wrapped__(name)


@lru_cache(maxsize=1024)
def _normalised(name: str) -> str:
    previous = None
    # Folding case can leave the normal form; a second round settles all but pathological names.
    for _ in range(4):
        if name == previous:
            break
        previous = name
        folded = normalization.compatible(normalization.compatible(name).casefold())
        seen = (c for c in folded if c.isspace() or unicodedata.category(c) not in _HIDDEN)
        name = "-".join("".join(seen).split())
    if len(name) > THEME_CHARS_MAX:
        tail = hashlib.sha256(name.encode()).hexdigest()[:16]
        name = f"{name[: THEME_CHARS_MAX - 17]}-{tail}"
    return name or DEFAULT_THEME


def reserved(theme: str) -> bool:
    """Whether the name belongs to one person or room."""
    return _RESERVED.match(theme) is not None


def is_bench(theme: str, bench_themes: Collection[str]) -> bool:
    """Whether it is a theme of benchmark traffic: it reads no other theme, and no other reads it."""
    return any(re.fullmatch(_glob(pattern), theme) for pattern in bench_themes)


def hidden_pattern(bench_themes: Collection[str]) -> str:
    """A pattern, for Python's `re` and Postgres' `~`, of the themes that only their owners read."""
    return "|".join([RESERVED_PATTERN, *(f"^{_glob(pattern)}$" for pattern in bench_themes)])


def _glob(pattern: str) -> str:
    """A pattern with `*` and `?` as a regular expression."""
    return re.escape(normalise(pattern)).replace(r"\*", ".*").replace(r"\?", ".")
