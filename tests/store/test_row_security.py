"""Row security: what logins with grants see and write, in SQL and through the store. Postgres refuses the rest."""

from __future__ import annotations

import subprocess
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import not_on_citus
import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import dict_row
from servers import Server
from waiting import wait_for

from hermes_memory_pgvector.errors import BadEvent
from hermes_memory_pgvector.model import Add, FactWritten, RecallRequest, Remove, Replace, Scope, TurnTaken
from hermes_memory_pgvector.recall.recaller import Recaller
from hermes_memory_pgvector.settings import Settings
from hermes_memory_pgvector.store import moves, person_links, renames, rows, second_column, upkeep
from hermes_memory_pgvector.store.connection.database import Database
from hermes_memory_pgvector.store.passages import prepare
from hermes_memory_pgvector.store.schema import migrations, row_security, verification
from hermes_memory_pgvector.store.schema.preflight import admin_connection
from hermes_memory_pgvector.store.schema.verification import Origin

pytestmark = not_on_citus.row_security

AT = datetime(2026, 3, 4, tzinfo=UTC)
PERSON, ROOM = "dm-telegram-0123456789abcdef", "group-telegram-0123456789abcdef"


def execute(dsn: str, *statements: str) -> list[tuple[Any, ...]]:
    """Execute statements in one transaction; returns the rows of the last one."""
    with psycopg.connect(dsn) as connection:
        cursor = connection.cursor()
        for statement in statements:
            cursor.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


@dataclass
class Secured:
    """A database with row security, and its logins."""

    server: Server
    owner: str
    logins: list[str] = field(default_factory=list)

    def login(self, *patterns: str) -> str:
        """The DSN of a new login with these grants."""
        name = f"hermes_rls_{uuid.uuid4().hex[:12]}"
        execute(self.server.dsn, f"CREATE ROLE {name} LOGIN PASSWORD 'for-tests'")
        self.logins.append(name)
        migrations.migrate(self.owner, runtime_role=name)
        for pattern in patterns:
            execute(self.owner, f"insert into memory_theme_grants (login, pattern) values ('{name}', '{pattern}')")
        return make_conninfo(self.owner, user=name, password="for-tests")


@pytest.fixture(params=["superuser", "plain owner"])
def secured(server: Server, make_database: Callable[..., str], request: pytest.FixtureRequest) -> Iterator[Secured]:
    """A database whose tables are owned by a superuser, or by a role that is none."""
    found = Secured(server, make_database(384 if request.param == "superuser" else None))
    if request.param != "superuser":
        admin, name = found.owner, f"hermes_rls_{uuid.uuid4().hex[:12]}"
        execute(admin, f"CREATE ROLE {name} LOGIN PASSWORD 'for-tests'", "CREATE EXTENSION vector",
                f"GRANT CREATE, USAGE ON SCHEMA public TO {name}")  # fmt: skip
        found.logins.append(name)
        found.owner = make_conninfo(admin, user=name, password="for-tests")
        migrations.migrate(found.owner, dimensions=384)
    with psycopg.connect(found.owner, autocommit=True) as connection:
        row_security.turn_on(connection)
    yield found
    admin = make_conninfo(server.dsn, dbname=conninfo_to_dict(found.owner)["dbname"])
    for name in reversed(found.logins):
        execute(admin, f"DROP OWNED BY {name} CASCADE", f"DROP ROLE {name}")


def test_each_table_with_themes_has_a_policy(secured: Secured) -> None:
    themed = execute(
        secured.owner,
        "select attrelid::regclass::text from pg_attribute where attname = 'agent_identity' and attrelid in"
        " (select oid from pg_class where relkind = 'r' and relnamespace = 'public'::regnamespace) order by 1",
    )
    found = execute(secured.owner, "select name::text from memory_themed_tables() order by 1")
    assert found == themed
    assert {name for (name,) in found} <= set(verification.TABLES)
    agent = secured.login("billing")
    with psycopg.connect(agent, autocommit=True) as connection:
        assert row_security.flaws(connection) == []
    with psycopg.connect(secured.owner, autocommit=True, row_factory=dict_row) as connection:
        assert row_security.flaws(connection)


