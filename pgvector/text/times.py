"""Moments as people and models write them. Pure."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time, timedelta, tzinfo

from ..errors import BadArgument

_AGE = re.compile(r"([0-9]{1,5})([mhd])")
_UNITS = {"m": timedelta(minutes=1), "h": timedelta(hours=1), "d": timedelta(days=1)}


def since(text: str, name: str = "since", zone: tzinfo | None = UTC) -> datetime | None:
    """The first moment of what `text` names: a date like 2026-11-21, or a date and a time.

    What tells no zone is in `zone`; None is that of this machine. An age like 30m, 12h or 7d is so long ago.
    None for an empty text. Raises BadArgument that names the argument `name`.
    """
    return _moment(text, name, timedelta(0), zone)


def until(text: str, name: str = "until", zone: tzinfo | None = UTC) -> datetime | None:
    """The first moment after what `text` names: a date is meant to its end. Otherwise as `since`."""
    return _moment(text, name, timedelta(days=1), zone)


def check_order(start: datetime | None, end: datetime | None, name: str = "until") -> None:
    """Raise BadArgument when nothing can lie between the two."""
    if start is not None and end is not None and end <= start:
        raise BadArgument(f"{name} is not after since; swap them or leave one out")


def utc(at: datetime) -> datetime:
    """A time in UTC; one without a zone is taken for UTC."""
    return at.astimezone(UTC) if at.tzinfo else at.replace(tzinfo=UTC)


def _moment(text: str, name: str, whole_day: timedelta, zone: tzinfo | None) -> datetime | None:
    text = text.strip()
    if not text:
        return None
    try:
        if age := _AGE.fullmatch(text):
            return datetime.now(UTC) - int(age[1]) * _UNITS[age[2]]
        if len(text) <= len("2026-11-21"):
            moment = datetime.combine(date.fromisoformat(text), time()) + whole_day
        else:
            moment = datetime.fromisoformat(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=zone)).astimezone(UTC)
    except (ValueError, OverflowError, OSError):
        raise BadArgument(
            f"{name} is {text[:40]!r}; it must be a date like 2026-11-21, a time like 2026-11-21T09:30Z, "
            "or an age like 7d"
        ) from None
