"""Reads the arguments of a tool call, which a model wrote; each function raises BadArgument with the argument's name.

Pydantic would need a validator for every type here to give the same error texts.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Any, TypeVar

from ..errors import BadArgument
from ..text.cleaning import clean, clean_metadata
from ..text.tags import normalised

Arguments = Mapping[str, Any]
Name = TypeVar("Name", bound=str)


def schema(
    name: str, description: str, properties: Mapping[str, Any], required: Collection[str] = ()
) -> dict[str, Any]:
    """The schema of a tool with these arguments."""
    parameters = {"type": "object", "properties": properties} | ({"required": list(required)} if required else {})
    return {"name": name, "description": description, "parameters": parameters}


def with_argument(schema: Mapping[str, Any], name: str, argument: Mapping[str, Any]) -> dict[str, Any]:
    """The schema with one argument more, or with this one in place of that of the same name."""
    parameters = schema["parameters"]
    return {**schema, "parameters": {**parameters, "properties": {**parameters["properties"], name: argument}}}


def check(schema: Mapping[str, Any], arguments: Any) -> None:
    """Raise BadArgument unless the arguments are an object with known names only."""
    if not isinstance(arguments, Mapping):
        raise BadArgument(f"the arguments are a {type(arguments).__name__}; they must be an object")
    known = schema["parameters"]["properties"]
    for name in arguments:
        if name not in known:
            raise BadArgument(f"unknown argument {str(name)[:60]!r}; {schema['name']} takes {', '.join(known)}")


def text(arguments: Arguments, name: str) -> str:
    """A string, empty when it is missing."""
    value = arguments.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise BadArgument(f"{name} is a {type(value).__name__}; it must be a string")
    return value


def question(arguments: Arguments, name: str) -> str:
    """A text that says what to look for."""
    asked = clean(text(arguments, name)).strip()
    if not asked:
        raise BadArgument(f"{name} is missing or empty; say what to look for")
    return asked


def choice(arguments: Arguments, name: str, choices: Collection[Name]) -> Name | None:
    """One of `choices`; None when it is missing or empty."""
    value = text(arguments, name)
    for known in choices:
        if value == known:
            return known
    if value:
        raise BadArgument(f"{name} is {value[:40]!r}; it must be one of {', '.join(choices)}")
    return None


def whole(arguments: Arguments, name: str, least: int, most: int) -> int | None:
    """A whole number from `least` to `most`, also as the text of one; None when it is missing."""
    value = arguments.get(name)
    if value is None:
        return None
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        number = least - 1
    exact = not isinstance(value, bool) and (not isinstance(value, float) or value.is_integer())
    if not exact or not least <= number <= most:
        raise BadArgument(f"{name} is {_described(value)}; it must be a whole number from {least} to {most}")
    return number


def switch(arguments: Arguments, name: str) -> bool:
    """True or false, also as a word; false when it is missing."""
    value = arguments.get(name)
    known = {True: True, False: False, None: False, "true": True, "false": False, "": False}
    try:
        return known[value.strip().lower() if isinstance(value, str) else value]
    except (KeyError, TypeError):
        raise BadArgument(f"{name} is {_described(value)}; it must be true or false") from None


def mapping(arguments: Arguments, name: str, chars_max: int) -> dict[str, Any]:
    """An object of at most `chars_max` characters as JSON, as it can be stored; empty when it is missing."""
    value = arguments.get(name)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise BadArgument(f"{name} is a {type(value).__name__}; it must be an object")
    try:
        chars = len(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError, RecursionError):
        raise BadArgument(f"{name} is not JSON; it may hold texts, finite numbers, lists and objects") from None
    if chars > chars_max:
        raise BadArgument(f"{name} has {chars} characters as JSON; it may have {chars_max}")
    # Before its names are looked at: two names may be the same one once they are stored.
    return clean_metadata(value)


def tags(arguments: Arguments, name: str) -> tuple[str, ...] | None:
    """Tags in their normal form, also as one text, with commas or as JSON; None when they are missing."""
    value = arguments.get(name)
    if isinstance(value, str) and value.lstrip().startswith("["):
        with suppress(ValueError, RecursionError):
            value = json.loads(value)
    if isinstance(value, str):
        value = [part for part in value.split(",") if part.strip()]
    if value is None:
        return None
    if not isinstance(value, list | tuple) or not all(isinstance(tag, str) for tag in value):
        raise BadArgument(f"{name} is {_described(value)}; it must be a list of strings")
    return normalised(value, name)


def _described(value: Any) -> str:
    return repr(value)[:40] if isinstance(value, str | int | float | None) else f"a {type(value).__name__}"
