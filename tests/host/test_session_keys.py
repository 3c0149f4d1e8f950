"""Every session key that a host makes is one theme per person in private and per room in groups."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from hermes_memory_pgvector.errors import BadArgument
from hermes_memory_pgvector.session import themes
from hermes_memory_pgvector.session.identity import Identity
from hermes_memory_pgvector.text import theme_names

if TYPE_CHECKING:
    from conftest import Host

KEY = b"a key of the operator"


@pytest.fixture
def keys(host: Host, tmp_path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = host.script("session_keys.py", home=tmp_path)
    assert len(found) > 500
    return found


def themes_of(keys: list[dict[str, Any]], *, told: bool) -> dict[tuple[str, str, str], set[str]]:
    """The themes of each profile, platform and place; `told`: whether the object was made for this very session."""
    found: dict[tuple[str, str, str], set[str]] = {}
    for item in keys:
        made_for = item["key"] if told else "agent:main:telegram:dm:somebody-else"
        arguments = {**item["told"], "gateway_session_key": made_for, "agent_identity": "default"}
        theme = themes.theme_of(Identity.of(arguments), item["key"], aliases={}, person_key=KEY)
        found.setdefault((item["profile"], item["platform"], item["place"]), set()).add(theme)
    return found


@pytest.mark.parametrize("told", [True, False], ids=["with what the host tells", "by the key alone"])
def test_one_theme_per_person_and_room_from_every_key_that_the_host_makes(
    keys: list[dict[str, Any]], told: bool
) -> None:
    if not told:
        # Without a chat and its id in the key, only what the host tells says who it is.
        keys = [item for item in keys if item["told"]["chat_id"]]
    found = themes_of(keys, told=told)
    assert {place: names for place, names in found.items() if len(names) > 1} == {}
    names = [name for (name,) in found.values()]
    assert len(set(names)) == len(names), "two persons or rooms share a theme"
    for (_, _, place), (name,) in found.items():
        assert theme_names.reserved(name)
        assert name.startswith("group-") == place.startswith("room ")


def test_no_part_of_a_key_is_in_a_theme(keys: list[dict[str, Any]]) -> None:
    for names, item in zip(themes_of(keys, told=True).values(), keys, strict=False):
        ids = [str(value) for name, value in item["told"].items() if value and name not in ("platform", "chat_type")]
        assert not any(value.lower() in name for value in ids if len(value) > 4 for name in names)


def test_nobody_can_name_such_a_session_in_a_header(keys: list[dict[str, Any]]) -> None:
    for item in keys:
        for header in (item["key"], item["key"].upper()):
            identity = Identity(gateway_session_key=header, platform="api_server")
            with pytest.raises(BadArgument):
                themes.theme_of(identity, aliases={}, person_key=KEY)
