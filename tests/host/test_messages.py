"""A message with parts is the same text here and in the host, which replays it in parts and hands it over as a text."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_memory_pgvector.hosts.transcript import text_of

if TYPE_CHECKING:
    from conftest import Host

PARTS: list[Any] = [
    "bare words",
    {"type": "text", "text": " words with a blank before and a line after\n"},
    {"type": " Input_Text", "text": "words"},
    {"type": "output_text", "text": ""},
    {"type": "text", "text": 7},
    {"type": "text"},
    {"type": "image_url", "image_url": {"url": "data:,"}},
    {"type": "input_image"},
    {"type": "image"},
    {"type": "thinking", "text": "hm"},
    {"text": "words of no type"},
    None,
    ["words"],
]


def test_parts_are_put_together_as_the_host_does(host: Host, tmp_path: Path) -> None:
    contents = ["words", "", None, [], *([part] for part in PARTS), *map(list, product(PARTS, PARTS)), PARTS * 2]
    assert host.script("flatten_messages.py", json.dumps(contents), home=tmp_path) == list(map(text_of, contents))
