from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_memory_pgvector.errors import BadArgument
from hermes_memory_pgvector.text import times


@pytest.mark.parametrize(
    ("text", "since", "until"),
    [
        ("2026-11-21", datetime(2026, 11, 21, tzinfo=UTC), datetime(2026, 11, 22, tzinfo=UTC)),
        (" 2026-11-21T09:30Z ", datetime(2026, 11, 21, 9, 30, tzinfo=UTC), datetime(2026, 11, 21, 9, 30, tzinfo=UTC)),
        ("2026-11-21 09:30", datetime(2026, 11, 21, 9, 30, tzinfo=UTC), datetime(2026, 11, 21, 9, 30, tzinfo=UTC)),
        (
            "2026-11-21T09:30+02:00",
            datetime(2026, 11, 21, 7, 30, tzinfo=UTC),
            datetime(2026, 11, 21, 7, 30, tzinfo=UTC),
        ),
        ("20261121", datetime(2026, 11, 21, tzinfo=UTC), datetime(2026, 11, 22, tzinfo=UTC)),
        ("", None, None),
    ],
)
def test_a_date_or_a_time_is_a_moment(text: str, since: datetime | None, until: datetime | None) -> None:
    assert times.since(text) == since
    assert times.until(text) == until


@pytest.fixture
def in_berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "Europe/Berlin")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.parametrize(
    ("text", "since", "until"),
    [
        ("2026-11-22T21:50", datetime(2026, 11, 22, 20, 50, tzinfo=UTC), datetime(2026, 11, 22, 20, 50, tzinfo=UTC)),
        ("2026-11-22T21:50Z", datetime(2026, 11, 22, 21, 50, tzinfo=UTC), datetime(2026, 11, 22, 21, 50, tzinfo=UTC)),
        ("2026-03-29", datetime(2026, 3, 28, 23, tzinfo=UTC), datetime(2026, 3, 29, 22, tzinfo=UTC)),
    ],
)
@pytest.mark.usefixtures("in_berlin")
def test_what_names_no_zone_may_be_local(text: str, since: datetime, until: datetime) -> None:
    assert times.since(text, zone=None) == since
    assert times.until(text, zone=None) == until


@pytest.mark.parametrize(
    ("text", "age"), [("30m", timedelta(minutes=30)), ("12h", timedelta(hours=12)), (" 7d ", timedelta(days=7))]
)
def test_an_age_is_so_long_ago(text: str, age: timedelta) -> None:
    for parsed in (times.since(text), times.until(text)):
        assert parsed is not None
        assert abs(datetime.now(UTC) - age - parsed) < timedelta(minutes=1)


@pytest.mark.parametrize(
    "text",
    ["yesterday", "2026-13-01", "21.11.2026", "2026-11-21T", "9999-12-31", "1", "0" * 500, "-3d", "7 d", "7w", "٣d"],
)
def test_anything_else_names_the_argument(text: str) -> None:
    with pytest.raises(BadArgument, match=r"--until is .* it must be a date like 2026-11-21"):
        times.until(text, "--until")


@given(st.text(max_size=40))
def test_no_text_breaks_it(text: str) -> None:
    try:
        moment = times.since(text)
        times.until(text, zone=None)
    except BadArgument:
        return
    assert getattr(moment, "tzinfo", UTC) is UTC


def test_nothing_lies_between_an_end_and_a_later_start() -> None:
    start = datetime(2026, 11, 21, tzinfo=UTC)
    times.check_order(start, start + timedelta(seconds=1))
    times.check_order(start, None)
    with pytest.raises(BadArgument, match="until is not after since"):
        times.check_order(start, start)


# --- expiry

SAID = datetime(2026, 11, 21, 9, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "end"),
    [
        ("14d", SAID + timedelta(days=14)),
        ("12h", SAID + timedelta(hours=12)),
        ("90 min", SAID + timedelta(minutes=90)),
        (" 3 Weeks ", SAID + timedelta(weeks=3)),
        ("1w", SAID + timedelta(weeks=1)),
        ("2 months", SAID + timedelta(days=60)),
        ("1 year", SAID + timedelta(days=365)),
        ("2026-12-31", datetime(2027, 1, 1, tzinfo=UTC)),
        ("2026-11-21", datetime(2026, 11, 22, tzinfo=UTC)),
        ("2026-12-31T18:00Z", datetime(2026, 12, 31, 18, tzinfo=UTC)),
        ("2026-12-31 18:00+02:00", datetime(2026, 12, 31, 16, tzinfo=UTC)),
    ],
)
def test_an_expiry_is_a_span_a_date_or_a_time(text: str, end: datetime) -> None:
    assert times.expiry(text, SAID) == end.isoformat()


def test_an_expiry_can_be_left_open_and_taken_away() -> None:
    assert [times.expiry(text, SAID) for text in ("", "  ", "never", "Never ")] == ["", "", "never", "never"]


@pytest.mark.parametrize(
    "text",
    ["soon", "14", "d", "14 fortnights", "-3d", "1.5h", "2026-13-01", "2026-11-21T25:00", "9" * 4000, "14d\0", "１４d"],
)
def test_no_expiry_is_guessed(text: str) -> None:
    with pytest.raises(
        BadArgument, match=r"^expires is .*; it must be a time span like 14d, 12h or 3 weeks"
    ) as refused:
        times.expiry(text, SAID)
    assert len(str(refused.value)) < 250


@pytest.mark.parametrize(
    "text", ["0d", "2026-11-20", "2026-11-21T09:30Z", "2026-11-21T09:30:59Z", "3661d", "9999-01-01"]
)
def test_an_expiry_has_bounds(text: str) -> None:
    with pytest.raises(BadArgument, match="it must end between a minute and 3660 days from now, or never"):
        times.expiry(text, SAID)


@given(st.integers(1, 9_999_999), st.sampled_from(["m", " minutes", "h", " Hours", "d", " day", "w", " weeks"]))
def test_a_span_ends_so_long_after_it_is_said_or_is_out_of_bounds(number: int, unit: str) -> None:
    seconds = {"m": 60, "h": 3600, "d": 86400, "w": 604800}[unit.strip().lower()[0]] * number
    try:
        end = datetime.fromisoformat(times.expiry(f"{number}{unit}", SAID))
    except BadArgument:
        assert not 60 <= seconds <= times.EXPIRY_MAX.total_seconds()
    else:
        assert (end - SAID).total_seconds() == seconds


@given(st.text(st.characters(exclude_categories=())) | st.from_regex(r"[0-9]{0,3} ?[a-z]{0,6}", fullmatch=True))
def test_any_text_is_an_expiry_that_reads_back_or_is_refused(text: str) -> None:
    try:
        found = times.expiry(text, SAID)
    except BadArgument:
        return
    assert found in ("", "never") or times.expiry(found, SAID) == found
