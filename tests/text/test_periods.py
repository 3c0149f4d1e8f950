from __future__ import annotations

import time
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_memory_pgvector.text import periods
from hermes_memory_pgvector.text.periods import period

# A Wednesday.
NOW = datetime(2026, 5, 20, 8, tzinfo=UTC)
TODAY, YESTERDAY, BEFORE = ((f"2026-05-{day}", f"2026-05-{day + 1}") for day in (20, 19, 18))
THIS_WEEK, LAST_WEEK = ("2026-05-18", "2026-05-25"), ("2026-05-11", "2026-05-18")
LAST_MONTH, MARCH = ("2026-04-01", "2026-05-01"), ("2026-03-01", "2026-04-01")
TWO_WEEKS, OCTOBER = ("2026-05-03", "2026-05-10"), ("2025-10-01", "2025-11-01")


def named(question: str, now: datetime = NOW) -> tuple[str, str] | None:
    found = period(question, now)
    return found and (f"{found.since:%Y-%m-%d}", f"{found.until:%Y-%m-%d}")


@pytest.mark.parametrize(
    ("question", "days"),
    [
        ("What did we eat today?", TODAY), ("What broke YESTERDAY?", YESTERDAY),
        ("And the day before yesterday?", BEFORE), ("What was decided this week?", THIS_WEEK),
        ("What did we decide last week?", LAST_WEEK), ("What about last month's bill?", LAST_MONTH),
        ("What happened in March?", MARCH), ("the bill of two weeks ago", TWO_WEEKS),
        ("What did the crew do in October 2025?", OCTOBER), ("on 2026-03-07?", ("2026-03-07", "2026-03-08")),
        ("at the beginning of March", ("2026-03-01", "2026-03-11")), ("in late February", ("2026-02-21", "2026-03-01")),
        ("on March 7th", ("2026-03-07", "2026-03-08")), ("on 7 March 2025", ("2025-03-07", "2025-03-08")),
        ("What did we plant in the spring?", ("2026-03-01", "2026-06-01")),
        ("what did we plant last spring", ("2025-03-01", "2025-06-01")),
        ("and in winter?", ("2025-12-01", "2026-03-01")), ("last year", ("2025-01-01", "2026-01-01")),
        ("Was fiel gestern aus?", YESTERDAY), ("Was fiel vorgestern aus?", BEFORE),
        ("Was wurde letzte Woche beschlossen?", LAST_WEEK), ("der Beschluss im vorigen Monat", LAST_MONTH),
        ("Was war im März?", MARCH), ("vor zwei Wochen", TWO_WEEKS), ("im Oktober 2025", OCTOBER),
        ("Anfang März", ("2026-03-01", "2026-03-11")), ("am 07.03.2026", ("2026-03-07", "2026-03-08")),
        ("Qu'est-ce qui est tombé hier ?", YESTERDAY), ("et avant-hier ?", BEFORE),
        ("décidé la semaine dernière", LAST_WEEK), ("le mois dernier", LAST_MONTH), ("aujourd’hui", TODAY),
        ("en mars", MARCH), ("il y a deux semaines", TWO_WEEKS), ("en octobre 2025", OCTOBER),
        ("¿Qué falló ayer?", YESTERDAY), ("¿Qué acordó la semana pasada?", LAST_WEEK),
        ("el mes pasado", LAST_MONTH), ("en marzo", MARCH), ("hace dos semanas", TWO_WEEKS),
        ("en octubre de 2025", OCTOBER), ("el otoño pasado", ("2025-09-01", "2025-12-01")),
        ("O que falhou ontem?", YESTERDAY), ("em março", MARCH), ("na semana passada", LAST_WEEK),
        ("cosa è stato deciso ieri", YESTERDAY), ("la settimana scorsa", LAST_WEEK), ("a marzo", MARCH),
        ("Что решили вчера?", YESTERDAY), ("на прошлой неделе", LAST_WEEK), ("две недели назад", TWO_WEEKS),
        ("geçen hafta ne karar aldı?", LAST_WEEK), ("iki hafta önce", TWO_WEEKS), ("martta", MARCH),
        ("昨天什么坏了?", YESTERDAY), ("上周决定了什么?", LAST_WEEK), ("上个月的账单", LAST_MONTH),
        ("三月的账单", MARCH),
        ("两周前", TWO_WEEKS), ("去年十月", OCTOBER), ("2026年3月7日", ("2026-03-07", "2026-03-08")),
        ("昨日の会議", YESTERDAY), ("先週の会議", LAST_WEEK), ("先月", LAST_MONTH), ("３月の会議", MARCH),
        ("2週間前", TWO_WEEKS),
        ("去年の十月の検診", OCTOBER), ("어제 회의", YESTERDAY), ("지난주 회의", LAST_WEEK), ("지난달", LAST_MONTH),
        ("3월 회의", MARCH), ("2주 전", TWO_WEEKS), ("작년 10월", OCTOBER),
    ],
)  # fmt: skip
def test_a_question_names_a_period(question: str, days: tuple[str, str]) -> None:
    assert named(question) == days


