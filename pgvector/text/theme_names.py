"""Theme names: their normal form, and the names that only their own theme may read."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection

from .cleaning import label

DEFAULT_THEME = "default"
THEME_CHARS_MAX = 128
# A longer name is known by its beginning and a hash: some characters have a normal form eighteen times as long.
GIVEN_CHARS_MAX = 4096
SEGMENT_CHARS_MAX = 64
# Themes of one person or chat room. A pattern for both Python's `re` and Postgres' `~`.
RESERVED_PATTERN = "^(dm|group)-[a-z0-9_]{1,24}-[0-9a-f]{16}$"
# Most names are in their normal form already, and hooks normalise the same ones again and again.
_NORMAL = re.compile(rf"[!-@\[-~]{{1,{THEME_CHARS_MAX}}}")
_RESERVED = re.compile(RESERVED_PATTERN)


def normalise(name: str) -> str:
    """The normal form of a theme's name: NFKC, case-folded, no hidden characters, `-` for white space.

    At most 128 characters (a longer name ends in a hash of itself); `default` for an empty name. Idempotent.
    """
    if _NORMAL.fullmatch(name):
        return name
    if len(name) > GIVEN_CHARS_MAX:
        name = f"{name[:THEME_CHARS_MAX]}-{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()}"
    return _bounded(label(name), THEME_CHARS_MAX) or DEFAULT_THEME


def segment(name: str) -> str:
    """The normal form of a name that becomes a part of a theme's name: without `/`, `:` and dots or dashes at its ends.

    At most 64 characters (a longer name ends in a hash of itself); empty when nothing is left.
    """
    # With a sign before it, a name without visible characters is not taken for that of the default theme.
    return _bounded(re.sub(r"[/:\\{}]+", "-", normalise(f"/{name}")).strip("-."), SEGMENT_CHARS_MAX)


def covers(pattern: str, theme: str) -> bool:
    """Whether a theme matches a pattern with `*` and `?`."""
    return re.fullmatch(_glob(pattern), theme) is not None


def is_pattern(name: str) -> bool:
    """Whether a name stands for all themes of a form."""
    return "*" in name or "?" in name


def reserved(theme: str) -> bool:
    """Whether the name is that of a person or chat room."""
    return _RESERVED.match(theme) is not None


def is_bench(theme: str, bench_themes: Collection[str]) -> bool:
    """Whether it is a theme of benchmarks: it reads no other theme, and no other theme reads it."""
    return any(covers(pattern, theme) for pattern in bench_themes)


def hidden_pattern(bench_themes: Collection[str], allowed_themes: Collection[str] = ()) -> str:
    """A pattern of the themes that no other theme reads, for Python's `re` and Postgres' `~`.

    Where some themes are allowed, or patterns of themes, all others are among them.
    """
    only = [f"^(?!(?:{'|'.join(map(_glob, allowed_themes))})$)"] if allowed_themes else []
    return "|".join([RESERVED_PATTERN, *(f"^{_glob(pattern)}$" for pattern in bench_themes), *only])


def _bounded(name: str, chars_max: int) -> str:
    """The name, of which a longer one than `chars_max` ends in a hash of itself."""
    if len(name) <= chars_max:
        return name
    return f"{name[: chars_max - 17]}-{hashlib.sha256(name.encode()).hexdigest()[:16]}"


def _glob(pattern: str) -> str:
    """The regular expression for a pattern with `*` and `?`."""
    return re.escape(normalise(pattern)).replace(r"\*", ".*").replace(r"\?", ".")
