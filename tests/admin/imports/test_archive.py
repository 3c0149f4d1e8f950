"""`export` and `import` of archives, between real databases."""

from __future__ import annotations

import io
import json
import os
import signal
import stat
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import not_on_citus
import psycopg
import pytest
from commandline import Outcome, hermes_pgvector, started
from logins import granted_login
from loopback import vector
from waiting import wait_for

from hermes_memory_pgvector.errors import Refused
from hermes_memory_pgvector.model import Event, FactKind, FactWritten, SessionEnded, TurnTaken
from hermes_memory_pgvector.settings import Settings
from hermes_memory_pgvector.store.archive.lines import Reader, Writer
from hermes_memory_pgvector.store.connection.database import Database
from hermes_memory_pgvector.store.passages import prepare
from hermes_memory_pgvector.store.rows import apply
from hermes_memory_pgvector.text.tokenizer import document

MODEL = "all-hands"
# All that an archive holds, without the ids of rows, which are others in another database.
CONTENT = {
    "entries": """select agent_identity, home, target, content, created_at, updated_at::text, metadata, tags,
      expires_at, embedding::text, search from memory_entries order by 1, 4""",
    "chains": """select e.content, h.content from memory_entries e join memory_history h
      on h.agent_identity = e.agent_identity and h.entry_id = any (e.replaces) order by 1, 2""",
    "past": """select agent_identity, home, target, content, created_at, updated_at, metadata, gone_at, how, session_id,
      replaced_by, expires_at, tags from memory_history order by 1, 4, 8""",
    "turns": """select agent_identity, session_id, parent_session_id, role, content, ts, metadata, embedding::text,
      search from conversations order by 1, 2, 6, 5""",
    "pieces": """select c.content, p.piece, p.embedding::text from conversation_pieces p
      join conversations c on c.agent_identity = p.agent_identity and c.id = p.row_id order by 1, 2""",
    "facts": """select f.agent_identity, f.event_id, f.kind, f.target, f.scope, f.content, f.status, s.event_id,
      f.written_at, f.changed_at, f.used_at, f.uses, f.session_id, f.metadata, f.embedding::text, f.search
      from facts f left join facts s on s.agent_identity = f.agent_identity and s.id = f.superseded_by order by 2""",
    "scopes": "select * from fact_scopes order by 1, 2",
    "edges": """select agent_identity, event_id, parent_session_id, child_session_id, task, result, at, metadata
      from memory_agent_edges order by 2""",
    "withdrawals": "select * from memory_withdrawals order by 1, 2, 4",
    "tombstones": "select * from memory_tombstones order by 1, 2, 4",
    "links": "select agent_identity, person from memory_person_links order by 1",
    "events": "select * from memory_events order by 1, 2",
    "renames": "select agent_identity, theme from memory_renames order by 1",
    "pruned": "select * from memory_pruned_turns order by 1, 2, 3",
    "erasures": "select * from memory_erasures order by 1, 2",
    "erasure key": "select value from hermes_pgvector_settings where name = 'erasure_key'",
}
FILLED = (Path(__file__).parents[2] / "data" / "archive.sql").read_text()


def run(dsn: str, statement: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        return connection.execute(statement.encode()).fetchall()


def content(dsn: str) -> dict[str, list[tuple[Any, ...]]]:
    return {name: run(dsn, statement) for name, statement in CONTENT.items()}


@pytest.fixture
def source(make_database: Callable[..., str]) -> str:
    """A database in which every table has rows."""
    dsn = make_database()
    with psycopg.connect(dsn, autocommit=True, cursor_factory=psycopg.ClientCursor) as connection:
        values = {"model": MODEL, "home": "a" * 32, "vector": str(vector("some words"))}
        connection.execute(FILLED.encode(), values)
        # The words as this package finds them.
        connection.execute("update conversations set search = strip(search)")
        connection.execute("update facts set search = strip(search)")
        for number, text in connection.execute("select id, content from memory_entries").fetchall():
            statement = "update memory_entries set search = strip(to_tsvector('english', %s)) where id = %s"
            connection.execute(statement, (document(text), number))
    return dsn


@pytest.fixture
def at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Outcome]:
    """Run a command on a database, as a home that uses a model."""

    def command(dsn: str, *arguments: str, model: str = MODEL) -> Outcome:
        monkeypatch.setenv("HERMES_PGVECTOR_DSN", dsn)
        monkeypatch.setenv("HERMES_PGVECTOR_EMBED_URL", "http://127.0.0.1:9/v1")
        monkeypatch.setenv("HERMES_PGVECTOR_EMBED_MODEL", model)
        return hermes_pgvector("--home", str(tmp_path), *arguments)

    return command