# A row of a theme for each table, by the name of the table; its columns of themes are `$`.
VECTOR = "array_fill(1, array[384])::vector"
ROWS = {
    "memory_entries": "(agent_identity, id, target, content) values ($, 1, 'memory', 'about ' || $)",
    "conversations": "(agent_identity, id, session_id, role, content, search)"
    " values ($, 1, 's', 'user', 'about ' || $, to_tsvector('english', 'meadow'))",
    "memory_entry_pieces": f"(agent_identity, row_id, piece, embedding) values ($, 1, 0, {VECTOR})",
    "conversation_pieces": f"(agent_identity, row_id, piece, embedding) values ($, 1, 0, {VECTOR})",
    "memory_events": "(agent_identity, event_id) values ($, '00000000-0000-0000-0000-000000000001')",
    "memory_tombstones": "(agent_identity, home, target, content_key, at) values ($, 'h', 'memory', 'k', now())",
    "memory_withdrawals": "(agent_identity, session_id, role, content_key, at, standing, sessions)"
    " values ($, 's', 'user', 'k', now(), 0, '{s}')",
    "memory_history": "(agent_identity, entry_id, target, content, how, gone_at, created_at, updated_at)"
    " values ($, 1, 'memory', 'was ' || $, 'removed', now() - interval '9 days', now(), now())",
    "memory_agents": "(agent_identity) values ($)",
    "memory_agent_edges": "(agent_identity) values ($)",
    "memory_words": "(agent_identity, kind, word, rows) values ($, 'turns', 'meadow', 7)",
    "memory_person_links": "(agent_identity, person) values ($, 'dm-person-0123456789abcdef')",
    "memory_erasures": "(agent_identity, key, kind) values ($, 'k', 'theme')",
    "memory_pruned_turns": "(agent_identity, session_id, content_key, times) values ($, 's', 'k', 1)",
    "memory_renames": "(agent_identity, theme) values ($, $ || '-new')",
    "facts": "(agent_identity, id, kind, target, content) values ($, 1, 'V', 'x', 'about ' || $)",
    "fact_pieces": f"(agent_identity, row_id, piece, embedding) values ($, 1, 0, {VECTOR})",
    "fact_scopes": "(agent_identity, label) values ($, 'l')",
}  # fmt: skip


def stock(dsn: str, *themes: str) -> None:
    """Store a row of each theme in each table."""
    order = sorted(ROWS, key=lambda table: table.endswith("_pieces"))
    statements = [f"insert into {name} {ROWS[name].replace('$', repr(theme))}" for theme in themes for name in order]
    execute(dsn, *statements)


def seen(dsn: str, table: str, *before: str) -> list[str]:
    return [theme for (theme,) in execute(dsn, *before, f"select distinct agent_identity from {table} order by 1")]


def refused(dsn: str, *statements: str) -> bool:
    try:
        execute(dsn, *statements)
    except psycopg.errors.InsufficientPrivilege as error:
        return error.diag.source_function == "ExecWithCheckOptions"
    return False


def test_a_login_sees_and_changes_rows_of_its_themes_only(secured: Secured) -> None:
    stock(secured.owner, "mine", "other")
    agent = secured.login("mine", "mine-new", "dm-person-0123456789abcdef")
    assert set(ROWS) == {name for (name,) in execute(secured.owner, "select name::text from memory_themed_tables()")}
    for table in ROWS:
        before = execute(secured.owner, f"select t.*, xmin from {table} t where agent_identity = 'other' order by 1")
        assert before
        assert seen(agent, table) == ["mine"], table
        assert execute(agent, f"select count(*) from {table} where agent_identity = 'other'") == [(0,)]
        if table != "memory_history":
            assert refused(agent, f"update {table} set agent_identity = 'other-2'"), table
            execute(agent, f"update {table} set agent_identity = agent_identity")
        added = ROWS[table].replace("$", "'other'")
        assert refused(agent, f"insert into {table} {added}"), table
        assert refused(agent, f"insert into {table} {added} on conflict do nothing"), table
        assert before == execute(
            secured.owner, f"select t.*, xmin from {table} t where agent_identity = 'other' order by 1"
        )
    for table in sorted(ROWS, key=lambda table: not table.endswith("_pieces")):
        if table != "memory_history":
            execute(agent, f"delete from {table}")
            assert seen(secured.owner, table) == ["other"], table
    assert [len(seen(secured.owner, table)) for table in ROWS if table != "memory_history"] == [1] * (len(ROWS) - 1)


