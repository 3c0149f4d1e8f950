"""`hermes-pgvector edit`, with scripts as editors, and `undo` after it."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
from commandline import Outcome, hermes_pgvector

LIST = "import os, sys; path = sys.argv[-1]; "


@pytest.fixture
def command(database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Outcome]:
    """Run a command line for a home that uses the database; `editor` is Python code that gets the file as `path`."""
    monkeypatch.setenv("HERMES_PGVECTOR_DSN", database)
    monkeypatch.delenv("VISUAL", raising=False)

    def run(*arguments: str, editor: str = "") -> Outcome:
        monkeypatch.setenv("EDITOR", shlex.join([sys.executable, "-c", LIST + editor]))
        return hermes_pgvector("--home", str(tmp_path), *arguments)

    return run


def sql(dsn: str, statement: str) -> list[tuple[object, ...]]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


def insert(dsn: str, content: str, theme: str = "ops", home: str = "") -> str:
    ((number,),) = sql(
        dsn,
        "insert into memory_entries (agent_identity, home, target, content, tags) "
        f"values ('{theme}', '{home}', 'memory', '{content}', '{{db}}') returning id",
    )
    return str(number)


def contents(dsn: str) -> list[object]:
    return [content for (content,) in sql(dsn, "select content from memory_entries order by id")]


def writing(text: str) -> str:
    return f"open(path, 'w').write({text!r})"


def test_the_edited_text_takes_the_place_of_the_old_one_and_undo_takes_it_back(
    command: Callable[..., Outcome], database: str
) -> None:
    number = insert(database, "port 5433")
    done = command("edit", number, editor=writing("port 5440\n\n"))
    assert done.code == 0
    assert f"entry {number} of theme ops is entry {int(number) + 1} now, tags db:\nport 5440" in done.out
    assert contents(database) == ["port 5440"]
    ((past,),) = sql(database, "select id from memory_history where content = 'port 5433'")
    assert f"hermes-pgvector undo {past}" in done.err
    undone = command("undo", str(past))
    assert (undone.code, contents(database)) == (0, ["port 5433"])
    assert "in place of: port 5440" in undone.out
    assert sql(database, "select tags from memory_entries") == [(["db"],)]
    history = sql(database, "select id from memory_history order by id")
    again = command("undo", str(past))
    assert (again.code, again.out) == (1, "")
    assert "theme ops has this entry already" in again.err
    assert sql(database, "select id from memory_history order by id") == history


def test_the_screen_of_the_editor_is_no_part_of_the_result(
    command: Callable[..., Outcome], database: str, capfd: pytest.CaptureFixture[str]
) -> None:
    done = command("edit", insert(database, "port 5433"), "--json", editor=f"print('a screen'); {writing('port 5440')}")
    assert (done.code, done.document["changed"]) == (0, True)
    assert capfd.readouterr() == ("", "a screen\n")


def test_undo_takes_back_a_change_of_the_tags_alone(command: Callable[..., Outcome], database: str) -> None:
    number = insert(database, "port 5433")
    command("edit", number, editor=writing("port 5440"))
    sql(database, "update memory_entries set content = 'port 5433', tags = '{net}' where content = 'port 5440'")
    ((past,),) = sql(database, "select id from memory_history where content = 'port 5433' and tags = '{db}'")
    assert command("undo", str(past)).code == 0
    assert sql(database, "select content, tags from memory_entries") == [("port 5433", ["db"])]


def test_nobody_else_can_read_the_file_and_it_is_gone_afterwards(
    command: Callable[..., Outcome], database: str, tmp_path: Path
) -> None:
    number = insert(database, "port 5433")
    seen = tmp_path / "seen"
    modes = "[os.stat(path).st_mode & 0o777, os.stat(os.path.dirname(path)).st_mode & 0o777, path, open(path).read()]"
    command("edit", number, editor=f"import json; json.dump({modes}, open({str(seen)!r}, 'w'))")
    mode, folder, path, text = json.loads(seen.read_text())
    assert (mode, folder, text) == (0o600, 0o700, "port 5433\n")
    assert not Path(path).parent.exists()


@pytest.mark.parametrize(
    ("editor", "code", "said"),
    [
        ("", 0, "the text is unchanged"),
        (writing("  \n"), 0, "the text is empty"),
        (writing("port 5440") + "; sys.exit(3)", 1, "ended with code 3; nothing is changed"),
        ("open(path, 'wb').write(b'\\xff')", 1, "cannot be read (UnicodeDecodeError); nothing is changed"),
        ("os.unlink(path)", 1, "cannot be read (FileNotFoundError); nothing is changed"),
        ("open(path, 'w').write('x' * 300_000)", 2, "the text has 300000 characters"),
    ],
)
def test_what_is_no_new_text_changes_nothing_and_says_so(
    command: Callable[..., Outcome], database: str, editor: str, code: int, said: str
) -> None:
    number = insert(database, "port 5433")
    done = command("edit", number, editor=editor)
    assert (done.code, said in done.err, contents(database)) == (code, True, ["port 5433"])
    assert sql(database, "select * from memory_history") == []


def test_a_change_by_somebody_else_meanwhile_is_shown_with_the_edited_text(
    command: Callable[..., Outcome], database: str
) -> None:
    number = insert(database, "port 5433")
    other = f"import psycopg; psycopg.connect({database!r}, autocommit=True).execute"
    change = f"{other}(\"update memory_entries set content = 'port 1'\")"
    done = command("edit", number, editor=f"{change}; {writing('port 5440')}")
    assert done.code == 1
    assert f"entry {number} says:\nport 1\n" in done.out
    assert "you wrote:\nport 5440" in done.out
    assert contents(database) == ["port 1"]
    gone = command("edit", number, editor=f'{other}("delete from memory_entries"); {writing("port 5440")}')
    assert (gone.code, "was removed while you edited it" in gone.err) == (1, True)
    assert "port 5440" in gone.err, "the text is not lost with its file"
    assert contents(database) == []


def test_an_entry_of_a_memory_file_is_to_be_edited_there(
    command: Callable[..., Outcome], database: str, tmp_path: Path
) -> None:
    (tmp_path / "memories").mkdir()
    (tmp_path / "memories" / "MEMORY.md").write_text("port 5433", encoding="utf-8")
    (tmp_path / "pgvector").mkdir()
    (tmp_path / "pgvector" / "home_id").write_text("a" * 32)
    number = insert(database, "port 5433", home="a" * 32)
    done = command("edit", number, editor=writing("port 5440"))
    assert (done.code, "MEMORY.md: edit that file" in done.err) == (1, True)
    assert contents(database) == ["port 5433"]


def test_an_unknown_or_ambiguous_id_and_a_missing_editor_are_named(
    command: Callable[..., Outcome], database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = insert(database, "port 5433")
    assert "there is no entry 999" in command("edit", "999").err
    assert f"there is no entry {number}" in command("edit", number, "--theme", "billing").err
    sql(
        database,
        f"insert into memory_entries (id, agent_identity, target, content) values ({number}, 'b', 'user', 'x')",
    )
    assert f"themes b, ops have an entry {number}; give one of them as --theme" in command("edit", number).err
    monkeypatch.setenv("VISUAL", "/no/such/editor --wait")
    done = command("edit", number, "--theme", "OPS")
    assert "/no/such/editor cannot be started (No such file or directory); set EDITOR" in done.err
    monkeypatch.delenv("VISUAL")
    monkeypatch.delenv("EDITOR")
    done = hermes_pgvector("--home", str(tmp_path), "edit", number, "--theme", "OPS")
    assert (done.code, "there is no terminal for vi; set EDITOR" in done.err) == (1, True)


def test_the_theme_of_a_linked_account_names_the_entries_of_its_person(
    command: Callable[..., Outcome], database: str
) -> None:
    person = "dm-person-00000000000000aa"
    number = insert(database, "port 5433", theme=person)
    sql(database, f"insert into memory_person_links values ('ops', '{person}')")
    assert command("edit", number, "--theme", "OPS", editor=writing("port 5440")).code == 0
    assert "port 5433" in command("history", "--theme", "OPS").out
    assert command("history", "--theme", "billing").out.strip() == "no entry was replaced, removed or edited"


def test_search_shows_ids_tags_and_expiry_and_filters_by_tags(command: Callable[..., Outcome], database: str) -> None:
    number = insert(database, "port 5433")
    sql(database, "update memory_entries set expires_at = '2999-12-31 12:00Z'")
    sql(database, "insert into memory_entries (agent_identity, target, content) values ('ops', 'memory', 'port 1')")
    sql(database, "update memory_entries set search = to_tsvector('english', content)")
    done = command("search", "port", "--theme", "ops", "--kind", "memory", "--tag", "#DB", "--tag", "x")
    assert f"memory {number}, tags db, expires 2999-12-31" in done.out
    assert "port 1" not in done.out
    assert "Memory: nothing found" in command(
        "search", "port", "--theme", "ops", "--kind", "memory", "--tag", "db", "--tag", "x", "--all-tags"
    ).out  # fmt: skip
    elsewhere = command("search", "port", "--theme", "billing")
    assert "searched 0 rows as theme billing; see hermes-pgvector themes" in elsewhere.err
    assert "--tag has the tag" in command("search", "port", "--tag", "#").err
