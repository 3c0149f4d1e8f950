"""Postgres: the only place that speaks to a driver or a server."""

from __future__ import annotations
