"""The arguments of tools, as models write them."""

from __future__ import annotations

from typing import Any

import pytest

from hermes_memory_pgvector.errors import BadArgument
from hermes_memory_pgvector.tools import arguments


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (["Mail", "billing"], ("billing", "mail")),
        ("mail, billing", ("billing", "mail")),
        ('["mail", "billing"]', ("billing", "mail")),
        (' ["mail"] ', ("mail",)),
        ("[]", ()),
        ("", ()),
        (None, None),
    ],
)
def test_tags_may_be_a_list_or_a_text(written: Any, read: tuple[str, ...] | None) -> None:
    assert arguments.tags({"tags": written}, "tags") == read


@pytest.mark.parametrize("written", [7, '["mail", 7]', [["mail"]], "[" * 100_000])
def test_tags_of_another_form_are_refused(written: Any) -> None:
    with pytest.raises(BadArgument, match="tag"):
        arguments.tags({"tags": written}, "tags")
