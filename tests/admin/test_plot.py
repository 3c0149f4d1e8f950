from __future__ import annotations

from collections import Counter
from pathlib import Path

import psycopg
import pytest
from commandline import hermes_pgvector
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from hermes_memory_pgvector.admin.look import stats
from hermes_memory_pgvector.admin.look.picture import KINDS
from hermes_memory_pgvector.admin.look.plot import BLOCKS, HEIGHT, bars

VALUES = st.lists(st.integers(0, 10**9), min_size=1, max_size=400)


@given(VALUES, st.integers(40, 200))
def test_a_plot_has_its_height_and_fits_its_width(values: list[int], width: int) -> None:
    lines = bars(values, "2026-01-01", "2026-12-31", width=width).splitlines()
    assert len(lines) == HEIGHT + 1
    assert max(map(len, lines)) <= width


@given(VALUES)
def test_the_tallest_bar_is_full_and_no_value_is_invisible(values: list[int]) -> None:
    *rows, _ = bars(values, "", "", width=1000).splitlines()
    start = len(rows[0]) - len(rows[0].lstrip("0123456789,")) + 1
    lowest = rows[-1][start:].ljust(2 * len(values))[::2]
    assert [bar != BLOCKS[0] for bar in lowest] == [value > 0 for value in values]
    if any(values):
        place = values.index(max(values))
        assert all(row[start + 2 * place] == BLOCKS[-1] for row in rows)


def test_days_are_added_up_when_there_are_more_than_columns() -> None:
    assert bars([1] * 100, "first", "last", width=40).startswith("3 ")


@pytest.mark.timeout(10)
@pytest.mark.parametrize("width", range(4))
def test_a_width_without_room_for_a_bar_has_one_bar(width: int) -> None:
    assert bars([1] * 30, "first", "last", width=width).startswith("30 █\n")


def colours(path: Path) -> dict[str, int]:
    """How many pixels of a picture have the colour of each kind of row."""
    with Image.open(path) as picture:
        counts = Counter(picture.convert("RGB").get_flattened_data())
    return {kind: counts[tuple(bytes.fromhex(colour[1:]))] for kind, colour in KINDS.items()}


def test_a_picture_shows_what_was_added(database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HERMES_PGVECTOR_DSN", database)
    command = ("--home", str(tmp_path), "stats", "--plot", str(tmp_path / "growth.png"))
    assert hermes_pgvector(*command).code == 0
    assert colours(tmp_path / "growth.png") == {"turns": 0, "entries": 0}
    with psycopg.connect(database) as connection:
        for theme in ("数据 $a_{b$ \\frac", "ops"):
            connection.execute(
                "insert into conversations (agent_identity, session_id, role, content) select %s, 's', 'user', n::text "
                "from generate_series(1, 200) as n",
                [theme],
            )
    done = hermes_pgvector(*command)
    assert (done.code, done.err) == (0, "")
    turns = colours(tmp_path / "growth.png")
    assert turns["turns"] > 1000
    assert turns["entries"] < turns["turns"] / 10  # its square in the legend


def test_a_plot_alone_asks_no_embedder(database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HERMES_PGVECTOR_DSN", database)
    done = hermes_pgvector("--home", str(tmp_path), "stats", "--plot")
    assert (done.code, done.out) == (0, "0 new entries and 0 new turns in 30 days\n")


def test_a_picture_that_cannot_be_drawn_says_what_to_do(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HERMES_PGVECTOR_DSN", database)
    command = ("--home", str(tmp_path), "stats", "--plot")
    done = hermes_pgvector(*command, str(tmp_path / "missing" / "growth.png"))
    assert (done.code, "growth.png cannot be written: there is no folder" in done.err) == (2, True)
    monkeypatch.setattr(stats, "find_spec", lambda _: None)
    done = hermes_pgvector(*command, str(tmp_path / "growth.png"))
    assert done.code == 1
    assert "pip install" in done.err
    assert "[plot]" in done.err
