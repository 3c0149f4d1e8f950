"""The private Postgres server of a home."""

from __future__ import annotations
