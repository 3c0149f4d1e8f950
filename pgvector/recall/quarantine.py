"""Rows that are held back until an operator has released them: what looks like an attack, or is from outside. Pure.

A release is in the metadata of a row, as the digest of the text that was released: another text is not released, and
exports, imports and renamed themes keep it. The MCP server imports this at its start, so the detectors are imported by
a look.
"""

from __future__ import annotations

import hashlib

from ..hosts.provenance import is_outside, is_trusted
from ..model import Hit, Metadata, Outside

RELEASED = "released"
MARK_CHARS = 32


def mark_of(content: str) -> str:
    """The mark of a released text."""
    return hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()[:MARK_CHARS]


def is_released(content: str, metadata: Metadata) -> bool:
    """Whether an operator has released a row with this text."""
    return RELEASED in metadata and metadata[RELEASED] == mark_of(content)


def is_kept_back(role: str, content: str, metadata: Metadata, outside: Outside) -> bool:
    """Whether `outside` does not allow rows of this source, and no operator has released this one."""
    return not is_trusted(role, metadata, outside) and not is_released(content, metadata)


def suspicions(hit: Hit) -> tuple[str, ...]:
    """Why a row looks like an attack; empty when it does not, or is released."""
    return () if is_released(hit.content, hit.metadata) else reasons(hit.role, hit.content, hit.metadata)


def reasons(role: str, content: str, metadata: Metadata) -> tuple[str, ...]:
    """Why a row looks like an attack, whether or not it is released."""
    from ..text import suspicion

    return suspicion.reasons(content, outside=is_outside(role, metadata))