@pytest.fixture
def archive(source: str, at: Callable[..., Outcome], tmp_path: Path) -> Path:
    path = tmp_path / "memory.jsonl"
    done = at(source, "export", str(path))
    assert done.code == 0, done.err
    return path


@pytest.mark.each_version
def test_an_archive_fills_an_empty_database_with_the_same_rows(
    source: str, database: str, archive: Path, at: Callable[..., Outcome]
) -> None:
    assert stat.S_IMODE(archive.stat().st_mode) == 0o600
    done = at(database, "import", str(archive), "--json")
    assert done.code == 0, done.err
    assert done.document["vectors"] == "taken"
    assert content(database) == content(source)
    assert content(source)["chains"] == [
        ('Zeilen\numbruch é中 "quoted" \\ \x7f', "Earlier text"),
        ('Zeilen\numbruch é中 "quoted" \\ \x7f', "Earliest text"),
    ]
    again = at(database, "import", str(archive), "--json").document["rows"]
    assert {kind: told["new"] for kind, told in again.items()} == dict.fromkeys(again, 0)
    assert content(database) == content(source)
    assert at(database, "list", "--theme", "ops").code == 0


def test_an_import_into_its_own_database_adds_nothing(source: str, archive: Path, at: Callable[..., Outcome]) -> None:
    before = content(source)
    told = at(source, "import", str(archive), "--json").document["rows"]
    assert sum(each["new"] for each in told.values()) == 0
    assert sum(each["found"] for each in told.values()) == sum(json.loads(archive.open().readline())["rows"].values())
    assert content(source) == before


def test_a_theme_is_brought_into_another_theme(
    source: str, database: str, at: Callable[..., Outcome], tmp_path: Path
) -> None:
    path = tmp_path / "ops.jsonl"
    assert at(source, "export", str(path), "--theme", "ops", "--no-vectors").code == 0
    done = at(database, "import", str(path), "--theme", "attic", "--json")
    assert done.code == 0, done.err
    assert done.document["vectors"] == "none"
    assert run(database, "select distinct agent_identity from conversations") == [("attic",)]
    assert run(database, "select agent_identity, count(*), count(embedding) from memory_entries group by 1") == [
        ("attic", 2, 0)
    ]
    assert run(database, "select count(*) from memory_tombstones") == [(0,)]
    assert len(content(database)["chains"]) == 2


def test_a_dry_run_counts_what_would_be_new_and_changes_nothing(
    database: str, archive: Path, at: Callable[..., Outcome]
) -> None:
    before = content(database)
    told = at(database, "import", str(archive), "--dry-run", "--json")
    assert "nothing is changed" in told.err
    rows = told.document["rows"]
    assert {kind: (each["found"], each["new"]) for kind, each in rows.items() if kind in ("entry", "turn", "fact")} == {
        "entry": (4, 4),
        "turn": (450, 450),
        "fact": (2, 2),
    }
    assert content(database) == before
    assert run(database, "select count(*) from hermes_pgvector_settings where name = 'embedding_model'") == [(0,)]


