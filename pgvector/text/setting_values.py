"""Checks of the values of settings, beyond their types."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, create_model

Model = TypeVar("Model", bound=BaseModel)
PLACEHOLDER = re.compile(r"\{(project|profile|platform)\}")
Themes: TypeAlias = Annotated[list[str], Field(max_length=20)]


def from_json_text(value: Any) -> Any:
    """Parse lists and mappings that are given as JSON text, as in the environment."""
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        try:
            return json.loads(value)
        except ValueError as error:
            raise ValueError(f"not valid JSON: {error}") from None
    return value


_FORMS = {"list_type": '["one", "two"]', "dict_type": '{"name": "value"}'}
_BOOLEAN = {"bool_type", "bool_parsing"}


def reason(problem: Mapping[str, Any]) -> str:
    """Why pydantic refused a value, and how a list or a mapping is written."""
    if problem["type"] in _BOOLEAN:
        return "must be true or false"
    said = str(problem["msg"]).removeprefix("Value error, ").partition(", unable to ")[0]
    said = re.sub("^Input should be ", "must be ", said)
    form = _FORMS.get(str(problem["type"]))
    return f"{said}; as JSON, such as {form}" if form else said


def part(problem: Mapping[str, Any]) -> str:
    """The part of a value that pydantic refused, as it stands behind the name of the setting; empty for all of it."""
    names = (f"rule {name + 1}" if isinstance(name, int) else str(name) for name in problem["loc"][1:])
    return "".join(f", {name}" for name in names)


def checked(model: type[Model], given: Mapping[str, Any]) -> Model:
    """A model with these values of its fields, the other ones with their defaults. Raises ValidationError.

    Validators are built for the given fields alone: those of all settings take longer than a hook may.
    """
    values = _part_of(model, tuple(given))(**given)
    return model.model_construct(**{name: getattr(values, name) for name in given})


@lru_cache(maxsize=16)
def _part_of(model: type[BaseModel], names: tuple[str, ...]) -> type[BaseModel]:
    fields: dict[str, Any] = {
        name: (field.annotation, field) for name, field in model.model_fields.items() if name in names
    }
    return create_model("Given", __config__=model.model_config | {"defer_build": False}, **fields)


# Lists and mappings, which may be given as JSON text.
Texts: TypeAlias = Annotated[list[str], BeforeValidator(from_json_text)]
Names: TypeAlias = Annotated[dict[str, str], BeforeValidator(from_json_text)]
ThemesByTheme: TypeAlias = Annotated[dict[str, Themes], BeforeValidator(from_json_text)]
# A number for each theme or pattern; the first pattern that covers a theme counts.
Days: TypeAlias = Annotated[
    dict[str, Annotated[int, Field(ge=1, le=36_500)]], Field(max_length=100), BeforeValidator(from_json_text)
]
Limits: TypeAlias = Annotated[
    dict[str, Annotated[int, Field(ge=1, le=1_000_000_000)]], Field(max_length=100), BeforeValidator(from_json_text)
]
# Which themes may be read by which.
Readable: TypeAlias = Annotated[Literal["all", "none"] | dict[str, list[str]], BeforeValidator(from_json_text)]


def http_url(value: str) -> str:
    """The URL without a slash at its end; empty means unset."""
    if value and not value.startswith(("http://", "https://")):
        raise ValueError("must start with http:// or https://")
    return value.rstrip("/")


def absolute(value: str) -> str:
    """A path that does not depend on the folder of a process, or an empty one."""
    # Agents and commands start in different folders, and must find the same spool.
    if value and not os.path.isabs(os.path.expanduser(value)):
        raise ValueError("must be an absolute path, or start with ~ of a user that exists")
    return value


Folder: TypeAlias = Annotated[str, AfterValidator(absolute)]


def template(value: str) -> str:
    """A template of theme names, with no other names in braces than those of PLACEHOLDER."""
    if left := re.search(r"[{}][^{}]{0,40}", PLACEHOLDER.sub("", value)):
        raise ValueError(f"holds {left[0]!r}; the only names in braces are {{project}}, {{profile}} and {{platform}}")
    return value.strip()