@pytest.mark.parametrize(
    "setting",
    [
        "set hermes_pgvector.themes = 'other'",
        "set hermes_pgvector.themes = E'mine\\nother\\n*\\n**'",
        "set hermes_pgvector.themes = '*'",
        "set local hermes_pgvector.themes = '**'",
        "set hermes_pgvector.themes = ''",
        "reset hermes_pgvector.themes",
        "reset all",
        "discard all",
        "set row_security = on",
        "set role none",
        "select set_config('hermes_pgvector.themes', repeat(E'\\n', 100000), false)",
        "set search_path = pg_temp; create temp table memory_theme_grants (login name, pattern text);"
        " insert into memory_theme_grants values (session_user, '**'); set search_path = pg_temp, public",
        "create function pg_temp.memory_themes() returns setof text language sql as $$ select 'other' $$;"
        " set search_path = pg_temp, public",
    ],
)
def test_no_setting_of_a_session_widens_what_it_sees(secured: Secured, setting: str) -> None:
    stock(secured.owner, "mine", "other")
    agent = secured.login("mine")
    with psycopg.connect(agent, autocommit=True) as connection:
        for statement in setting.split(";"):
            connection.execute(statement.encode())
        for table in ("conversations", "memory_entries"):
            found = {theme for (theme,) in connection.execute(f"select agent_identity from public.{table}".encode())}
            assert found <= {"mine"}
        rows = "select agent_identity from public.memory_rows_with_words('turns', 'meadow', null, '', '^$', 9, true)"
        assert {theme for (theme,) in connection.execute(rows.encode())} <= {"mine"}
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="row-level"):
        execute(agent, "set row_security = off", "select from conversations")


@pytest.mark.parametrize(
    ("patterns", "held"),
    [
        (["*"], {"billing", "intraday-1", "intraday-2", "dm-notes", ""}),
        (["**"], {"billing", "intraday-1", "intraday-2", "dm-notes", PERSON, ROOM, ""}),
        (["intraday-*"], {"intraday-1", "intraday-2"}),
        (["intraday-1", "billing", PERSON], {"intraday-1", "billing", PERSON}),
        (["dm-*", "g*"], {"dm-notes"}),
        (["intraday-1*", "billin"], {"intraday-1"}),
        ([], set()),
    ],
)
def test_patterns_hold_persons_only_where_they_say_so(secured: Secured, patterns: list[str], held: set[str]) -> None:
    themes = ["billing", "intraday-1", "intraday-2", "dm-notes", PERSON, ROOM]
    for theme in (*themes, ""):
        execute(secured.owner, f"insert into memory_words values ('{theme}', 'turns', 'w', 1)")
    agent = secured.login(*patterns)
    assert set(seen(agent, "memory_words")) == held
    for theme in (*themes, ""):
        assert execute(agent, f"select memory_theme_granted('{theme}')") == [(theme in held,)]
    narrowed = "set local hermes_pgvector.themes = E'billing\\nintraday-1'"
    assert set(seen(agent, "memory_words", narrowed)) == held & {"billing", "intraday-1"}
    assert set(seen(agent, "memory_words", "set local hermes_pgvector.themes = '*'")) == {
        theme for theme in held if theme not in (PERSON, ROOM) and any(pattern.endswith("*") for pattern in patterns)
    }


def test_functions_with_the_rights_of_the_owner_keep_to_the_grants(secured: Secured) -> None:
    stock(secured.owner, "mine", "other")
    agent = secured.login("mine")
    before = execute(secured.owner, "select * from memory_history order by agent_identity")
    execute(
        agent,
        "select complete_memory_history('other', 1, 'moved', '', now(), null)",
        "select settle_memory_history('other', 'mine', '{1}'), settle_memory_history('mine', 'other', '{1}')",
        "select move_memory_history('other', 'mine', '', '{}', 9), move_memory_history('mine', 'other', '', '{}', 9)",
        "select forget_memory_trial('other', 'was other')",
    )
    assert execute(secured.owner, "select * from memory_history order by agent_identity") == before
    execute(secured.owner, "update memory_history set noted_at = now() - interval '25 hours'")
    assert len(execute(agent, "select prune_memory_history(1)")) == 1
    assert seen(secured.owner, "memory_history") == ["other"]


