"""Normalizes text, and makes it and metadata storable: no NUL, lone surrogate or recalled block, and bounded."""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections.abc import Mapping, Set
from typing import Any

# The scripts of East Asia begin here. Their words have no spaces between them or, in Korean, have endings.
UNSPACED_FROM = "\u2e80"
METADATA_BYTES_MAX = 65_536
METADATA_DEPTH_MAX = 6
METADATA_ITEMS_MAX = 1_000
# Spaces are bounded: an unbounded run of them is matched in quadratic time.
_FENCE = re.compile(r"<\s{0,9}(/?)\s{0,9}memory-context\s{0,9}>", re.IGNORECASE)
NORMALIZED_CHARS_MAX = 1000
# Characters compose across no space. A thousand characters without a space are cut where they end.
_SLICE = re.compile(rf".{{1,{NORMALIZED_CHARS_MAX}}}(?!\S)|.{{1,{NORMALIZED_CHARS_MAX}}}", re.DOTALL)
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn"})
_CUT_MARK = "… [cut: {} characters more]"


def clean(text: str) -> str:
    """The text as Postgres accepts it: no NUL, U+FFFD for a lone surrogate, line feeds at line ends.

    A surrogate pair becomes its character.
    """
    text = text.replace("\0", "").replace("\r\n", "\n").replace("\r", "\n")
    try:
        text.encode()
    except UnicodeEncodeError:
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def compatible(text: str) -> str:
    """The text in NFKC, slice by slice: Python sorts a run of combining marks in quadratic time."""
    if len(text) <= NORMALIZED_CHARS_MAX:
        return unicodedata.normalize("NFKC", text)
    return "".join(unicodedata.normalize("NFKC", found) for found in _SLICE.findall(text))


def label(text: str) -> str:
    """A name in its normal form: NFKC, case-folded, no hidden characters, `-` for white space. Idempotent."""
    previous = None
    # Case folding can undo NFKC. A second round is enough for all but contrived names.
    for _ in range(4):
        if text == previous:
            break
        previous = text
        folded = compatible(compatible(text).casefold())
        seen = (c for c in folded if c.isspace() or unicodedata.category(c) not in _HIDDEN)
        text = "-".join("".join(seen).split())
    return text


def cut(text: str, max_chars: int) -> str:
    """The text, or its beginning and the number of characters that are missing; at most `max_chars` characters."""
    if len(text) <= max_chars:
        return text
    room = max(0, max_chars - len(_CUT_MARK.format(len(text))))
    return (text[:room] + _CUT_MARK.format(len(text) - room))[:max_chars]


def clean_entry(text: str, max_chars: int) -> str:
    """What is stored of an entry, without space around it."""
    return cut(clean(text).strip(), max_chars)


def without_recalled(text: str) -> str:
    """The text without `<memory-context>…</memory-context>`: recalled memories are not stored again.

    A block that is never closed is part of the message and stays.
    """
    for _ in range(4):
        stripped = _outside_fences(text)
        if stripped == text:
            break
        text = stripped.strip()
    return text


def _outside_fences(text: str) -> str:
    kept: list[str] = []
    end, opened = 0, -1
    for fence in _FENCE.finditer(text):
        if fence.group(1):
            if opened >= 0:
                kept.append(text[end:opened])
                end, opened = fence.end(), -1
        elif opened < 0:
            opened = fence.start()
    kept.append(text[end:])
    return "".join(kept)


def clean_metadata(metadata: Mapping[Any, Any]) -> dict[str, Any]:
    """Metadata for a jsonb column: plain JSON of bounded depth and count, with null for NaN and infinities.

    Metadata that is still larger than `METADATA_BYTES_MAX` is replaced by a note of its size.
    """
    plain = _json_value(metadata, METADATA_DEPTH_MAX, [METADATA_ITEMS_MAX])
    size_bytes = len(json.dumps(plain, ensure_ascii=False).encode())
    if size_bytes > METADATA_BYTES_MAX:
        return {"dropped": "metadata too large", "bytes": size_bytes}
    return plain if isinstance(plain, dict) else {}


def _json_value(value: Any, depth: int, items_left: list[int]) -> Any:
    # `items_left` is shared by all calls: it bounds the work also for values that contain themselves.
    items_left[0] -= 1
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return cut(clean(str(value)), METADATA_BYTES_MAX)
    if isinstance(value, int):
        return int(value) if value.bit_length() < 64 else hex(value)[:100]
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if depth <= 0 or items_left[0] <= 0:
        return "…" if isinstance(value, Mapping | list | tuple | Set) else _as_text(value)
    if isinstance(value, Mapping):
        pairs = ((_key(key), item) for key, item in value.items() if items_left[0] > 0)
        return {key: _json_value(item, depth - 1, items_left) for key, item in pairs}
    if isinstance(value, list | tuple | Set):
        members = sorted(value, key=_as_text) if isinstance(value, Set) else value
        return [_json_value(item, depth - 1, items_left) for item in members if items_left[0] > 0]
    return _as_text(value)


def _key(key: Any) -> str:
    return cut(clean(key) if isinstance(key, str) else _as_text(key), 200)


def _as_text(value: Any) -> str:
    try:
        return cut(clean(str(value)), 2_000)
    except (TypeError, ValueError, AttributeError, RuntimeError):
        return f"({type(value).__name__})"