@pytest.mark.parametrize("claimed", [True, False])
def test_vectors_of_another_model_are_not_taken(
    database: str, archive: Path, at: Callable[..., Outcome], *, claimed: bool
) -> None:
    if claimed:
        with psycopg.connect(database, autocommit=True) as connection:
            connection.execute("insert into hermes_pgvector_settings values ('embedding_model', 'another')")
    done = at(database, "import", str(archive), "--json", model="another")
    assert (done.code, done.document["vectors"]) == (0, "other model")
    assert "of another model" in done.err
    assert run(database, "select count(*), count(embedding), count(search) from conversations") == [(450, 0, 450)]
    assert run(database, "select count(*) from conversation_pieces") == [(0,)]


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (lambda lines: [*lines[:9], lines[9].replace(b"2026", b"2025", 1), *lines[10:]], "line 10: its checksum"),
        (lambda lines: lines[:50], "line 51: the archive ends before its end"),
        (lambda lines: [*lines[:20], *lines[30:]], "rows, and"),
        (lambda lines: [*lines[:20], lines[21], lines[20], *lines[22:]], "the checksum of the whole archive is wrong"),
        (lambda lines: [*lines[:5], b"\xff\x00{\n", *lines[6:]], "line 6: it is not a row"),
        (lambda lines: [lines[0].replace(b'"version":1', b'"version":9'), *lines[1:]], "version 9"),
    ],
)  # fmt: skip
def test_a_damaged_archive_is_refused_whole_and_the_line_is_named(
    damage: Callable[[list[bytes]], list[bytes]], told: str, database: str, archive: Path, at: Callable[..., Outcome]
) -> None:
    archive.write_bytes(b"".join(damage(archive.read_bytes().splitlines(keepends=True))))
    done = at(database, "import", str(archive))
    assert done.code == 1
    assert told in done.err
    assert run(database, "select count(*) from memory_entries") == [(0,)]


ROWS: dict[str, dict[str, Any]] = {
    "entry": {"theme": "ops", "id": 1, "home": "", "target": "memory", "content": "x", "created_at": "2026-01-01",
              "updated_at": "2026-01-01", "metadata": {}, "replaces": None},
    "fact": {"theme": "ops", "event_id": "00000000-0000-0000-0000-000000000001", "kind": "V", "target": "port",
             "scope": "", "content": "x", "status": "active", "written_at": "2026-01-01", "changed_at": "2026-01-01",
             "session_id": ""},
    "past": {"theme": "ops", "entry_id": 1, "home": "", "target": "memory", "content": "x", "created_at": "2026-01-01",
             "updated_at": "2026-01-01", "metadata": {}, "gone_at": "2026-01-01", "how": "removed", "session_id": ""},
    "link": {"theme": "dm-signal-1f3a5c7e9b0d2f46", "person": "dm-person-0123456789abcdef"},
    "withdrawal": {"theme": "ops", "session_id": "s", "role": "user", "at": "2026-01-01"},
}  # fmt: skip


def written(path: Path, *rows: tuple[str, dict[str, Any], list[str]]) -> str:
    """Write an archive of rows, each with its kind and vectors; returns the path."""
    writer = Writer()
    counts = Counter(kind for kind, _, _ in rows)
    manifest = writer.manifest({"schema": 18, "rows": counts, "model": MODEL, "dimensions": 384, "vectors": True})
    lines = [writer.row(kind, json.dumps(row), vectors) for kind, row, vectors in rows]
    path.write_bytes(b"".join([manifest, *lines, writer.end()]))
    return str(path)


@pytest.mark.parametrize(
    ("kind", "field", "value"),
    [
        *(("entry", name, value) for name in ("theme", "id", "content", "created_at") for value in (None, [1])),
        ("entry", "replaces", 5), ("entry", "replaces", [[]]), ("fact", "event_id", "x"), ("fact", "used_at", 5),
        ("fact", "content", None), ("fact", "metadata", 5), ("fact", "uses", {}), ("fact", "successor", [1]),
        ("past", "entry_id", True), ("link", "person", None), ("withdrawal", "at", None),
    ],
)  # fmt: skip
def test_a_row_with_a_wrong_field_is_named_and_the_others_are_imported(
    kind: str, field: str, value: object, database: str, tmp_path: Path, at: Callable[..., Outcome]
) -> None:
    first, last = ({**ROWS["entry"], "id": number, "content": f"number {number}"} for number in (8, 9))
    wrong = {**ROWS[kind], field: value}
    path = written(tmp_path / "wrong.jsonl", ("entry", first, []), (kind, wrong, []), ("entry", last, []))
    done = at(database, "import", path)
    assert done.code == 1
    assert f"line 3 is refused: these fields are missing, or of another type: {field}\n" in done.err
    assert run(database, "select content from memory_entries order by 1") == [("number 8",), ("number 9",)]
    assert at(database, "import", path, "--dry-run", "--json").document["rows"]["entry"]["new"] == 0


