"""The rules of the setting `keep`: their fields, the presets, and the engine of their patterns."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints, TypeAdapter

Action: TypeAlias = Literal["turns", "entries", "none"]
Side: TypeAlias = Literal["user", "assistant"]
Matcher: TypeAlias = Callable[[str], bool]
Named: TypeAlias = Annotated[str, Field(min_length=1, max_length=200)]

RULES_MAX = 100
PRESETS: dict[str, list[dict[str, str]]] = {
    "all": [],
    "owner": [{"author": "owner", "action": "turns"}, {"action": "none"}],
    "asked": [{"action": "entries"}],
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What is kept where all conditions hold: turns and entries (`turns`), entries alone (`entries`), or nothing.

    A condition that is not given always holds. `author` is the id of an account, or `owner`. With `role` the rule is
    about this side of turns alone. `pattern` is a regular expression that is found anywhere in a text, in any case.
    """

    # A mistyped condition must not make a rule that always holds.
    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid", "coerce_numbers_to_str": True}

    platform: Named = ""
    chat_type: Named = ""
    room: Named = ""
    author: Named = ""
    role: Side | None = None
    pattern: Annotated[str, Field(min_length=1, max_length=1000)] = ""
    action: Action


def expression(pattern: str) -> Matcher:
    """Finds a regular expression in a text. Raises ValueError.

    Pydantic brings the engine of Rust, which needs linear time; that of Python can be kept busy for hours by a line.
    """
    try:
        found: Matcher = TypeAdapter(
            Annotated[str, StringConstraints(pattern=f"(?i){pattern}")]
        ).validator.isinstance_python
    except Exception as error:
        reason = str(error).strip().rpartition("error: ")[2].rpartition("SchemaError: ")[2]
        raise ValueError(f"its pattern is no regular expression of Rust's regex: {reason}") from error
    return found


def _given(value: Any) -> Any:
    """The rules of a preset, or those given, also as JSON text."""
    if not isinstance(value, str):
        return value
    if value in PRESETS:
        return PRESETS[value]
    try:
        return json.loads(value)
    except ValueError:
        raise ValueError(f"must be {', '.join(PRESETS)}, or a list of rules") from None


def _checked(rule: Rule) -> Rule:
    if rule.pattern:
        expression(rule.pattern)
    return rule


Rules: TypeAlias = Annotated[
    list[Annotated[Rule, AfterValidator(_checked)]], BeforeValidator(_given), Field(max_length=RULES_MAX)
]
