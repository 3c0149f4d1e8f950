"""Which names of themes look like a person, and which do not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_memory_pgvector.text.personal_keys import canonical, kind, shown
from hermes_memory_pgvector.text.theme_names import normalise

PHONE, MAIL, USER = "a phone number", "a mail address", "the user id of a messenger"


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("+49 170 1234567", PHONE), ("+491701234567", PHONE), ("0049 170 1234567", PHONE),
        ("0170-1234567", PHONE), ("(0170) 1234567", PHONE), ("+1 (555) 123-4567", PHONE), ("555-123-4567", PHONE),
        ("＋４９ １７０ １２３４５６７", PHONE), ("tel:+491701234567", PHONE), ("sms:+49170123456", PHONE),
        ("4917055512345", PHONE), ("123456789", PHONE), ("175928847299117063", PHONE), ("crm/+491701234567", PHONE),
        ("Alice@Example.com", MAIL), ("mailto:alice@example.com", MAIL), ("user-alice.b+x@mail.example.co.uk", MAIL),
        ("49170123@s.whatsapp.net", MAIL), ("<alice@example.com>", MAIL), ("alice@exämple.de", MAIL),
        ("telegram:123456789", USER), ("telegram-user-123456789", USER), ("discord/175928847299117063", USER),
        ("slack:U024BE7LH", USER), ("signal:6f1e1c1e-8f5b-4d7e-9c1a-0123456789ab", USER), ("user:4917055512", USER),
        ("@alice:matrix.org", USER), ("matrix:@alice:example.org", USER), ("crm/telegram:123456789", USER),
    ],
)  # fmt: skip
def test_names_that_look_like_a_person(key: str, expected: str) -> None:
    assert kind(normalise(key)) == expected


@pytest.mark.parametrize(
    "key",
    [
        "billing", "default", "project/hermes", "intraday-2026-11-24", "2026-11-24", "20261124", "20261124-1500",
        "bench-2026-11", "tue-1500", "ticket-1234567", "build-1732473600", "v2.0.0", "release-1.26.0", "db-prod-01",
        "git@github.com:org/repo", "npm:@scope/package", "react@18.2.0", "root@localhost", "telegram", "telegram-bot-2",
        "signal-2026-11-24", "line-20261124", "user:42", "user-42", "team/7", "c++17", "utc+0200", "10.0.0.1",
        "2f5240d61cce4dd6a3cdac920e9e79be", "6f1e1c1e-8f5b-4d7e-9c1a-0123456789ab", "团队", "workflow42", "u2204server",
    ],
)  # fmt: skip
def test_names_of_work_do_not(key: str) -> None:
    assert kind(normalise(key)) == ""
    assert shown(normalise(key)) == normalise(key)


@given(st.integers(1, 999), st.lists(st.integers(10, 99), min_size=3, max_size=5), st.sampled_from(["", " ", "-", "."]))
def test_a_number_is_one_person_however_it_is_written(country: int, groups: list[int], sign: str) -> None:
    number = sign.join(map(str, groups))
    forms = {normalise(f"{prefix}{country}{sign}{number}") for prefix in ("+", "00", "+ ".strip(), "tel:+")}
    assert {canonical(form) for form in forms} == {f"+{country}{''.join(map(str, groups))}"}
    assert {kind(form) for form in forms} == {PHONE}
    assert {shown(form) for form in forms} == {f"({PHONE})"}


@given(st.text(max_size=300))
def test_any_name_has_a_kind_and_one_canonical_form(key: str) -> None:
    theme = normalise(key)
    assert kind(theme) in ("", PHONE, MAIL, USER)
    assert canonical(canonical(theme)) == canonical(theme)
