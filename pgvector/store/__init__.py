"""Postgres: the only room with SQL and the driver."""

from __future__ import annotations
