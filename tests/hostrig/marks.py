"""Marks for modules of scenarios."""

from __future__ import annotations

import os

import pytest

_SERVER = "dsn" if os.environ.get("PG_TEST_DSN") else os.environ.get("PG_TEST_VERSIONS", "18").split(",")[0]

# The hosts have nothing to do with the version of Postgres: one is enough.
one_server = pytest.mark.parametrize("server", [_SERVER], indirect=True)
