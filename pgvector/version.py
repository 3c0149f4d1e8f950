"""The version of the distribution."""

from __future__ import annotations

__version__ = "2.1.0.dev0"
