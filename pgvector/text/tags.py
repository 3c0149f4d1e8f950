"""Tags of entries: their normal form and their bounds. Pure."""

from __future__ import annotations

from collections.abc import Collection

from ..errors import BadArgument
from .cleaning import label

TAGS_MAX = 16
TAG_CHARS_MAX = 64
# Longer ones, and more of them, are refused before they are normalized.
_RAW_CHARS_MAX = 4 * TAG_CHARS_MAX
_RAW_TAGS_MAX = 16 * TAGS_MAX


def normalised(tags: Collection[str], name: str = "tags") -> tuple[str, ...]:
    """The tags in their normal form, sorted, each once. Raises BadArgument that names the argument `name`.

    Case, width, hidden characters and leading `#`, `@` and `-` make no difference; white space becomes `-`.
    """
    if len(tags) > _RAW_TAGS_MAX:
        raise BadArgument(f"{name} has {len(tags)} tags; there may be {TAGS_MAX}")
    found = sorted({_normalised(tag, name) for tag in tags})
    if len(found) > TAGS_MAX:
        raise BadArgument(f"{name} has {len(found)} tags; there may be {TAGS_MAX}")
    return tuple(found)


def _normalised(tag: str, name: str) -> str:
    normal = label(label(tag[: _RAW_CHARS_MAX + 1]).lstrip("#@-"))
    if not normal:
        raise BadArgument(f"{name} has the tag {tag[:40]!r}, which has nothing to see; leave it out")
    if len(tag) > _RAW_CHARS_MAX or len(normal) > TAG_CHARS_MAX:
        raise BadArgument(f"{name} has a tag of {len(tag)} characters, {tag[:40]!r}…; it may have {TAG_CHARS_MAX}")
    return normal