@pytest.mark.parametrize(
    ("kind", "table"), [("turns", "conversations"), ("entries", "memory_entries"), ("facts", "facts")]
)
def test_words_are_found_by_their_index_in_granted_themes_only(secured: Secured, kind: str, table: str) -> None:
    stock(secured.owner, "mine", "other")
    execute(secured.owner, f"update {table} set search = to_tsvector('english', 'meadow')")
    agent = secured.login("mine")
    found = (
        "select agent_identity from"
        " memory_rows_with_words('{kind}', 'meadow', {themes}, 'mine', '{pattern}', 9, {newest})"
    )
    for themes in ("null", "'{mine,other}'"):
        for newest in ("true", "false"):
            asked = found.format(kind=kind, themes=themes, pattern="^$", newest=newest)
            assert execute(agent, asked) == [("mine",)]
            # What the caller gives does not meet the names of other themes.
            hostile = found.format(kind=kind, themes=themes, pattern="(", newest=newest)
            assert execute(agent, hostile) == [("mine",)]
    assert execute(agent, found.format(kind=kind, themes="'{other}'", pattern="^$", newest="true")) == []


def test_entries_are_found_by_their_texts_in_granted_themes_only(secured: Secured) -> None:
    stock(secured.owner, "mine", "other")
    execute(secured.owner, "update memory_entries set content = 'same', home = 'h'")
    agent = secured.login("mine")
    found = "select agent_identity from memory_entries_with_texts(array['same', ''], 'memory', '{}', '{}')"
    assert execute(agent, found.format("mine", "")) == execute(agent, found.format("other", "h")) == [("mine",)]
    assert execute(agent, found.format("other", "")) == []
    assert len(execute(secured.owner, found.format("", "h"))) == 2


def test_a_new_person_belongs_to_the_login_that_meets_it_first(secured: Secured) -> None:
    first, second = secured.login("*", "dm-*"), secured.login("*", "dm-telegram-*", "group-*")
    admit = "select admit_memory_themes(array['{}'])"
    assert execute(first, admit.format(PERSON)) == [(PERSON,)]
    assert execute(first, admit.format(PERSON)) == [(PERSON,)]
    assert execute(second, admit.format(PERSON)) == []
    assert execute(first, admit.format(ROOM)) == []
    assert execute(second, admit.format(ROOM)) == [(ROOM,)]
    assert execute(first, admit.format("billing")) == [("billing",)]
    assert execute(secured.login("billing"), admit.format("secrets")) == []
    assert execute(second, admit.format("dm-slack-0123456789abcdef")) == []
    # Rows of one that nobody has are not given away.
    execute(secured.owner, "delete from memory_theme_grants where admitted")
    execute(secured.owner, f"insert into memory_agents (agent_identity) values ('{PERSON}')")
    assert execute(first, admit.format(PERSON)) == []
    # A reader meets nobody.
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        execute(first, "select * from memory_theme_grants")


def test_two_logins_meet_a_person_at_the_same_time(secured: Secured) -> None:
    logins = [secured.login("dm-*"), secured.login("dm-*")]
    with psycopg.connect(logins[0]) as one, ThreadPoolExecutor() as pool:
        assert one.execute("select admit_memory_themes(array[%s])", [PERSON]).fetchall() == [(PERSON,)]
        other = pool.submit(execute, logins[1], f"select admit_memory_themes(array['{PERSON}'])")
        wait_for(lambda: execute(secured.owner, "select 1 from pg_locks where not granted"))
        one.commit()
        assert other.result() == []


# --- through the store


class Agent:
    """What agents do with the store, as a login."""

    def __init__(self, dsn: str, home: Path) -> None:
        self.database = Database(Settings(dsn=dsn), home)  # type: ignore[arg-type]
        self.recaller = Recaller(self.database, lambda: "words only", self.database._settings)

    def store(self, *events: Any) -> int:
        with self.database.transaction(5, 5) as connection:
            return rows.apply(connection, [prepare(event) for event in events])

    def recalled(self, kind: Any, *themes: str, every: bool = False) -> set[str]:
        scope = Scope(themes[0], None if every else themes)
        request = RecallRequest(query="the meadow", scope=scope, limit=20, budget_s=10)
        return {hit.theme for hit in self.recaller.recall(kind, request).hits}


