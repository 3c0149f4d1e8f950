"""The version of the distribution."""

from __future__ import annotations

__version__ = "0.1.0"
