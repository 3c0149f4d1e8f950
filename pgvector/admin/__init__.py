"""One module per job of an operator."""

from __future__ import annotations