@pytest.mark.parametrize(
    "question",
    [
        "May I park here?", "Who may march on the second lawn?", "What is the port of the wiki?", "the 31.02.2026",
        "Where do we keep the spare key of the second van?", "Kann man hier am Montag parken?", "host-2026-03-99",
        "Wo liegt der Schlüssel von Mai-Linh?", "release 2026.5", "version 3.1", "", "一个月多少钱?",
        "springboard summerhouse",
        "vor dem Haus", "il y a un problème", "hace frío", "99999 days ago", "0 days ago", "before the move",
    ],
)  # fmt: skip
def test_a_question_without_a_time_names_none(question: str) -> None:
    assert named(question) is None


def test_a_period_is_that_of_the_time_zone_of_the_asker() -> None:
    late = datetime(2026, 5, 20, 23, 30, tzinfo=UTC)
    found = period("yesterday", late.astimezone(ZoneInfo("Asia/Tokyo")))
    assert found
    assert found.since.astimezone(UTC) == datetime(2026, 5, 19, 15, tzinfo=UTC)
    assert named("yesterday", late) == YESTERDAY


@pytest.mark.parametrize(
    "question",
    [
        "This may be slow, why?", "Which plan A may we choose?", "How late may guests stay?",
        "How many requests may 10 clients send?", "May 5 people share a licence?", "Which of these 3 may fail?",
        "How many sessions may 2000 users open?", "Did a march take place?", "March 4 times around it?",
        "Why does this Spring Boot service crash?", "CORS in Spring Security", "Is it in fall-back mode?",
        "prompts for gpt-4o-2024-08-06", "api-version=2024-02-01", "where is backup-2026-04-03.tar.gz",
        "/srv/2026/04/03/log", "v1.2.2026", "2026-04-03T12:00:01Z ERROR timeout", "2026-04-03 12:00:01,1 ERROR timeout",
        "지난 주문 내역", "이번 주제", "지난 달력",
    ],
)  # fmt: skip
def test_verbs_names_and_log_lines_name_no_period(question: str) -> None:
    assert named(question) is None


@pytest.mark.parametrize(
    ("question", "days"),
    [
        ("on 5 may", ("2026-05-05", "2026-05-06")), ("on march 7", ("2026-03-07", "2026-03-08")),
        ("what broke in early march", ("2026-03-01", "2026-03-11")), ("and in may?", ("2026-05-01", "2026-06-01")),
        ("the 7th of march", ("2026-03-07", "2026-03-08")), ("since 2026-03-07T09:30Z", ("2026-03-07", "2026-03-08")),
        ("as of 2026-03-07.", ("2026-03-07", "2026-03-08")), ("지난 주말", LAST_WEEK),
        ("the end of May", ("2025-05-21", "2025-06-01")),
    ],
)  # fmt: skip
def test_months_in_lower_case_and_dates_with_a_time_are_known(question: str, days: tuple[str, str]) -> None:
    assert named(question) == days


def test_the_days_of_this_machine_have_the_offset_of_their_season(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        found = period("in July", datetime(2026, 11, 20, 8))
    finally:
        monkeypatch.undo()
        time.tzset()
    assert found
    assert found.since == datetime(2026, 6, 30, 22, tzinfo=UTC)


def test_a_month_and_a_season_without_a_year_are_the_latest_ones() -> None:
    assert named("in May") == ("2026-05-01", "2026-06-01")
    assert named("in June") == ("2025-06-01", "2025-07-01")
    assert named("last May") == ("2025-05-01", "2025-06-01")
    assert named("in the summer", NOW.replace(month=6)) == ("2026-06-01", "2026-09-01")
    assert named("last summer", NOW.replace(month=6)) == ("2025-06-01", "2025-09-01")
    assert named("last winter", NOW.replace(month=1)) == ("2024-12-01", "2025-03-01")


PIECES = [
    "in", "on", "last", "march", "may", "week", "2", "two", "31", "2026", "0", "999", "ago", "days", "vor", "wochen",
    "im", "märz", "en", "mars", "上", "周", "三", "月", "3", "日", "前", "年", "십", "월", "전", "-", ".", " ", " ",
    "é", "spring", "the",
]  # fmt: skip


@given(
    st.text(max_size=60) | st.lists(st.sampled_from(PIECES), max_size=15).map("".join),
    st.datetimes(datetime(1970, 1, 1), datetime(2199, 12, 31)),
)
def test_a_period_of_any_question_has_days_and_words_of_it(question: str, at: datetime) -> None:
    now = at.replace(tzinfo=UTC)
    found = period(question, now)
    if found:
        assert timedelta(days=1) <= found.until - found.since <= timedelta(days=366)
        assert found.words.strip()
    assert period(question, now) == found


@given(st.dates(date(1990, 1, 1), date(2150, 1, 1)), st.integers(0, 4000))
def test_written_dates_are_found_again(day: date, before: int) -> None:
    now = datetime(day.year, day.month, day.day, 12, tzinfo=UTC) + timedelta(days=before)
    for written in (
        f"{day}",
        f"{day:%d.%m.%Y}",
        f"{day.year}年{day.month}月{day.day}日",
        f"{day.year}년 {day.month}월 {day.day}일",
    ):
        assert named(f"was war {written} los?", now) == (f"{day}", f"{day + timedelta(days=1)}")


def test_every_word_of_the_file_has_a_meaning() -> None:
    offsets = {"day", "week", "month", "year"}
    for kind, words in periods._lines().items():
        assert all(words), kind
        name = kind.split()[0]
        if name in offsets:
            found = [named(f"le … {word} …") for word in words]
            assert None not in found, (kind, words[found.index(None)])
            assert len(set(found)) == 1, kind
