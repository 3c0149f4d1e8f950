"""Marks for scenario modules."""

from __future__ import annotations

import os

import pytest
from logins import with_row_security

_SERVER = "dsn" if os.environ.get("PG_TEST_DSN") else os.environ.get("PG_TEST_VERSIONS", "18").split(",")[0]

# What a host does is independent of the version of Postgres.
one_server = pytest.mark.parametrize("server", [_SERVER], indirect=True)

# What Postgres shows to a login is independent of the host.
with_and_without_row_security = with_row_security(pytest.mark.main_host("b"))