def said(theme: str, text: str = "the meadow is dry") -> TurnTaken:
    return TurnTaken(theme=theme, home="h", session_id=f"s-{theme}", at=AT, user=text, assistant="Noted, it is.")


@pytest.fixture
def agents(secured: Secured, tmp_path: Path) -> Iterator[Callable[..., Agent]]:
    with ExitStack() as stack:

        def make(*patterns: str) -> Agent:
            agent = Agent(secured.login(*patterns), tmp_path)
            stack.callback(agent.database.close)
            return agent

        yield make


def test_two_logins_store_and_recall_apart(secured: Secured, agents: Callable[..., Agent]) -> None:
    ours, theirs = agents("ops-*", "dm-*"), agents("*", "dm-*")
    add = Add(theme="ops-1", home="h", target="memory", content="the meadow is dry", at=AT)
    fact = FactWritten(theme="ops-1", session_id="s", at=AT, kind="V", target="meadow", content="dry")
    assert ours.store(said("ops-1"), said(PERSON), add, fact) == 4
    assert (
        theirs.store(
            said("billing", "a meadow of invoices"), replace(add, id=str(uuid.uuid4()), theme="billing", home="other")
        )
        == 2
    )
    for kind in ("turns", "entries", "facts"):
        assert ours.recalled(kind, "ops-1", every=True) == {"ops-1"}
        assert ours.recalled(kind, "billing") == set()
    assert ours.recalled("turns", PERSON) == {PERSON}
    assert theirs.recalled("turns", PERSON, "billing") == {"billing"}
    assert theirs.recalled("turns", "billing", every=True) == {"billing", "ops-1"}
    # The same event again, a correction and a removal find what is there.
    assert ours.store(said("ops-2"), Replace(theme="ops-1", home="h", target="memory", previous=add.content,
                                             content="the meadow is wet", at=AT + timedelta(days=1))) == 2  # fmt: skip
    assert ours.store(Remove(theme="ops-1", home="h", target="memory", previous="the meadow is wet")) == 1
    past = execute(secured.owner, "select agent_identity, content, how from memory_history order by id")
    assert past == [("ops-1", add.content, "replaced"), ("ops-1", "the meadow is wet", "removed")]


def test_an_event_of_a_theme_that_is_not_granted_becomes_a_dead_letter(agents: Callable[..., Agent]) -> None:
    ours, theirs = agents("ops-*", "dm-*"), agents("ops-*", "dm-*")
    assert ours.store(said(PERSON)) == 1
    for agent, event in ((ours, said("billing")), (theirs, said(PERSON)), (ours, said(ROOM))):
        with pytest.raises(BadEvent, match="grants"):
            agent.store(event)
    assert ours.recalled("turns", PERSON) == {PERSON}


def test_upkeep_covers_what_a_login_sees(secured: Secured, agents: Callable[..., Agent]) -> None:
    stock(secured.owner, "mine", "other")
    execute(
        secured.owner,
        "update conversations set search = null",
        "update memory_erasures set at = now() - interval '9 years'",
    )
    ours, theirs = agents("mine"), agents("other")
    with ours.database.transaction(5, 5) as one, theirs.database.transaction(5, 5) as other:
        # Each login has leases of its own.
        assert upkeep.claim(one, "words", "a", 60)
        assert upkeep.claim(other, "words", "b", 60)
        upkeep.release(one, "words", "a")
        assert upkeep.add_words(one, 10) == 3
        assert {row.theme for row in upkeep.unembedded(one, 10)} == {"mine"}
        # The count over all themes is for who sees them.
        assert upkeep.count_words(one, 0, "^$")
        assert upkeep.prune_events(one, 1) == 0
    assert seen(secured.owner, "memory_erasures") == ["other"]
    assert execute(secured.owner, "select 1 from memory_words where agent_identity = ''") == []


