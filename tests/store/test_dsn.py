"""Connection strings: which are refused, and that nothing shows a password."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import pytest
from commandline import hermes_pgvector
from hypothesis import example, given
from hypothesis import strategies as st

from hermes_memory_pgvector.errors import SettingsError
from hermes_memory_pgvector.store.connection.dsn import _PLAIN, check_dsn, describe, parsed

# What tears a URL apart stands often beside what passes for a port, a parameter, a host.
PIECES = st.sampled_from(["/", "@", ":", "?", "#", "%", "%41", "%cd", ",", "[", "]", "12", "user=", "dbname=", "host="])
PASSWORDS = st.lists(PIECES | st.text(max_size=3), max_size=8).map("".join)


def told(dsn: str) -> str:
    """What is shown of a connection string, or said when it is refused."""
    try:
        check_dsn(dsn)
        return describe(dsn)
    except SettingsError as error:
        return str(error)


@given(PASSWORDS)
@example("\0")
@example("12/\0")
def test_no_part_of_any_password_is_shown(password: str) -> None:
    shown = told(f"postgresql://hermes:{password}@127.0.0.1:5432/memory")
    assert shown in ("hermes@127.0.0.1:5432/memory", told("postgresql://no:address"))


@given(st.from_regex(_PLAIN, fullmatch=True) | PASSWORDS | PASSWORDS.map(lambda text: f"postgres://{text}"))
@example("host='a' port=5432 options='-c x=y'")
def test_agents_accept_a_string_when_libpq_parses_it_and_it_has_no_options(dsn: str) -> None:
    accepted = True
    try:
        check_dsn(dsn)
    except SettingsError:
        accepted = False
    try:
        parses = not parsed(dsn).get("options")
    except SettingsError:
        parses = False
    assert accepted == parses


@pytest.mark.parametrize("password", ["S3cr3t/Pass", "S3cr3t@Pass", "123/Pass", "S3cr3t%Pass", "12/ab?user=Pass"])
@pytest.mark.parametrize("command", [["status"], ["doctor"], ["search", "x"], ["server", "start"]])
def test_a_command_asks_to_percent_encode_a_password_that_breaks_the_url(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str], password: str
) -> None:
    monkeypatch.setenv("HERMES_PGVECTOR_DSN", f"postgresql://hermes:{password}@127.0.0.1:9/memory")
    done = hermes_pgvector("--home", str(tmp_path), *command)
    assert done.code == 1
    assert "percent-encode" in done.shown
    assert "S3cr3t" not in done.shown
    assert "Pass" not in done.shown


def test_the_error_of_an_administrators_dsn_names_its_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torn = "postgresql://hermes:S3cr3t@Pass@127.0.0.1:9/memory"
    given = hermes_pgvector("--home", str(tmp_path), "migrate", "--dsn", torn)
    monkeypatch.setenv("HERMES_PGVECTOR_ADMIN_DSN", torn)
    named = hermes_pgvector("--home", str(tmp_path), "tune")
    assert (given.code, named.code) == (2, 1)
    assert "--dsn is not a connection string" in given.err
    assert "HERMES_PGVECTOR_ADMIN_DSN is not a connection string" in named.err
    assert "Pass" not in given.shown + named.shown


@pytest.mark.parametrize(
    ("dsn", "shown"),
    [
        ("postgresql://me:a%2Fb%40c@host/db", "me@host:5432/db"),
        ("postgresql://me:p@[::1]:6000/db", "me@::1:6000/db"),
        ("postgres://me@one:1,two:2/db", "me@one,two:1,2/db"),
        ("postgresql://me@%2Frun%2Fpg/db", "me@/run/pg:5432/db"),
        ("postgresql:///db?host=/run/pg", "@/run/pg:5432/db"),
        ("postgresql://me%40azure:p@host/db", "me@azure@host:5432/db"),
        ("host=/run/pg user=me@azure password='a/b@c'", "me@azure@/run/pg:5432/"),
    ],
)
def test_dsns_that_libpq_parses_unambiguously_are_accepted(dsn: str, shown: str) -> None:
    check_dsn(dsn)
    assert describe(dsn) == shown


@pytest.mark.parametrize(
    "name",
    [
        "postgresql://u:hunter2@h2/x",
        "postgres://u:hunter2@h2/x",
        "POSTGRES://u:hunter2@h2",
        "'host=h2 password=hunter2'",
    ],
)
def test_a_connection_string_in_place_of_a_database_is_not_shown(name: str) -> None:
    assert describe(f"host=h user=me dbname={name}") == "me@h:5432/…"
    assert "hunter2" not in told(f"postgresql://me@h/x?dbname={quote(name.strip(chr(39)), safe='')}")
