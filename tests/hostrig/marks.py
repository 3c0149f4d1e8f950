"""Marks for scenario modules."""

from __future__ import annotations

import os

import pytest

_SERVER = "dsn" if os.environ.get("PG_TEST_DSN") else os.environ.get("PG_TEST_VERSIONS", "18").split(",")[0]

# What a host does is independent of the version of Postgres.
one_server = pytest.mark.parametrize("server", [_SERVER], indirect=True)