def test_linked_accounts_and_renamed_themes_need_a_grant_of_both_sides(
    secured: Secured, agents: Callable[..., Agent]
) -> None:
    person, ours = "dm-person-0123456789abcdef", agents("ops-*", "dm-*")
    assert ours.store(said("ops-1")) == 1
    with ours.database.transaction(5, 5) as connection:
        person_links.link(connection, "ops-1", person)
        assert moves.move(connection, "ops-1", person, mark="ops-1") > 0
    assert ours.store(said("ops-1", "and again")) == 1
    assert seen(secured.owner, "conversations") == [person]
    blind = agents("ops-*")
    with blind.database.connection(5) as connection:
        assert person_links.person_of(connection, "ops-1") == "ops-1"
        assert person_links.count(connection) == 0
    with ours.database.transaction(5, 5) as connection:
        renames.rename(connection, "ops-2", "ops-3")
    with pytest.raises(BadEvent), ours.database.transaction(5, 5) as connection:
        renames.rename(connection, "ops-4", "billing")


# --- the owner, and the test of itself


def test_the_owner_sees_dumps_and_erases_everything(secured: Secured, server: Server, tmp_path: Path) -> None:
    stock(secured.owner, "mine", PERSON)
    secured.login("mine")
    for table in ROWS:
        assert len(seen(secured.owner, table)) == 2, table
    if server.bin is not None:
        dump = subprocess.run(
            [server.bin / "pg_dump", "--enable-row-security", "--data-only", "--table=conversations", secured.owner],
            capture_output=True, text=True, check=True, env={"PGPASSWORD": "for-tests", "LD_LIBRARY_PATH": ""},
        )  # fmt: skip
        assert "about mine" in dump.stdout
        assert f"about {PERSON}" in dump.stdout
    execute(secured.owner, *(f"delete from {table}" for table in sorted(ROWS, key=lambda name: "pieces" not in name)))
    for table in ROWS:
        if table != "memory_history":
            assert seen(secured.owner, table) == [], table
    with psycopg.connect(secured.owner, autocommit=True) as connection:
        row_security.turn_off(connection)
    assert execute(secured.owner, "select 1 from pg_policy") == []


def test_the_test_of_itself_finds_what_is_broken(secured: Secured) -> None:
    stock(secured.owner, "mine", "other")
    agent = secured.login("mine")

    def flaws(*broken: str) -> list[str]:
        execute(secured.owner, *broken)
        with psycopg.connect(agent, autocommit=True) as connection:
            found = row_security.flaws(connection)
        with psycopg.connect(secured.owner, autocommit=True) as connection:
            row_security.turn_on(connection)
        return found

    assert flaws() == []
    assert flaws("alter policy memory_themes on facts using (true)") == [
        "a transaction without themes reads rows of facts"
    ]
    assert flaws("alter policy memory_themes on facts using (agent_identity = 'other' or agent_identity = 'mine')")
    assert len(flaws("create policy mine on facts using (true)")) == 2
    assert flaws("alter table facts no force row level security") == [
        "tables without a policy that is enabled and forced: facts"
    ]
    assert len(flaws("alter table facts disable row level security")) == 2
    assert flaws("drop policy memory_themes on conversations") == [
        "tables without a policy that is enabled and forced: conversations"
    ]
    # As a dump is restored by another owner.
    others = """do $$ declare item regclass; begin
      for item in select name from memory_themed_tables() loop
        execute format('alter policy memory_owner on %s to pg_monitor', item);
      end loop; end $$"""
    (restored,) = flaws(others)
    assert restored.startswith("tables with a policy of others, memory_owner: conversation_pieces, conversations, ")
    # Roles to which it does not apply.
    admin = make_conninfo(secured.server.dsn, dbname=conninfo_to_dict(secured.owner)["dbname"])
    role, owner = conninfo_to_dict(agent)["user"], execute(secured.owner, "select current_user")[0][0]
    for grant, revoke, flaw in (
        (f"alter role {role} bypassrls", f"alter role {role} nobypassrls", "has BYPASSRLS"),
        (f"alter role {role} superuser", f"alter role {role} nosuperuser", "is a superuser"),
        (f'grant "{owner}" to {role}', f'revoke "{owner}" from {role}', "of the owner of the tables"),
    ):
        execute(admin, grant)
        assert any(flaw in found for found in flaws()), flaw
        execute(admin, revoke)
    assert flaws() == []


def test_an_agent_warns_of_flaws_at_its_start(
    secured: Secured, agents: Callable[..., Agent], caplog: pytest.LogCaptureFixture
) -> None:
    agent = agents("mine")
    assert agent.database.refresh().row_security
    assert not caplog.records
    execute(secured.owner, "alter table facts no force row level security")
    agent.database.refresh()
    assert "row security does not keep the themes apart: tables without a policy" in caplog.text


