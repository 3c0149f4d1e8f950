"""Names of themes that look like a person: phone numbers, mail addresses, user ids of messengers. Pure.

A name that looks like one to these patterns may be another thing, such as the number of a ticket.
"""

from __future__ import annotations

import functools
import re

NAMES_MAX = 1024
_DATE = re.compile(r"(?:19|20)\d\d[-.]?(?:0[1-9]|1[0-2])[-.]?(?:0[1-9]|[12]\d|3[01])(?:[-.t]?\d{4,6})?")
_PLATFORMS = (
    "telegram|tg|whatsapp|wa|signal|discord|slack|matrix|teams|msteams|sms|imessage|bluebubbles|wechat|weixin|wecom|line|"
    "viber|messenger|instagram|feishu|lark|dingtalk|qq|qqbot|mattermost|tel|phone|user|uid"
)
_ID = r"\d{5,20}|[uwd]\d[a-z0-9]{7,9}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_USER = re.compile(rf"(?:.*[:/|])?(?:{_PLATFORMS})[:/|=_-](?:(?:user|dm|private|chat|id)[:/|=_-])?({_ID})(?:[:/|].*)?")
_MAIL = re.compile(r"(?<![\w.+%-])(?!git@)[\w.+%-]+@(?:[\w-]+\.)+[^\W\d_]{2,}(?![\w.-])")
_MATRIX = re.compile(r"(?:^|[:/|])@[^\s:@/|]+:[\w-]+(?:\.[\w-]+)+")
_NUMBER = r"[\d().-]*\d"
# With the code of a country, that of an area, in the form of North America, or only digits.
_PHONE = re.compile(
    rf"(?:tel:)?(?:\(?(?P<country>\+|00)(?P<abroad>[1-9(]{_NUMBER})|(?P<home>\(?0[1-9(]{_NUMBER}"
    r"|\(\d{3}\)-?\d{3}[-.]\d{4}|\d{3}[-.]\d{3}[-.]\d{4}|\d{7,20}))"
)
_DIGITS_MIN, _DIGITS_MAX = 7, 15
# After `0`, fewer digits than in most numbers are a date or a version.
_HOME_DIGITS_MIN = 9


@functools.lru_cache(NAMES_MAX)
def kind(theme: str) -> str:
    """What a normalised name looks like, such as "a phone number"; empty when it looks like no person."""
    if _MAIL.search(theme):
        return "a mail address"
    if _phone(theme) or any(_phone(part).startswith("+") for part in re.split("[:/|]", theme)):
        return "a phone number"
    user = _USER.fullmatch(theme)
    if _MATRIX.search(theme) or (user and not _DATE.fullmatch(user[1])):
        return "the user id of a messenger"
    return ""


def canonical(theme: str) -> str:
    """The name of which a hash is made: one for all ways to write a phone number."""
    return _phone(theme) or theme


def shown(theme: str) -> str:
    """A theme as logs may have it."""
    looks_like = kind(theme)
    return f"({looks_like})" if looks_like else theme


def _phone(text: str) -> str:
    """A text that is a phone number and nothing else, as `+` and its digits, without `+` if it has no country."""
    found = _PHONE.fullmatch(text)
    if found is None or _DATE.fullmatch(text):
        return ""
    digits = re.sub(r"\D", "", found["abroad"] or found["home"])
    if found["country"]:
        return f"+{digits}" if _DIGITS_MIN <= len(digits) <= _DIGITS_MAX else ""
    least = _HOME_DIGITS_MIN if digits.startswith("0") else _DIGITS_MIN
    return digits if len(digits) >= least else ""
