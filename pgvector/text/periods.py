"""The days that a question is about: "last week", "vor zwei Wochen", "en mars", "上周", "2026-03-01". Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, date, datetime, time, timedelta
from functools import cache
from pathlib import Path
from typing import TypeAlias

from ..model import Period
from .cleaning import UNSPACED_FROM, compatible

QUESTION_CHARS_MAX = 1000
AGO_MAX = 999
DAYS_OF = {"day": 1, "week": 7, "month": 30, "year": 365}
# Of a month: the days with which its beginning and its middle end.
PARTS = (10, 20)
SEASON_MONTHS = 3

_WORD = re.compile(r"\w+")
_YEAR = r"(?:19|20|21)\d\d"
# Dates in names of files, versions and models, and the times of log lines, say nothing about when something was said.
_ALONE, _NO_NAME = r"(?<![a-z0-9_=./-])", r"(?!\d|[-_][a-z0-9]|\.[a-z0-9]|[t ]\d\d:\d\d:\d\d)"
_ISO = re.compile(rf"{_ALONE}({_YEAR})[-/.]([01]?\d)[-/.]([0-3]?\d){_NO_NAME}")
_IDEOGRAPHIC = re.compile(rf"(?:({_YEAR})\s*[年년]\s*)?(?<!\d)([01]?\d)\s*[月월]\s*([0-3]?\d)\s*[日号號일]")
_DAY_FIRST = re.compile(rf"{_ALONE}([0-3]?\d)\.\s?([01]?\d)\.\s?({_YEAR}){_NO_NAME}")

# A word of a French question that no German one has: "hier" is "here" there.
_FRENCH = re.compile(
    r"\b(?:le|la|les|l|d|qu|que|qui|quoi|quel|quelle|est|où|pourquoi|comment|nous|on|il|elle|je|tu|a)\b"
)

# "May" and "March" in lower case or at the beginning of a sentence are verbs, unless a preposition stands before them.
_BEFORE_MONTH = "".join(
    rf"(?<!\b{preposition} {between})"
    for preposition in ("in", "of", "on", "by", "during", "last", "since", "until", "from", "before", "after")
    for between in ("", r"\d ", r"\d\d ", "early ", "mid ", "late ")
)
_VERB = re.compile(
    rf"(?=[Mm]a)(?:{_BEFORE_MONTH}(?<!\d(?:st|nd|rd|th) )\b(?:may|march)|(?:^|(?<=[.!?] ))(?:May|March))\b"
    r"(?! \d\d?(?:st|nd|rd|th))"
)
# "Spring Boot", "fall back".
_NO_SEASON = r"(?!\W(?:boot|security|data|mvc|cloud|framework|batch|bean|back|through)|through)"
# "이번 주문" is "this order", and "지난 달력" the last calendar.
_NO_UNIT = {"주": "(?![문제소인])", "달": "(?![력리])"}

Days: TypeAlias = tuple[date, date]
_Finder: TypeAlias = Callable[[str, date], Iterator[tuple[Days, str]]]


def period(question: str, now: datetime) -> Period | None:
    """The period that a question names, the latest one that has begun; None if it names none.

    `now` has the time zone of the person who asks; without one, it is in that of this machine. Of several periods in a
    question one is taken: a date before a month, and that before "last week". The northern hemisphere has the seasons.
    """
    folded = _VERB.sub("_", compatible(question[:QUESTION_CHARS_MAX])).casefold()
    held, unspaced = set(_WORD.findall(folded)), not folded.isascii() and max(folded) >= UNSPACED_FROM
    for found, lasts in ((_dates, None), *_last_words().items()):
        if lasts and not unspaced and held.isdisjoint(lasts):
            continue
        for (first, end), words in found(folded, now.date()):
            since, until = (datetime.combine(day, time(), now.tzinfo).astimezone(UTC) for day in (first, end))
            return Period(since, until, words)
    return None


def _dates(text: str, today: date) -> Iterator[tuple[Days, str]]:
    for pattern, order in ((_ISO, (1, 2, 3)), (_IDEOGRAPHIC, (1, 2, 3)), (_DAY_FIRST, (3, 2, 1))):
        for match in pattern.finditer(text):
            year, month, day = (match[place] for place in order)
            if days := _one_day(int(year) if year else None, int(month), int(day), today):
                yield days, match[0]


def _months(text: str, today: date) -> Iterator[tuple[Days, str]]:
    names = _numbers("name")
    for match in _month_pattern().finditer(text):
        name, day = match["name"], match["day"] or match["day_after"]
        year = int(match["year"]) if match["year"] else _year_in(text, today)
        # "May" and "March" have other meanings.
        sure = match["before"] or match["part"] or match["year"] or day or _unspaced(name) or name in _lines()["alone"]
        if not sure:
            continue
        month = names[name]
        if day:
            days = _one_day(year, month, int(day), today)
        else:
            part = _numbers("part").get(match["part"] or "", 0)
            begins = PARTS[part - 2] + 1 if part > 1 else 1
            latest = _latest_year(month, begins, today) - _is_last(match[0], month, 1, today)
            days = _part(_month(year or latest, month), part)
        if days:
            yield days, match[0].strip()


def _ago(text: str, today: date) -> Iterator[tuple[Days, str]]:
    counts, units = _numbers("number"), _units()
    for pattern in _ago_patterns():
        for match in pattern.finditer(text):
            written = match.groupdict().get("n") or "1"
            count = int(written) if written.isdecimal() else counts[written]
            unit = units[match["u"]]
            if not 0 < count <= AGO_MAX:
                continue
            try:
                middle = today - timedelta(days=count * DAYS_OF[unit])
                # Nobody means the exact day.
                around = timedelta(days=DAYS_OF[unit] // 2)
                days = (middle - around, middle + around + timedelta(days=1))
            except OverflowError:
                continue
            yield days, match[0].strip()


def _offsets(text: str, today: date) -> Iterator[tuple[Days, str]]:
    pattern, kinds = _offset_pattern()
    for match in pattern.finditer(text):
        unit, offset = kinds[" ".join(_WORD.findall(match[0]))]
        if match[0] not in _lines()["french"] or _FRENCH.search(text):
            yield _shifted(unit, offset, today), match[0]


def _seasons(text: str, today: date) -> Iterator[tuple[Days, str]]:
    for match in _season_pattern().finditer(text):
        month = _numbers("season")[match["name"]]
        if match["year"]:
            year = int(match["year"])
        else:
            year = _latest_year(month, 1, today) - _is_last(match[0], month, SEASON_MONTHS, today)
        last = month + SEASON_MONTHS - 1
        yield (date(year, month, 1), _month(year + last // 13, (last - 1) % 12 + 1)[1]), match[0].strip()


def _one_day(year: int | None, month: int, day: int, today: date) -> Days | None:
    try:
        first = date(year or _latest_year(month, day, today), month, day)
    except ValueError:
        return None
    return first, first + timedelta(days=1)


def _month(year: int, month: int) -> Days:
    return date(year, month, 1), date(year + month // 12, month % 12 + 1, 1)


def _part(days: Days, part: int) -> Days:
    """The beginning (1), the middle (2) or the end (3) of a month, or all of it (0)."""
    first, end = days
    bounds = [first, *(first + timedelta(days=day) for day in PARTS), end]
    return (bounds[part - 1], bounds[part]) if part else days


def _latest_year(month: int, day: int, today: date) -> int:
    return today.year if (month, day) <= (today.month, today.day) else today.year - 1


def _is_last(words: str, month: int, months: int, today: date) -> bool:
    """Whether words mean the one before those months that today lies in: "last summer" in June."""
    return (today.month - month) % 12 < months and _last_pattern().search(words) is not None


def _year_in(text: str, today: date) -> int | None:
    pattern, kinds = _offset_pattern()
    for match in pattern.finditer(text):
        unit, offset = kinds[" ".join(_WORD.findall(match[0]))]
        if unit == "year":
            return today.year + offset
    return None


def _shifted(unit: str, offset: int, today: date) -> Days:
    """The day, week, month or year so many before this one."""
    if unit == "day":
        first = today + timedelta(days=offset)
        return first, first + timedelta(days=1)
    if unit == "week":
        first = today + timedelta(days=7 * offset - today.weekday())
        return first, first + timedelta(days=7)
    if unit == "month":
        months = 12 * today.year + today.month - 1 + offset
        return _month(months // 12, months % 12 + 1)
    return date(today.year + offset, 1, 1), date(today.year + offset + 1, 1, 1)


@cache
def _lines() -> dict[str, list[str]]:
    lines = Path(__file__).with_name("periods.txt").read_text(encoding="utf-8").splitlines()
    return {kind: rest.split("|") for kind, _, rest in (line.partition(": ") for line in lines)}


@cache
def _last_words() -> dict[_Finder, frozenset[str]]:
    """For each kind of periods, in the order in which they are tried, the words with one of which each of them ends.

    Those of scripts without spaces between words are left out. The patterns take long, and most questions have none.
    """
    words: dict[_Finder, Iterable[str]] = {
        _months: _numbers("name"),
        _ago: _units(),
        _offsets: _offset_pattern()[1],
        _seasons: _numbers("season"),
    }
    return {
        found: frozenset(_WORD.findall(word)[-1] for word in names if not _unspaced(word))
        for found, names in words.items()
    }


@cache
def _numbers(kind: str) -> dict[str, int]:
    """The numbers that words of a kind stand for."""
    return {
        word: int(name.split()[1])
        for name, words in _lines().items()
        if name.startswith(f"{kind} ")
        for word in words
        if name.split()[1].isdecimal()
    }


@cache
def _units() -> dict[str, str]:
    return {word: name.split()[1] for name, words in _lines().items() if name.startswith("unit ") for word in words}


def _any(words: Iterable[str]) -> str:
    """A pattern of these words, the longest first: whole words where a script has spaces between them."""
    known = sorted(words, key=len, reverse=True)
    spaced = "|".join(r"\W+".join(word.split()) for word in known if not _unspaced(word))
    unspaced = "|".join(r"\s*".join(word.split()) + _NO_UNIT.get(word[-1], "") for word in known if _unspaced(word))
    return "|".join(filter(None, (rf"\b(?:{spaced})\b" if spaced else "", unspaced)))


def _unspaced(word: str) -> bool:
    return word[-1] >= UNSPACED_FROM


@cache
def _month_pattern() -> re.Pattern[str]:
    lines = _lines()
    part, name = _any(_numbers("part")), _any(_numbers("name"))
    return re.compile(
        rf"(?:(?P<before>{_any(lines['before name'])})\W+)?(?:(?P<part>{part})(?:\W+(?:of|de|di|do))?\W*)?"
        rf"(?:(?<!\d)(?P<day>[0-3]?\d)(?:\W+|st |nd |rd |th )(?:(?:of|de)\W+)?)?(?<![\d十])(?P<name>{name})"
        rf"(?:\W+(?P<day_after>[0-3]?\d)(?:st|nd|rd|th)?\b(?!\d))?(?:\W+(?:(?:of|de|del)\W+)?(?P<year>{_YEAR})\b)?"
        rf"(?:\W+(?:{_any(lines['last'])}))?"
    )


@cache
def _ago_patterns() -> list[re.Pattern[str]]:
    number = rf"(?P<n>\b\d{{1,3}}|{_any(_numbers('number'))})"
    unit = rf"(?P<u>{_any(_units())})"
    patterns = []
    for template in _lines()["ago"]:
        words = r"\W+".join(template.split()) if " " in template else template.replace("}{", r"}\s*{")
        patterns.append(re.compile(words.replace("{n}", number).replace("{u}", unit)))
    return patterns


@cache
def _offset_pattern() -> tuple[re.Pattern[str], dict[str, tuple[str, int]]]:
    """A pattern of words such as "yesterday" and "last week", and for each a unit and how many of it from now."""
    kinds = {
        word: (name.split()[0], int(name.split()[1]))
        for name, words in _lines().items()
        if name.split()[0] in DAYS_OF
        for word in words
    }
    return re.compile(_any(kinds)), kinds


@cache
def _season_pattern() -> re.Pattern[str]:
    before, name, last = _any(_lines()["before season"]), _any(_numbers("season")), _any(_lines()["last"])
    return re.compile(
        rf"(?:{before})\W*(?P<name>{name}){_NO_SEASON}(?:\W+(?:(?:of|de)\W+)?(?P<year>{_YEAR})\b)?(?:\W+(?:{last}))?"
    )


@cache
def _last_pattern() -> re.Pattern[str]:
    return re.compile(_any(_lines()["last"]))
