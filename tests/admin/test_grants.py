"""migrate --row-security, grants and what doctor says of them."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import not_on_citus
import psycopg
import pytest
from commandline import Outcome, hermes_pgvector
from loopback import Endpoint
from psycopg import sql
from psycopg.conninfo import make_conninfo
from waiting import wait_for

from hermes_memory_pgvector.store.queries import QUERIES
from hermes_memory_pgvector.store.schema import preflight, row_security

pytestmark = not_on_citus.row_security

PERSON = "dm-telegram-0123456789abcdef"


@pytest.fixture
def role(database: str) -> Iterator[str]:
    """A role that may connect and nothing else."""
    name = f"hermes_cli_{uuid.uuid4().hex[:8]}"
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE ROLE {} LOGIN").format(sql.Identifier(name)))
        yield name
        connection.execute(sql.SQL("DROP OWNED BY {}").format(sql.Identifier(name)))
        connection.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(name)))


@pytest.fixture
def run(
    tmp_path: Path, database: str, role: str, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Outcome]:
    """Run a command for a home whose agents have a role of their own."""
    values = {
        "DSN": make_conninfo(database, user=role), "ADMIN_DSN": database, "EMBED_URL": endpoint.url, "EMBED_MODEL": "m"
    }  # fmt: skip
    for name, value in values.items():
        monkeypatch.setenv(f"HERMES_PGVECTOR_{name}", value)
    return lambda *arguments: hermes_pgvector("--home", str(tmp_path), *arguments)


def granted(run: Callable[..., Outcome]) -> list[tuple[str, bool]]:
    return [(grant["pattern"], grant["admitted"]) for grant in run("grants", "list", "--json").document]


def check(run: Callable[..., Outcome]) -> tuple[str, str, str]:
    checks = {check["name"]: check for check in run("doctor", "--json").document["checks"]}
    return checks["row security"]["verdict"], checks["row security"]["found"], checks["row security"]["remedy"]


def test_row_security_is_turned_on_with_grants_that_need_nothing_more(
    run: Callable[..., Outcome], database: str, role: str
) -> None:
    with psycopg.connect(database) as connection:
        connection.execute("insert into memory_agents (agent_identity) values (%s), ('ops')", [PERSON])
    assert run("migrate", "--runtime-role", role).code == 0
    assert check(run) == ("ok", "off: each login sees all themes", "")
    assert "row security is off" in run("grants", "list").err
    outcome = run("migrate", "--runtime-role", role, "--row-security", "--json")
    assert (outcome.code, outcome.document["row_security"]) == (0, True)
    assert f"role {role} has 4 new grants" in outcome.err
    assert granted(run) == [("*", False), ("dm-*", False), ("group-*", False), (PERSON, True)]
    assert check(run) == ("ok", f"on: {role} sees the themes that its grants hold", "")
    # Again, nothing is changed, also for a role that has other grants by now.
    assert run("grants", "remove", role, "*").code == 0
    assert "new grant" not in run("migrate", "--runtime-role", role, "--row-security").err
    assert granted(run)[0] == ("dm-*", False)
    assert run("status").code == 0
    outcome = run("migrate", "--no-row-security", "--json")
    assert (outcome.code, outcome.document["row_security"]) == (0, False)
    assert granted(run)[0] == ("dm-*", False)


def test_another_run_grants_the_persons_that_an_administrator_has_imported(
    run: Callable[..., Outcome], tmp_path: Path, database: str, role: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    secure = ("migrate", "--runtime-role", role, "--row-security")
    with psycopg.connect(database) as connection:
        connection.execute(
            "insert into memory_entries (agent_identity, target, content) values (%s, 'memory', 'likes tea')", [PERSON]
        )
    with monkeypatch.context() as patched:
        patched.setenv("HERMES_PGVECTOR_DSN", database)
        archive = str(tmp_path / "archive")
        assert run("export", archive).code == 0
        with psycopg.connect(database) as connection:
            connection.execute("truncate memory_entries, memory_history cascade")
        assert run(*secure).code == 0
        assert run("import", archive).code == 0
    assert (PERSON, True) not in granted(run)
    assert f"role {role} has 1 new grant" in run(*secure).err
    assert (PERSON, True) in granted(run)
    assert "likes tea" in run("list", "--theme", PERSON).out


def test_what_an_agent_stores_while_row_security_is_turned_on_is_not_refused(
    run: Callable[..., Outcome], database: str, role: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("migrate", "--runtime-role", role).code == 0
    grant, stored = row_security.grant_defaults, []

    def store() -> None:
        with psycopg.connect(make_conninfo(database, user=role)) as agent:
            agent.execute("insert into conversations (agent_identity, role, content) values ('ops', 'user', 'a')")

    def grant_slowly(*arguments: Any) -> int:
        stored.append(pool.submit(store))
        with psycopg.connect(database, autocommit=True) as other:
            wait_for(lambda: stored[0].done() or other.execute("select 1 from pg_locks where not granted").fetchone())
        return grant(*arguments)

    monkeypatch.setattr(row_security, "grant_defaults", grant_slowly)
    with ThreadPoolExecutor() as pool:
        assert run("migrate", "--runtime-role", role, "--row-security").code == 0
        stored[0].result(20)
    with psycopg.connect(make_conninfo(database, user=role)) as agent:
        assert agent.execute("select content from conversations").fetchall() == [("a",)]


@pytest.mark.parametrize("wanted", ["--row-security", "--no-row-security"])
def test_row_security_waits_for_an_agent_that_stores_events_without_a_deadlock(
    run: Callable[..., Outcome], database: str, role: str, wanted: str
) -> None:
    assert run("migrate", "--runtime-role", role, "--row-security").code == 0
    with (
        psycopg.connect(database, autocommit=True) as owner,
        psycopg.connect(make_conninfo(database, user=role)) as agent,
        ThreadPoolExecutor() as pool,
    ):
        first, *_, last = (name for (name,) in owner.execute("select name::text from memory_themed_tables()"))
        agent.execute(QUERIES["share_links"])
        agent.execute(sql.SQL("lock table {} in row exclusive mode").format(sql.Identifier(last)))
        outcome = pool.submit(run, "migrate", wanted)
        wait_for(lambda: owner.execute("select 1 from pg_locks where not granted").fetchone())
        agent.execute(sql.SQL("lock table {} in row exclusive mode").format(sql.Identifier(first)))
        agent.commit()
        assert outcome.result().code == 0, outcome.result().err


@pytest.mark.parametrize(
    ("wanted", "table"), [("--row-security", "facts"), ("--no-row-security", "facts"),
                          ("--reader-role", "hermes_pgvector_settings")]
)  # fmt: skip
def test_a_table_that_is_read_for_long_does_not_keep_agents_waiting(
    run: Callable[..., Outcome], database: str, role: str, monkeypatch: pytest.MonkeyPatch, wanted: str, table: str
) -> None:
    assert run("migrate", "--runtime-role", role, "--row-security").code == 0
    monkeypatch.setattr(preflight, "LOCK_TIMEOUT_S", 1)
    named = (role,) if wanted == "--reader-role" else ()
    # A dump reads all tables in one transaction.
    with psycopg.connect(database) as dump, ThreadPoolExecutor() as pool:
        dump.execute(f"select from {table}".encode())
        outcome = pool.submit(run, "migrate", wanted, *named)
        deadline = time.monotonic() + 20
        while not outcome.done() and time.monotonic() < deadline:
            time.sleep(0.1)
        dump.rollback()
    assert outcome.result().code == 1
    assert "lock timeout; run the command again" in outcome.result().err
    assert check(run)[0] == "ok"


def test_grants_are_listed_added_and_removed(run: Callable[..., Outcome], role: str) -> None:
    assert run("migrate", "--runtime-role", role, "--row-security").code == 0
    assert run("grants", "add", role, "Billing").out == f"{role} may see billing\n"
    assert "already" in run("grants", "add", role, "billing").out
    assert run("grants", "add", role, "intraday-*").code == 0
    listed = run("grants", "list", role).out
    assert all(name in listed for name in ("billing", "intraday-*", role))
    assert run("grants", "remove", role, "billing").code == 0
    assert run("grants", "remove", role, "billing").code == 3
    assert run("grants", "list", "nobody").out == "no login has a grant\n"
    refused = run("grants", "add", "nobody", "billing")
    assert (refused.code, "; for those with grants: hermes-pgvector " in refused.err) == (2, True)
    for wrong in (
        ["add", role, "a*b"], ["add", role, "a**"], ["add", role, "a?"], ["add", "no_such_role", "a"],
        ["add", role, ""], ["remove", role, " "],
    ):  # fmt: skip
        assert run("grants", *wrong).code == 2, wrong
    assert "list the grants" in run("grants").shown


def test_row_security_and_a_cluster_are_refused_before_anything_is_changed(
    run: Callable[..., Outcome], role: str
) -> None:
    outcome = run("migrate", "--runtime-role", role, "--citus", "--row-security")
    assert outcome.code == 1
    assert "row security does not work on a Citus cluster" in outcome.err
    assert check(run)[1] == "off: each login sees all themes"
    assert run("migrate", "--runtime-role", role, "--row-security").code == 0
    outcome = run("migrate", "--citus")
    assert outcome.code == 1
    assert "migrate --no-row-security" in outcome.err
    # Then it goes on, to a database that has no Citus.
    assert "CREATE EXTENSION citus" in run("migrate", "--citus", "--no-row-security").err


def test_a_group_has_no_grants_because_its_members_would_not_have_them(
    run: Callable[..., Outcome], database: str, role: str
) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(sql.SQL("ALTER ROLE {} NOLOGIN").format(sql.Identifier(role)))
    for named in ("--runtime-role", "--reader-role"):
        outcome = run("migrate", named, role, "--row-security")
        assert outcome.code == 1
        assert f"role {role} cannot log in" in outcome.err
    outcome = run("migrate", "--runtime-role", role, "--json")
    assert (outcome.code, outcome.document["row_security"]) == (0, False)
    outcome = run("grants", "add", role, "billing")
    assert outcome.code == 2
    assert f"role '{role}' cannot log in" in outcome.err
    assert granted(run) == []


def test_the_list_shows_each_pattern_as_it_was_granted(run: Callable[..., Outcome], role: str) -> None:
    for pattern in ("*", "**", "dm-*", "billing"):
        assert run("grants", "add", role, pattern).code == 0
    shown = [line.split()[-1] for line in run("grants", "list", role).out.splitlines()[1:]]
    assert sorted(shown) == ["*", "**", "billing", "dm-*"]


@pytest.mark.parametrize("arguments", [("list",), ("add", "billing"), ("remove", "billing")], ids=" ".join)
def test_the_role_of_agents_is_told_to_name_an_administrator(
    run: Callable[..., Outcome], database: str, role: str, arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("migrate", "--runtime-role", role).code == 0
    monkeypatch.delenv("HERMES_PGVECTOR_ADMIN_DSN")
    action, *patterns = arguments
    outcome = run("grants", action, role, *patterns)
    assert outcome.code == 1
    assert "run it as an administrator: --dsn postgresql://ADMIN@HOST/DATABASE" in outcome.err
    assert "migrate --dsn" not in outcome.err


def test_migrate_names_each_login_that_sees_nothing(run: Callable[..., Outcome], role: str) -> None:
    told = f"role {role} has no grants, so it sees and stores nothing"
    assert "no grants" not in run("migrate", "--row-security").err
    outcome = run("migrate", "--runtime-role", role)
    assert outcome.code == 0
    assert told in outcome.err
    # Also one that is not named.
    assert told in run("migrate").err
    assert "no grants" not in run("migrate", "--no-row-security").err
    assert told in run("migrate", "--row-security").err
    assert run("grants", "add", role, "*").code == 0
    assert "no grants" not in run("migrate", "--runtime-role", role).err


def test_doctor_names_each_flaw_with_its_remedy(run: Callable[..., Outcome], database: str, role: str) -> None:
    assert run("migrate", "--runtime-role", role, "--row-security").code == 0
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("alter table facts no force row level security")
    verdict, found, remedy = check(run)
    assert verdict == "problem"
    assert found.endswith("tables without a policy that is enabled and forced: facts")
    assert remedy.endswith(f"--runtime-role {role} --row-security")
    assert run("migrate", "--row-security").code == 0
    assert check(run)[0] == "ok"


def test_a_reader_sees_what_is_granted(run: Callable[..., Outcome], database: str, role: str) -> None:
    with psycopg.connect(database) as connection:
        connection.execute("insert into conversations (agent_identity, role, content) values"
                           " (%s, 'user', 'a'), ('ops', 'user', 'b')", [PERSON])  # fmt: skip
    assert run("migrate", "--reader-role", role, "--row-security").code == 0
    assert granted(run) == [("*", False)]
    with psycopg.connect(make_conninfo(database, user=role)) as connection:
        assert connection.execute("select content from conversations").fetchall() == [("b",)]
        found = "select id from memory_rows_with_words('turns', 'a', null, 'ops', '^$', 9, true)"
        assert connection.execute(found).fetchall() == []


def test_the_owner_erases_what_the_login_of_the_home_does_not_see(
    run: Callable[..., Outcome], database: str, role: str
) -> None:
    with psycopg.connect(database) as connection:
        connection.execute("insert into conversations (agent_identity, role, content) values"
                           " ('secret', 'user', 'a'), ('ops', 'user', 'b')")  # fmt: skip
    assert run("grants", "add", role, "ops").code == 0
    assert run("migrate", "--runtime-role", role, "--row-security").code == 0
    outcome = run("erase", "--theme", "secret", "--yes", "--json")
    assert outcome.code in (0, 3)
    with psycopg.connect(database) as connection:
        assert connection.execute("select content from conversations").fetchall() == [("b",)]
        assert connection.execute("select agent_identity from memory_erasures").fetchone() == ("secret",)