def test_a_row_without_what_an_archive_may_leave_out_is_imported(
    database: str, tmp_path: Path, at: Callable[..., Outcome]
) -> None:
    entry = {name: value for name, value in ROWS["entry"].items() if name != "replaces"}
    fact = {**ROWS["fact"], "metadata": None, "uses": None, "successor": None}
    done = at(database, "import", written(tmp_path / "least.jsonl", ("entry", entry, []), ("fact", fact, [])))
    assert done.code == 0, done.err
    assert run(database, "select content, replaces from memory_entries") == [("x", None)]
    assert run(database, "select content, uses, metadata from facts") == [("x", 0, {})]


@pytest.mark.parametrize("vectors", [["AAA"], ["AAAA"], ["AYAAAA=="], ["AAMAADwAPAA8AA=="]])
def test_a_row_whose_vector_is_none_is_imported_without_it(
    vectors: list[str], database: str, tmp_path: Path, at: Callable[..., Outcome]
) -> None:
    done = at(database, "import", written(tmp_path / "vectors.jsonl", ("entry", ROWS["entry"], vectors)))
    assert done.code == 0
    assert run(database, "select content, embedding from memory_entries") == [("x", None)]


@not_on_citus.row_security
def test_a_dry_run_refuses_what_the_grants_of_the_login_do_not_hold(
    database: str, tmp_path: Path, at: Callable[..., Outcome]
) -> None:
    other = {**ROWS["entry"], "theme": "dev"}
    path = written(tmp_path / "two.jsonl", ("entry", ROWS["entry"], []), ("entry", other, []))
    with granted_login(database) as login:
        run(database, "update memory_theme_grants set pattern = 'ops' where pattern = '*' returning 1")
        planned, done = (at(login, "import", path, "--json", *options).document for options in (["--dry-run"], []))
    assert (planned["rows"], planned["wrong"]) == (done["rows"], done["wrong"])
    assert [wrong["line"] for wrong in done["wrong"]] == [3]


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"schema": "13"}, "schema"), ({"rows": []}, "rows"), ({"rows": {"turn": "1"}}, "rows"),
        ({"erasure_keys": 5}, "erasure_keys"), ({"rows": 1, "schema": []}, "schema, rows"),
    ],
)  # fmt: skip
def test_a_field_of_the_manifest_that_is_damaged_is_named(changed: dict[str, Any], told: str) -> None:
    manifest = Writer().manifest({"schema": 13, "rows": {}, "erasure_keys": [], **changed})
    with pytest.raises(Refused, match=f"^line 1 is a damaged manifest: {told} missing, or of another type$"):
        Reader(io.BytesIO(manifest))


@pytest.mark.parametrize(
    "manifest",
    [
        b'{"kind":"manifest","format":"hermes-memory-pgvector","version":1}\n',
        b'{"kind":"manifest","a":' + b"[" * 100_000,
    ],
)
def test_a_damaged_manifest_is_one_line_and_no_traceback(
    manifest: bytes, database: str, at: Callable[..., Outcome], tmp_path: Path
) -> None:
    path = tmp_path / "damaged.jsonl"
    path.write_bytes(manifest)
    done = at(database, "import", str(path))
    assert (done.code, len(done.err.splitlines())) == (1, 1)
    assert done.err.startswith("hermes-pgvector: line 1 is a damaged manifest")


