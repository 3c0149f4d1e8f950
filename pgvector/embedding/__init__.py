"""Embedding endpoints and the bundled model.

`build` makes the embedder that the settings ask for; `noise_floor` measures what a model calls unrelated. Importing
this package loads neither an HTTP client nor a model.
"""

from __future__ import annotations

from .breaker import Breaker
from .calibration import noise_floor
from .factory import build, bundled_available
from .vectors import TextRefused

__all__ = ["Breaker", "TextRefused", "build", "bundled_available", "noise_floor"]
