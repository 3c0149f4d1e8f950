"""Postgres: the only folder with SQL and the driver."""

from __future__ import annotations