def test_an_entry_that_was_forgotten_since_the_export_stays_forgotten(
    source: str, archive: Path, at: Callable[..., Outcome]
) -> None:
    with psycopg.connect(source, autocommit=True) as connection:
        connection.execute("delete from memory_entries where content like 'Staging%'")
    assert at(source, "import", str(archive)).code == 0
    assert run(source, "select count(*) from memory_entries where content like 'Staging%'") == [(0,)]


def test_what_was_erased_stays_out(source: str, archive: Path, at: Callable[..., Outcome]) -> None:
    assert at(source, "erase", "--theme", "ops", "--session", "s1", "--yes").code in (0, 3)
    told = at(source, "import", str(archive), "--json").document
    # 150 turns, an earlier text, a fact and its scope, a delegated task, a withdrawal, a note of a pruned turn.
    assert (told["erased"], told["rows"]["turn"]["new"]) == (156, 0)
    assert run(source, "select count(*) from conversations where session_id = 's1'") == [(0,)]
    assert run(source, "select count(*) from memory_agent_edges where parent_session_id = 's1'") == [(0,)]


def test_nothing_of_an_erased_theme_comes_back(source: str, archive: Path, at: Callable[..., Outcome]) -> None:
    assert at(source, "erase", "--theme", "ops", "--yes").code in (0, 3)
    rows = at(source, "import", str(archive), "--json").document["rows"]
    assert {kind: told["new"] for kind, told in rows.items() if told["new"]} == {}
    tables = ("memory_entries", "conversations", "facts", "fact_scopes", "memory_agents", "memory_agent_edges",
              "memory_history", "memory_withdrawals", "memory_tombstones", "memory_pruned_turns")  # fmt: skip
    counts = {name: run(source, f"select count(*) from {name} where agent_identity = 'ops'")[0][0] for name in tables}
    assert {name: count for name, count in counts.items() if count} == {}


def store(dsn: str, *events: Event) -> None:
    database = Database(Settings(dsn=dsn), Path("/nowhere"))  # type: ignore[arg-type]
    try:
        with database.transaction(10, 10) as connection:
            apply(connection, [prepare(event) for event in events])
    finally:
        database.close()


@pytest.mark.parametrize("imported", ["decision", "obsolete", "all"])
def test_of_an_obsolete_fact_and_older_ones_of_its_target_the_obsolete_one_stays(
    database: str, make_database: Callable[..., str], at: Callable[..., Outcome], tmp_path: Path, imported: str
) -> None:
    here, path, start = make_database(), tmp_path / "facts.jsonl", datetime(2026, 3, 4, tzinfo=UTC)
    texts: list[tuple[FactKind, str]] = [("D", "RabbitMQ"), ("obs", "no queue"), ("D", "RabbitMQ"), ("C", "no polling")]
    first, obsolete, again, later = (
        FactWritten(theme="ops", kind=kind, target="queue", content=text, at=start + timedelta(hours=hours))
        for hours, (kind, text) in enumerate(texts)
    )
    there = {"decision": [first, later], "obsolete": [obsolete], "all": [first, obsolete, again, later]}[imported]
    store(database, *there)
    store(here, *{"decision": [obsolete], "obsolete": [first, later], "all": [first]}[imported])
    assert at(database, "export", str(path)).code == 0
    assert at(here, "import", str(path)).code == 0
    found = run(here, "select content from facts where status = 'active' order by written_at")
    assert found == [(event.content,) for event in (obsolete, again, later) if event != again or imported == "all"]
    links = "select f.content, n.content from facts f join facts n using (agent_identity) where n.id = f.superseded_by"
    assert run(here, links) == [("RabbitMQ", "no queue")]


def said(theme: str, session: str, question: str, answer: str) -> TurnTaken:
    return TurnTaken(theme=theme, session_id=session, user=question, assistant=answer)


