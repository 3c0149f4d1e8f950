"""Marks for scenario modules."""

from __future__ import annotations

import os

import not_on_citus
import pytest

_SERVER = "dsn" if os.environ.get("PG_TEST_DSN") else os.environ.get("PG_TEST_VERSIONS", "18").split(",")[0]

# What a host does is independent of the version of Postgres.
one_server = pytest.mark.parametrize("server", [_SERVER], indirect=True)

# What Postgres shows to a login is independent of the host.
with_and_without_row_security = pytest.mark.parametrize(
    "agents_database",
    [
        pytest.param("as usual", id=""),
        pytest.param("row security", id="row-security", marks=[not_on_citus.row_security, pytest.mark.main_host("b")]),
    ],
    indirect=True,
)
