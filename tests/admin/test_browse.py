"""`browse`: the application with its real keys and screen, and the command in a terminal."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from commandline import hermes_pgvector
from hostrig.terminal import Terminal
from loopback import Endpoint
from prompt_toolkit.application import create_app_session
from prompt_toolkit.input import PipeInput, create_pipe_input
from prompt_toolkit.output import DummyOutput
from waiting import wait_for

from hermes_memory_pgvector.admin.console import Console
from hermes_memory_pgvector.admin.look.browse import Browser, Memory
from hermes_memory_pgvector.admin.look.preview import warm
from hermes_memory_pgvector.admin.look.row import shown
from hermes_memory_pgvector.settings import Settings

ENTER, ESCAPE, UP, DOWN, PAGE_DOWN, CTRL_C, CTRL_U = "\r", "\x1b", "\x1b[A", "\x1b[B", "\x1b[6~", "\x03", "\x15"
LEAVE_FULL_SCREEN = b"\x1b[?1049l"


def sql(dsn: str, statement: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


def insert(dsn: str, *contents: str) -> None:
    for content in contents:
        sql(dsn, "insert into memory_entries (agent_identity, target, content, search) values ('ops', 'memory',"
                 f" '{content}', to_tsvector('english', '{content}'))")  # fmt: skip


class Screen:
    """A browser that runs on a thread of its own, its keys and what it shows."""

    def __init__(self, memory: Memory, console: Console) -> None:
        self._memory, self._console = memory, console
        self._browser: Browser | None = None
        self._keys: PipeInput | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        wait_for(lambda: self._browser is not None)

    def _run(self) -> None:
        with create_pipe_input() as self._keys, create_app_session(input=self._keys, output=DummyOutput()):
            browser = Browser(self._memory, lambda found: self._console.rendered(*shown(found), wrap=True))
            self._browser = browser
            browser.run()

    def press(self, keys: str) -> None:
        assert self._keys is not None
        self._keys.send_text(keys)

    def lines(self) -> list[str]:
        assert self._browser is not None
        screen = self._browser.application.renderer.last_rendered_screen
        if screen is None:
            return []
        rows = (screen.data_buffer[y] for y in range(screen.height))
        return ["".join(row[x].char for x in range(80)).rstrip() for row in rows]

    def wait(self, *texts: str) -> None:
        """Wait until all of these texts are on the screen."""
        wait_for(lambda: all(any(text in line for line in self.lines()) for text in texts))

    def close(self) -> None:
        self.press(CTRL_C)
        self._thread.join(20)
        assert not self._thread.is_alive()


@pytest.fixture
def screen(database: str, endpoint: Endpoint, tmp_path: Path) -> Iterator[Screen]:
    insert(database, "Staging runs on port 5433", "Dana drinks tea")
    sql(database, "insert into conversations (agent_identity, session_id, role, content, search)"
                  " values ('ops', 's1', 'user', 'Which port?', to_tsvector('english', 'Which port?'))")  # fmt: skip
    settings, console = Settings(dsn=database, embed_url=endpoint.url, embed_model="words"), Console(as_json=False)
    with warm(settings, tmp_path, console) as runtime:
        opened = Screen(Memory(runtime, tmp_path, "ops"), console)
        yield opened
        opened.close()


def test_rows_are_found_as_one_types_and_opened_with_what_is_known_of_them(screen: Screen) -> None:
    screen.wait("Staging runs on port 5433", "Dana drinks tea", "Which port?")
    screen.press("staging port")
    screen.wait("entry 1", "score")
    wait_for(lambda: screen.lines()[1].startswith("entry 1 "))
    screen.press(ENTER)
    screen.wait("Theme   ops", "Source  database", "Staging runs on port 5433", "Esc back")
    screen.press(ESCAPE)
    screen.wait("Enter open")
    screen.press(CTRL_U + "no such words at all" + CTRL_U)
    screen.wait("Dana drinks tea")


def test_an_entry_is_forgotten_only_after_yes_and_comes_back_by_undo(screen: Screen, database: str) -> None:
    screen.press("dana tea")
    screen.wait("score")
    wait_for(lambda: screen.lines()[1].startswith("entry 2 "))
    screen.press(ENTER)
    screen.wait("entry 2 of memory")
    screen.press("f")
    screen.wait("forget entry 2? y or n")
    screen.press("n")
    screen.wait("f forget")
    assert sql(database, "select id from memory_entries order by id") == [(1,), (2,)]
    screen.press("fy")
    screen.wait("entry 2 is forgotten", "removed")
    assert sql(database, "select id from memory_entries") == [(1,)]
    screen.press("uy")
    screen.wait("restored as entry 3", "Dana drinks tea")
    assert sql(database, "select content from memory_entries where id = 3") == [("Dana drinks tea",)]


def test_a_turn_can_be_opened_but_not_forgotten(screen: Screen, database: str) -> None:
    screen.wait("turn 1 ")
    assert screen.lines()[1].startswith("turn 1 "), "the newest row comes first"
    screen.press(ENTER)
    screen.wait("turn 1 of user", "(this turn)")
    screen.press("f")
    screen.wait("that is for entries only")
    screen.press("y")
    screen.press(DOWN + ESCAPE)
    screen.wait("Enter open")
    assert sql(database, "select count(*) from conversations") == [(1,)]


def test_rows_below_the_screen_come_into_view_and_the_chosen_one_is_kept(screen: Screen, database: str) -> None:
    insert(database, *(f"Kelp number {number}" for number in range(40)))
    screen.press("x" + CTRL_U)
    screen.wait("Kelp number 39")
    screen.press(DOWN * 30)
    screen.wait("Kelp number 9")
    screen.press(ENTER)
    screen.wait("Theme   ops", "Kelp number 9")
    screen.press(ESCAPE)
    screen.wait("Enter open")
    screen.press(ENTER)
    screen.wait("Theme   ops", "Kelp number 9")


def test_an_opened_row_scrolls_to_its_end_and_no_further(screen: Screen, database: str) -> None:
    insert(database, "\n".join(f"Line {number} of it" for number in range(100)))
    screen.press("x" + CTRL_U)
    screen.wait("entry 3 ")
    screen.press(ENTER)
    screen.wait("entry 3 of memory", "Line 9 of it")
    screen.press(PAGE_DOWN)
    wait_for(lambda: "entry 3 of memory" not in "".join(screen.lines()))
    screen.press(PAGE_DOWN * 20)
    screen.wait("Line 99 of it")
    screen.press(UP * 5)
    wait_for(lambda: "Line 99 of it" not in screen.lines())


def test_an_entry_that_is_gone_is_not_forgotten_again(screen: Screen) -> None:
    screen.wait("Dana drinks tea")
    screen.press(DOWN + ENTER)
    screen.wait("entry 2 of memory")
    screen.press("fy")
    screen.wait("entry 2 is forgotten")
    screen.press("f")
    screen.wait("this entry is gone already")


def test_a_theme_without_rows_points_to_the_others(screen: Screen, database: str) -> None:
    screen.wait("Dana drinks tea")
    sql(database, "delete from conversations")
    sql(database, "delete from memory_entries")
    screen.press("x" + CTRL_U)
    screen.wait("theme ops has no rows; hermes-pgvector themes lists those that do")


def test_a_degraded_search_says_why(screen: Screen, endpoint: Endpoint) -> None:
    screen.wait("Dana drinks tea")
    endpoint.status = 500
    screen.press("tea")
    screen.wait("degraded: by words only", "Dana drinks tea")


def test_what_fails_is_said_and_the_browser_goes_on(screen: Screen, database: str) -> None:
    screen.wait("Dana drinks tea")
    sql(database, "delete from conversations")
    screen.press(ENTER)
    screen.wait("theme ops has no turn 1")
    screen.press("tea")
    screen.wait("score")


def test_browse_without_a_terminal_names_other_commands(database: str, tmp_path: Path) -> None:
    done = hermes_pgvector("--home", str(tmp_path), "browse")
    assert (done.code, "needs a terminal; in a pipe use: hermes-pgvector list" in done.err) == (2, True)


@pytest.fixture
def terminal(database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, endpoint: Endpoint) -> Iterator[Terminal]:
    monkeypatch.setenv("HERMES_PGVECTOR_DSN", database)
    monkeypatch.setenv("HERMES_PGVECTOR_EMBED_URL", endpoint.url)
    monkeypatch.setenv("HERMES_PGVECTOR_EMBED_MODEL", "words")
    sql(database, "insert into memory_entries (agent_identity, target, content) values ('ops', 'memory',"
                  " E'\\x1b]0;owned\\x07\\x1b[31mred \\u202egnp.exe and a few more kelps')")  # fmt: skip
    command = [sys.executable, "-P", "-m", "hermes_memory_pgvector", "--home", str(tmp_path), "browse"]
    with Terminal([*command, "--theme", "ops"], cwd=tmp_path, environment=os.environ) as opened:
        opened.wait("gnp.exe")
        yield opened


def test_in_a_terminal_no_text_of_a_row_is_a_command_to_it(terminal: Terminal) -> None:
    terminal.type(ENTER)
    terminal.wait("Source")
    terminal.type(CTRL_C)
    assert terminal.ended() == 0
    for command in (b"\x1b]0;owned", b"\x07", b"\x1b[31mred", "\u202e".encode()):
        assert command not in terminal.output


def test_an_opened_row_is_wrapped_again_in_a_smaller_terminal(terminal: Terminal) -> None:
    terminal.type(ENTER)
    terminal.wait("Source")
    before = len(terminal.text)
    terminal.resize(50, 30)
    terminal.wait("kelps", since=before)
    terminal.type(CTRL_C)
    assert terminal.ended() == 0


def test_a_terminated_browser_restores_the_terminal(terminal: Terminal) -> None:
    terminal.process.terminate()
    assert terminal.ended() == 128 + signal.SIGTERM
    assert LEAVE_FULL_SCREEN in terminal.output
