"""Events as records of bytes: JSON payloads, framed by `magic, length, crc32`."""

from __future__ import annotations

import json
import struct
import zlib
from dataclasses import fields
from datetime import datetime
from typing import get_args

from ..errors import BadEvent
from ..model import Event

MAGIC = b"\xf5hm1"
HEADER = struct.Struct("<4sII")
# Fields that release 2.0.0 does not know, left out without a value: of a record with one it makes a dead letter.
_LATER = frozenset({"supersedes", "expires", "tags"})
# `kind` is the kind of the event in a record.
_KEYS = {"kind": "fact_kind"}

_KINDS: dict[str, type[Event]] = {kind.__name__: kind for kind in get_args(Event)}


def encode(event: Event) -> bytes:
    """An event as ASCII JSON. Lone surrogates are kept; values of types that JSON lacks become strings.

    Metadata that cannot be encoded, such as a mapping that contains itself, is replaced by a marker.
    """
    values = {_KEYS.get(item.name, item.name): getattr(event, item.name) for item in fields(event)}
    values = {name: value for name, value in values.items() if name not in _LATER or value not in (0, "", None)}
    values = {"kind": type(event).__name__, **values, "at": event.at.isoformat()}
    try:
        text = json.dumps(values, default=str)
    except (TypeError, ValueError, RuntimeError) as error:
        text = json.dumps({**values, "metadata": {"dropped": f"not JSON ({type(error).__name__})"}})
    return text.encode("ascii")


def decode(payload: bytes) -> Event:
    """The event of a payload that `encode` made. Raises BadEvent for any other payload."""
    try:
        values = json.loads(payload)
        kind = _KINDS[values.pop("kind")]
        values["at"] = datetime.fromisoformat(values["at"])
        values.update({name: values.pop(key) for name, key in _KEYS.items() if key in values})
        if "turns" in values:
            values["turns"] = tuple((str(user), str(assistant)) for user, assistant in values["turns"])
        for name in ("surviving", "ancestors", "standing", "continued", "tags", "saves"):
            if name in values:
                values[name] = tuple(values[name])
        return kind(**values)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise BadEvent(f"a spooled record of {len(payload)} bytes cannot be read ({type(error).__name__})") from None


def frame(event: Event) -> bytes:
    """One whole record, to be written by a single call of `write`."""
    payload = encode(event)
    return HEADER.pack(MAGIC, len(payload), zlib.crc32(payload)) + payload