@pytest.mark.parametrize("others", [False, True])
def test_late_events_find_after_a_move_what_was_renamed_pruned_and_erased(
    database: str, make_database: Callable[..., str], at: Callable[..., Outcome], tmp_path: Path, others: bool
) -> None:
    moved, path = make_database(), tmp_path / "moved.jsonl"
    late = [
        said("old", "s2", "which text?", "the word is vault"),
        said("mine", "s1", "which one?", "the other text"),
        said("old", "s3", "is it up?", "it is up"),
    ]
    store(database, said("old", "s1", "what goes?", "this goes"), said("old", "s2", "which?", "the word is vault"))
    assert at(database, "erase", "--text", "vault", "--yes").code in (0, 3)
    assert at(database, "remap", "old", "new", "--yes").code == 0
    assert at(database, "prune", "--theme", "new", "--yes").code == 0
    if others:
        # That database has erased something itself, and a theme with an old name of one here.
        store(moved, said("mine", "s1", "which one?", "the other text"), said("lent", "s1", "question", "answer"))
        assert at(moved, "erase", "--text", "the other text", "--yes").code in (0, 3)
        assert at(database, "remap", "lent", "new", "--yes").code == 0
    assert at(database, "export", str(path)).code == 0
    done = at(moved, "import", str(path), "--json")
    assert (done.code, done.document["in_use"]) == (0, ["lent"] if others else [])
    again = at(moved, "import", str(path), "--json").document["rows"]
    assert sum(told["new"] for told in again.values()) == 0
    before = len(run(moved, "select id from conversations"))
    store(moved, SessionEnded(theme="old", session_id="s1", turns=(("what goes?", "this goes"),)))
    store(moved, *late)
    found = run(moved, "select agent_identity, content from conversations order by id")[before:]
    mine = [("mine", "which one?"), ("mine", "the other text")][: 1 if others else 2]
    assert sorted(found) == sorted([("new", "which text?"), *mine, ("new", "is it up?"), ("new", "it is up")])


def test_an_export_leaves_nothing_of_an_archive_that_fails(
    source: str, at: Callable[..., Outcome], tmp_path: Path
) -> None:
    path = tmp_path / "here.jsonl"
    path.write_text("mine")
    assert at(source, "export", str(path)).code == 2
    assert path.read_text() == "mine"
    folder = at(source, "export", str(tmp_path))
    assert (folder.code, folder.err) == (2, f"hermes-pgvector: {tmp_path} is a folder; give the path of a file in it\n")
    nowhere = at(source, "export", str(tmp_path / "nowhere" / "x.jsonl"))
    assert (nowhere.code, f"there is no folder {tmp_path / 'nowhere'}; make it, or" in nowhere.err) == (2, True)
    missing = at(source, "export", str(tmp_path / "other.jsonl"), "--theme", "nobody")
    assert "nothing is stored of theme nobody" in missing.err
    assert list(tmp_path.glob("*other*")) == []


def test_a_dump_is_told_from_an_archive(database: str, at: Callable[..., Outcome], tmp_path: Path) -> None:
    (tmp_path / "memory.dump").write_bytes(b"PGDMP\1\20\0")
    refused = at(database, "import", str(tmp_path / "memory.dump"))
    assert refused.code == 2
    assert "it is a dump of Postgres; one that `backup` wrote is for: hermes-pgvector " in refused.err


def test_an_export_for_which_there_is_no_room_names_the_file(source: str, tmp_path: Path) -> None:
    target = tmp_path / "memory.jsonl"
    limit = "trap '' XFSZ; ulimit -f 1; exec \"$@\""  # writing and closing the file fail, as on a full disk
    command = [sys.executable, "-P", "-m", "hermes_memory_pgvector", "--home", str(tmp_path), "export", str(target)]
    environment = {**os.environ, "HERMES_PGVECTOR_DSN": source}
    done = subprocess.run(
        ["sh", "-c", limit, "sh", *command], env=environment, capture_output=True, text=True, timeout=60, cwd="/"
    )
    assert (done.returncode, done.stdout) == (1, "")
    told = "cannot be written: File too large; give another path; nothing is left of it"
    assert done.stderr == f"hermes-pgvector: {target} {told}\n"
    assert [path.name for path in tmp_path.glob("*memory*")] == []


