"""Reads and writes times as people and models give them."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time, timedelta, tzinfo

from ..errors import BadArgument

_AGE = re.compile(r"([0-9]{1,5})([mhd])")
_UNITS = {"m": timedelta(minutes=1), "h": timedelta(hours=1), "d": timedelta(days=1)}
NEVER = "never"
EXPIRY_MIN, EXPIRY_MAX = timedelta(minutes=1), timedelta(days=3660)
_SPAN = re.compile(r"([0-9]{1,7})\s*([a-z]+)")
_SPANS = {
    **dict.fromkeys(("m", "min", "minute", "minutes"), timedelta(minutes=1)),
    **dict.fromkeys(("h", "hour", "hours"), timedelta(hours=1)),
    **dict.fromkeys(("d", "day", "days"), timedelta(days=1)),
    **dict.fromkeys(("w", "week", "weeks"), timedelta(weeks=1)),
    **dict.fromkeys(("month", "months"), timedelta(days=30)),
    **dict.fromkeys(("y", "year", "years"), timedelta(days=365)),
}


def since(text: str, name: str = "since", zone: tzinfo | None = UTC) -> datetime | None:
    """The start of the date or time in `text`, in UTC; None for an empty text.

    `text` is a date like 2026-11-21, a date and a time, or an age like 30m, 12h or 7d. A time without a zone is in
    `zone`; None is the zone of this machine. Raises BadArgument that names the argument `name`.
    """
    return _parse(text, name, timedelta(0), zone)


def until(text: str, name: str = "until", zone: tzinfo | None = UTC) -> datetime | None:
    """The end of the date, or the time, in `text`. Otherwise as `since`."""
    return _parse(text, name, timedelta(days=1), zone)


def check_order(start: datetime | None, end: datetime | None, name: str = "until") -> None:
    """Raise BadArgument unless `start` is before `end`; either may be missing."""
    if start is not None and end is not None and end <= start:
        raise BadArgument(f"{name} is not after since; swap them or leave one out")


def expiry(text: str, at: datetime, name: str = "expires", zone: tzinfo | None = UTC) -> str:
    """When something ends that is said at `at`: a time in UTC as ISO 8601, `never`, or "" for an empty text.

    `text` is a time span like 14d, 12h or 3 weeks, a date, which counts to its end, a date and a time, or `never`. A
    month has 30 days, a year 365. Raises BadArgument that names the argument `name`, also for an end that is less than
    EXPIRY_MIN or more than EXPIRY_MAX away.
    """
    wanted = text.strip().lower()
    if wanted in ("", NEVER):
        return wanted
    try:
        if span := _SPAN.fullmatch(wanted):
            end = at + int(span[1]) * _SPANS[span[2]]
        elif len(wanted) <= len("2026-11-21"):
            end = datetime.combine(date.fromisoformat(wanted), time(), zone) + timedelta(days=1)
        else:
            end = datetime.fromisoformat(text.strip())
        end = (end if end.tzinfo else end.replace(tzinfo=zone)).astimezone(UTC)
    except (ValueError, OverflowError, OSError, KeyError):
        raise BadArgument(
            f"{name} is {text[:40]!r}; it must be a time span like 14d, 12h or 3 weeks, a date like 2026-12-31, a time "
            "like 2026-12-31T18:00Z, or never"
        ) from None
    if not EXPIRY_MIN <= end - at <= EXPIRY_MAX:
        raise BadArgument(
            f"{name} is {text[:40]!r}, which ends at {utc_text(end)}; it must end between a minute and "
            f"{EXPIRY_MAX.days} days from now, or never"
        )
    return end.isoformat()


def utc(at: datetime) -> datetime:
    """A time in UTC; one without a zone is taken as UTC."""
    return at.astimezone(UTC) if at.tzinfo else at.replace(tzinfo=UTC)


def local(at: datetime, zone: tzinfo | None) -> datetime:
    """A time in a zone, None being that of this machine; in UTC when it is too early or too late for that."""
    try:
        return utc(at).astimezone(zone)
    except (OverflowError, OSError, ValueError):
        return utc(at)


def utc_text(at: datetime) -> str:
    """A time in UTC to the second, like 2026-11-21T09:30:00Z."""
    return utc(at).isoformat(timespec="seconds").replace("+00:00", "Z")


def _parse(text: str, name: str, whole_day: timedelta, zone: tzinfo | None) -> datetime | None:
    text = text.strip()
    if not text:
        return None
    try:
        if age := _AGE.fullmatch(text):
            return datetime.now(UTC) - int(age[1]) * _UNITS[age[2]]
        if len(text) <= len("2026-11-21"):
            at = datetime.combine(date.fromisoformat(text), time()) + whole_day
        else:
            at = datetime.fromisoformat(text)
        return (at if at.tzinfo else at.replace(tzinfo=zone)).astimezone(UTC)
    except (ValueError, OverflowError, OSError):
        raise BadArgument(
            f"{name} is {text[:40]!r}; it must be a date like 2026-11-21, a time like 2026-11-21T09:30Z, "
            "or an age like 7d"
        ) from None
