"""Turns that settings do not keep are deleted by the upkeep of one process at a time: by age, and at a quota."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from commandline import hermes_pgvector
from hypothesis import given
from hypothesis import strategies as st
from waiting import wait_for

from hermes_memory_pgvector.errors import SettingsError
from hermes_memory_pgvector.runtime import acquire, release
from hermes_memory_pgvector.settings import Settings, load
from hermes_memory_pgvector.store.connection.database import Database
from hermes_memory_pgvector.write import retention
from hermes_memory_pgvector.write.retention import MB, Quota, Retention


def fill(dsn: str, count: int, theme: str = "ops", days: int = 0) -> None:
    with psycopg.connect(dsn) as connection:
        connection.execute(
            "insert into conversations (agent_identity, session_id, role, content, ts, search) select %s, 's', 'user', "
            "'row ' || n, now() - make_interval(days => %s) + n * interval '1 ms', '' from generate_series(1, %s) as n",
            [theme, days, count],
        )


def held(dsn: str) -> dict[str, int]:
    with psycopg.connect(dsn) as connection:
        counted = "select agent_identity, count(*) from conversations group by 1"
        return dict(connection.execute(counted).fetchall())


@pytest.fixture
def made(database: str, tmp_path: Path) -> Iterator[Callable[..., Retention]]:
    opened: list[Database] = []

    def make(**values: Any) -> Retention:
        settings = Settings(dsn=database, **values)
        opened.append(Database(settings, tmp_path))
        return Retention(opened[-1], settings)

    yield make
    for each in opened:
        each.close()


def all_of(work: Retention) -> int:
    steps = 0
    while work.wanted:
        work.step(64)
        steps += 1
    return steps


def test_old_turns_go_by_the_first_pattern_that_covers_their_theme(
    made: Callable[..., Retention], database: str
) -> None:
    for theme in ("ops", "ops-two", "home"):
        fill(database, 100, theme, days=50)
        fill(database, 3, theme, days=5)
    steps = all_of(made(retain_days={"ops-two": 60, "ops*": 30}))
    assert held(database) == {"ops": 3, "ops-two": 103, "home": 103}
    assert steps >= 3, "in small steps"


def test_without_such_settings_nothing_is_asked(made: Callable[..., Retention]) -> None:
    assert not made().wanted


def test_one_process_at_a_time_deletes_and_another_goes_on(made: Callable[..., Retention], database: str) -> None:
    fill(database, 200, days=50)
    first, second = made(retain_days={"*": 30}), made(retain_days={"*": 30})
    first.step(64)
    first.step(64)
    assert all_of(second) == 1
    assert held(database) == {"ops": 136}
    first.stop()
    third = made(retain_days={"*": 30})
    all_of(third)
    assert held(database) == {}


def test_at_a_quota_of_rows_the_oldest_turns_go_and_entries_never_and_it_is_said(
    made: Callable[..., Retention], database: str, tmp_path: Path, caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    fill(database, 50, days=50)
    fill(database, 80)
    fill(database, 500, "home")
    with psycopg.connect(database) as connection:
        for number in range(20):
            statement = "insert into memory_entries (agent_identity, target, content) values ('ops', 'memory', %s)"
            connection.execute(statement, [f"entry {number}"])
    work = made(theme_rows_max={"ops": 100})
    with caplog.at_level(logging.WARNING, "hermes.pgvector"):
        all_of(work)
        fill(database, 30)
        monkeypatch.setattr(retention, "INTERVAL_S", 0.0)
        work._look_at = 0.0
        for _ in range(3):
            work.step(64)
    assert held(database) == {"ops": 80, "home": 500}
    with psycopg.connect(database) as connection:
        assert connection.execute("select count(*) from memory_entries").fetchone() == (20,)
        assert connection.execute(
            "select count(*) from conversations where ts < now() - interval '1 d'"
        ).fetchone() == (0,)
    assert [record.getMessage().count("is at its quota") for record in caplog.records] == [1]
    monkeypatch.setenv("HERMES_PGVECTOR_DSN", database)
    monkeypatch.setenv("HERMES_PGVECTOR_THEME_ROWS_MAX", '{"ops": 100}')
    status = hermes_pgvector("--home", str(tmp_path), "status")
    assert "ops has 100 rows of 100: its oldest turns go for new ones" in status.out
    (quota,) = hermes_pgvector("--home", str(tmp_path), "status", "--json").document["quotas"]
    assert (quota["theme"], quota["full"], quota["entries"], quota["turns"]) == ("ops", True, 20, 80)
    assert "ops has 100 rows of 100" in hermes_pgvector("--home", str(tmp_path), "doctor").shown


def test_a_quota_of_bytes_is_kept_by_the_estimate(made: Callable[..., Retention], database: str) -> None:
    with psycopg.connect(database) as connection:
        connection.execute(
            "insert into conversations (agent_identity, role, content, search) "
            "select 'ops', 'user', string_agg(md5(random()::text), ''), '' "
            "from generate_series(1, 1000) as n, generate_series(1, 100) group by n"
        )
    all_of(made(theme_mb_max={"*": 1}))
    left = held(database)["ops"]
    with psycopg.connect(database) as connection:
        row = connection.execute("select sum(length(content)) from conversations").fetchone()
    # A row has 3,200 random bytes, compressed or not, and its other columns.
    assert row is not None
    assert 0 < left < 1000
    assert 0.3 * MB < row[0] < 2 * MB


@given(*[st.integers(0, 10_000)] * 5)
def test_what_is_deleted_at_a_quota_brings_the_theme_within_it(
    entries: int, turns: int, size: int, rows_max: int, bytes_max: int
) -> None:
    quota = Quota("ops", entries, turns, size, rows_max, bytes_max)
    rows = entries + turns
    assert quota.excess >= 0
    if rows_max:
        assert rows - quota.excess <= rows_max
    if bytes_max and size and rows:
        assert (rows - quota.excess) * size / rows <= bytes_max + 1e-6 * size
    if not rows_max and not bytes_max:
        assert quota.excess == 0


def test_a_running_agent_applies_them(database: str, tmp_path: Path) -> None:
    fill(database, 100, days=50)
    fill(database, 5)
    settings = Settings(dsn=database, embed_on_write=False, retain_days={"ops": 30})  # type: ignore[arg-type]
    runtime = acquire(settings, tmp_path)
    try:
        runtime.writer.wake()
        wait_for(lambda: held(database) == {"ops": 5})
    finally:
        release(runtime)


@pytest.mark.parametrize("value", ['{"ops": 0}', '{"ops": "soon"}', '["ops"]', '{"ops": 36501}', "{"])
def test_a_limit_that_makes_no_sense_is_refused(value: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="RETAIN_DAYS"):
        load(tmp_path, {"HERMES_PGVECTOR_RETAIN_DAYS": value})