def test_an_export_to_a_closed_stdout_is_refused(database: str, tmp_path: Path) -> None:
    command = ["sh", "-c", '"$0" "$@" >&-', sys.executable, "-P", "-m", "hermes_memory_pgvector", "export", "-"]
    environment = {**os.environ, "HERMES_PGVECTOR_DSN": database, "HERMES_HOME": str(tmp_path)}
    done = subprocess.run(command, env=environment, stderr=subprocess.PIPE, text=True, cwd=tmp_path, timeout=60)
    assert (done.returncode, done.stderr) == (2, "hermes-pgvector: stdout is closed; give a PATH for the archive\n")


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_export_that_a_signal_ends_leaves_nothing(database: str, tmp_path: Path, sent: signal.Signals) -> None:
    folder, home = tmp_path / "out", tmp_path / "home"
    folder.mkdir()
    home.mkdir()
    with psycopg.connect(database) as connection:
        connection.execute("lock table conversations")
        process = started(database, home, "export", str(folder / "memory.jsonl"))
        wait_for(lambda: any(folder.iterdir()))
        process.send_signal(sent)
        error = process.communicate(timeout=30)[1]
    assert list(folder.iterdir()) == []
    assert (process.returncode, error) == (128 + sent, "")


def test_an_import_that_was_killed_goes_on_when_it_is_run_again(
    source: str, database: str, archive: Path, at: Callable[..., Outcome], tmp_path: Path
) -> None:
    lines = archive.read_bytes().splitlines(keepends=True)
    command = [sys.executable, "-P", "-m", "hermes_memory_pgvector", "--home", str(tmp_path), "import", "-"]
    environment = {**os.environ, "HERMES_PGVECTOR_DSN": database}
    with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, cwd=tmp_path) as process:
        assert process.stdin
        process.stdin.write(b"".join(lines[:300]))
        process.stdin.flush()
        wait_for(lambda: run(database, "select 1 from conversations limit 1"), timeout_s=60)
        process.kill()
    ((stored,),) = run(database, "select count(*) from conversations")
    assert 0 < stored < 300
    done = at(database, "import", str(archive))
    assert done.code == 0, done.err
    assert content(database) == content(source)


def test_a_stream_is_stored_up_to_the_line_that_is_wrong(
    database: str, archive: Path, tmp_path: Path, at: Callable[..., Outcome]
) -> None:
    lines = archive.read_bytes().splitlines(keepends=True)
    lines[200] = lines[200].replace(b"Turn number", b"Turn Number")
    command = [sys.executable, "-P", "-m", "hermes_memory_pgvector", "--home", str(tmp_path), "import", "-"]
    environment = {**os.environ, "HERMES_PGVECTOR_DSN": database}
    sent = b"".join(lines)
    done = subprocess.run(command, env=environment, input=sent, capture_output=True, cwd=tmp_path, timeout=120)
    assert done.returncode == 1
    assert b"line 201: its checksum is wrong" in done.stderr
    assert b"rows before it are stored" in done.stderr
    ((stored,),) = run(database, "select count(*) from conversations")
    assert 0 < stored < 200


PLAIN = [
    {"kind": "entry", "content": "The office is in Bern.", "created_at": "2025-05-01T10:00:00Z", "tags": ["Office"]},
    {"kind": "entry", "content": "Speaks French.", "target": "user", "theme": "ops"},
    {"kind": "turn", "session_id": "m-1", "role": "user", "content": "Where do we meet?\x00", "at": 1_760_000_000},
    {"kind": "turn", "session_id": "m-1", "role": "assistant", "content": "In \ud800 Bern.", "at": 1_760_000_001_000},
]
WRONG = [
    {"kind": "entry", "content": " \n"},
    {"kind": "turn", "role": "user", "session_id": "m-1", "content": "without a time"},
    {"kind": "turn", "role": "bot", "session_id": "m-1", "content": "x", "at": 1},
    {"kind": "entry", "content": "x", "colour": "red"},
    {"kind": "entry", "content": "x", "theme": "dm-telegram-1f3a5c7e9b0d2f46"},
    ["no object"],
]