def test_the_tables_of_another_model_are_protected_from_the_first_moment(secured: Secured) -> None:
    stock(secured.owner, "mine", "other")
    agent = secured.login("mine")
    with admin_connection(secured.owner) as connection:
        second_column.begin(connection, Origin("next", 8))
    names = [name for (name,) in execute(secured.owner, "select name::text from memory_themed_tables()")]
    assert {"memory_entry_pieces_next", "conversation_pieces_next", "fact_pieces_next"} < set(names)
    execute(
        secured.owner,
        *(
            f"insert into conversation_pieces_next values ('{theme}', 1, 0, '[1,1,1,1,1,1,1,1]')"
            for theme in ("mine", "other")
        ),
    )
    assert seen(agent, "conversation_pieces_next") == ["mine"]
    with psycopg.connect(agent, autocommit=True) as connection:
        assert row_security.flaws(connection) == []


def test_words_are_not_compared_with_rows_of_other_themes(secured: Secured) -> None:
    login = secured.login("billing")
    for theme, text in (("billing", "the invoice of May"), ("other", "the password is hunter2")):
        execute(
            secured.owner,
            "insert into conversations (agent_identity, session_id, role, content, ts, search) "
            f"values ('{theme}', 's', 'user', '{text}', now(), to_tsvector('english', '{text}'))",
        )
    fetched = "pg_stat_get_xact_tuples_fetched('conversations'::regclass)"
    with psycopg.connect(login) as connection:
        connection.execute("set enable_seqscan = off")
        for query, themes in (("hunter2", "null"), ("''@other'' & hunter2", "null"), ("hunter2", "array['other']")):
            before = connection.execute(f"select {fetched}".encode()).fetchone()
            asked = f"select from memory_rows_with_words('turns', '{query}'::tsquery, {themes}, '', '^$', 100, false)"
            assert connection.execute(asked.encode()).rowcount == 0
            assert connection.execute(f"select {fetched}".encode()).fetchone() == before
        found = connection.execute(
            "select agent_identity from memory_rows_with_words('turns', 'invoic'::tsquery, null, '', '^$', 100, false)"
        ).fetchall()
    assert found == [("billing",)]


def test_no_counter_tells_whether_another_theme_has_an_entry_with_a_text(secured: Secured) -> None:
    login = secured.login("billing")
    execute(
        secured.owner,
        "insert into memory_entries (agent_identity, home, target, content)"
        " select 'other', 'h', 'memory', 'the code is ' || n from generate_series(1, 2000) as n",
    )
    execute(secured.owner, "analyze memory_entries")
    counters = (
        "select array_agg(pg_stat_get_xact_tuples_returned(c) + pg_stat_get_xact_tuples_fetched(c) order by c)"
        " from (select indexrelid::oid from pg_index where indrelid = 'memory_entries'::regclass"
        " union all select 'memory_entries'::regclass::oid) as t (c)"
    )
    for theme in ("other", "billing"):
        told = set()
        for text in ("the code is 17", "the code is 2001"):
            asked = f"from memory_entries_with_texts(array['{text}'], 'memory', '{theme}', '')"
            told.add(str(execute(login, f"select {asked}", counters)))
        assert len(told) == 1, theme


def test_a_login_that_may_make_functions_beside_ours_is_a_flaw_that_turning_on_mends(secured: Secured) -> None:
    login = secured.login("billing")
    admin = make_conninfo(secured.server.dsn, dbname=conninfo_to_dict(secured.owner)["dbname"])
    with psycopg.connect(admin, autocommit=True) as owner, psycopg.connect(login, autocommit=True) as agent:
        assert row_security.flaws(agent) == []
        owner.execute("grant create on schema public to public")
        (flaw,) = row_security.flaws(agent)
        assert "may make functions in schema public" in flaw
        row_security.turn_on(owner)
        assert row_security.flaws(agent) == []


def test_a_key_that_is_none_cannot_be_claimed(secured: Secured) -> None:
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="64 hexadecimal digits"):
        execute(secured.login("billing"), "select claim_memory_setting('person_key', 'not a key')")
