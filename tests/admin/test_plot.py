from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

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