def test_plain_lines_come_in_and_the_wrong_ones_are_named(
    database: str, at: Callable[..., Outcome], tmp_path: Path
) -> None:
    path = tmp_path / "plain.jsonl"
    path.write_text("".join(f"{json.dumps(line)}\n" for line in (*PLAIN, *WRONG)))
    done = at(database, "import", str(path), "--json")
    assert done.code == 1
    assert [wrong["line"] for wrong in done.document["wrong"]] == [5, 6, 7, 8, 9, 10]
    assert run(database, "select agent_identity, target, content, tags from memory_entries order by id") == [
        ("default", "memory", "The office is in Bern.", ["office"]),
        ("ops", "user", "Speaks French.", None),
    ]
    assert run(database, "select role, content, ts::date::text, search is null from conversations order by ts") == [
        ("user", "Where do we meet?", "2025-10-09", False),
        ("assistant", "In \ufffd Bern.", "2025-10-09", False),
    ]
    again = at(database, "import", str(path), "--json").document["rows"]
    assert [again[kind]["new"] for kind in ("entry", "turn")] == [0, 0]


def test_a_plain_line_does_not_say_that_it_comes_from_somebody_else(
    database: str, at: Callable[..., Outcome], tmp_path: Path
) -> None:
    told = {"origin": "remember", "client": "user", "wiki": "office"}
    path = tmp_path / "plain.jsonl"
    path.write_text("".join(json.dumps({**line, "metadata": told}) + "\n" for line in PLAIN))
    assert at(database, "import", str(path)).code == 0
    found = run(database, "select metadata from memory_entries union all select metadata from conversations")
    assert found == [({"origin": "import", "wiki": "office"},)] * len(PLAIN)


def test_a_file_of_wrong_lines_alone_is_not_called_empty(
    source: str, at: Callable[..., Outcome], tmp_path: Path
) -> None:
    lines = tmp_path / "wrong.jsonl"
    lines.write_text('{"kind": "entry"}\n')
    done = at(source, "import", str(lines))
    assert (done.code, "line 1 is refused" in done.err, "nothing is in it" in done.err) == (1, True, False)
    lines.write_text("")
    assert "nothing is in it" in at(source, "import", str(lines)).err


MEASURED = """
import resource, sys
from hermes_memory_pgvector import cli
code = cli.main(sys.argv[1:])
print(code, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""
MANY = """
insert into conversations (agent_identity, session_id, role, content, ts)
select 'ops', 's' || n / 50, 'user', repeat('word' || n % 977 || ' ', 60),
  '2025-01-01+00'::timestamptz + n * interval '1 min'
from generate_series(1, {}) as n
"""


@pytest.mark.slow
def test_a_hundred_thousand_rows_take_no_more_memory_than_a_thousand(
    make_database: Callable[..., str], tmp_path: Path
) -> None:
    def measured(dsn: str, *arguments: str) -> int:
        command = [sys.executable, "-P", "-c", MEASURED, "--home", str(tmp_path), *arguments]
        environment = {**os.environ, "HERMES_PGVECTOR_DSN": dsn}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=tmp_path, check=True)
        code, memory = map(int, done.stdout.split())
        assert code == 0, done.stderr
        return memory

    peaks = {}
    for rows in (1_000, 100_000):
        dsn, path = make_database(), tmp_path / f"{rows}.jsonl"
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute(MANY.format(rows).encode())
        target = make_database()
        peaks[rows] = (measured(dsn, "export", str(path)), measured(target, "import", str(path)))
        assert run(target, "select count(*), count(search) from conversations") == [(rows, rows)]
    assert peaks[100_000][0] < 1.3 * peaks[1_000][0]
    assert peaks[100_000][1] < 1.3 * peaks[1_000][1]
