"""reembed: change the embedding model while agents go on."""

from __future__ import annotations
