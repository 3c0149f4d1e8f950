"""Reasons why a text looks like an attack on the agent that reads it. Pure.

A reason needs several words of one language in one sentence, which `suspicion.txt` has by what they mean: a verb alone,
such as `ignore`, is no reason. A sentence that speaks about attacks is none either, unless it begins as a command.
"""

from __future__ import annotations

import base64
import binascii
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from cachetools import LRUCache

from .cleaning import compatible
from .skeleton import skeleton
from .vocabulary import Vocabulary


@dataclass(frozen=True, slots=True)
class Sign:
    """An expression, searched only in a text with one of these words."""

    words: tuple[str, ...]
    pattern: re.Pattern[str]


KNOWN_MAX = 5_000
TEXT_CHARS_MAX = 20_000
SENTENCE_CHARS_MAX, OVERLAP_CHARS = 600, 200
ENCODED_MAX, ENCODED_CHARS_MIN = 8, 32
# What has to be in one sentence. The first meaning is looked for first.
_RULES = (
    ("overrides instructions", ("ignore", "rules", "earlier")),
    ("overrides instructions", ("drop", "own")),
    ("overrides instructions", ("own", "void")),
    ("overrides instructions", ("obeyonly",)),
    ("overrides instructions", ("ignore", "taught")),
    ("overrides instructions", ("ignore", "own")),
    ("overrides instructions", ("addto", "constitution")),
    ("frees the agent of its rules", ("disable", "safety")),
    ("frees the agent of its rules", ("safety", "void")),
    ("gives the agent another role", ("role", "freed")),
    ("gives the agent another task", ("task",)),
    ("asks for what is hidden", ("reveal", "hidden")),
    ("asks for what is hidden", ("recite", "prompted")),
    ("asks for what is hidden", ("demand", "own")),
    ("asks for what is hidden", ("stash", "recite")),
    ("asks for what is hidden", ("stash", "task")),
    ("calls itself a standing order", ("directive",)),
    ("hides something from the user", ("conceal",)),
    ("hides something from the user", ("hush", "this", "audience")),
    ("hides something from the user", ("hush", "asked")),
    ("hides something from the user", ("covert", "alter", "yours")),
    ("plants something in answers", ("promote", "reply")),
    ("plants something in answers", ("insert", "thing", "reply")),
    ("asks to act without approval", ("unasked", "powers", "every")),
    ("asks to act without approval", ("unasked", "money", "standing")),
    ("asks to act without approval", ("consented", "youmay")),
    ("claims authority over the agent", ("authority", "permit")),
    ("claims authority over the agent", ("comply",)),
    ("claims authority over the agent", ("holder", "privilege", "keepit")),
    ("speaks to whoever reads it", ("ai", "send", "loot")),
    ("speaks to whoever reads it", ("ai", "recite", "stash")),
    ("speaks to whoever reads it", ("ai", "recite", "prompted")),
    ("speaks to whoever reads it", ("ai", "ignore", "rules")),
    ("replaces what the agent knows", ("wipe", "memories", "instead")),
    ("asks to decode and obey", ("decode", "carryout")),
    ("sends data away", ("send", "loot", "address")),
)
# A text that may be by anybody needs no more than this: a person may say so to an assistant, a web page may not.
_RULES_OUTSIDE = (("tells an assistant what to do", ("helper", "ought")),)
# Meanings that a negation makes harmless: "never reveal the system prompt", "vergiss nicht".
_NEGATED = ("ignore", "reveal", "recite", "demand", "send", "drop", "disable", "addto", "promote", "insert", "wipe")
_ANY_CASE = re.IGNORECASE
_SIGNS = {
    "forges the fence of memories": Sign(
        ("context",), re.compile(r"[<\[{]\s*/?\s*memory[\s_.-]{0,3}context", _ANY_CASE)
    ),
    "speaks as the system": Sign(
        ("system", "developer", "admin"),
        re.compile(
            r"(?:^|[.!?\n]\s{0,9}|<\|im_start\|>|<!--\s{0,9}|<)(?:system|developer|admin(?:istrator)?)"
            r"(?: (?:message|note|override|prompt|update))?\s{0,3}(?:[:>\n]|\|>)\s{0,3}"
            r"(?:(?:you|the assistant|assistant|agents?|the model) (?:must|are|will|now|should)|ignore"
            r"|override|new instructions?|from now|disregard|reveal|obey)",
            _ANY_CASE,
        ),
    ),
    "stores a command for later": Sign(
        ("[",),
        re.compile(r"\[(?:MEMORY|SYSTEM)_[A-Z_]{3,20}\]|(?:\[\w{0,20}_?memory=[^\]\n]{1,200}\]\s{0,3}){2}"),
    ),
    "sets a protected key": Sign(
        ("identity", "system", "agent", "assistant", "safety"),
        re.compile(
            # In capitals it is a constant of a program.
            r"(?:^|[:\n]\s{0,3})\W{0,3}(?:[Ii]dentity|[Ss]ystem|[Aa]gent|[Aa]ssistant)[._](?:[Rr]oles?|[Pp]ermissions?"
            r"|[Pp]rompt|[Pp]ersona|[Pp]rivileges?)[\"']?\s{0,3}[:=]"
            r"|\b(?:bypass_\w{0,20}safety|safety_(?:enabled|mode))\b[^\n]{0,20}?(?:[Tt]rue|[Ff]alse|off|none)\b"
        ),
    ),
    "sends data by an image": Sign(
        ("http",),
        re.compile(
            r"(?:!\[[^\]\n]{0,100}\]\(\s{0,3}<?|<img\b[^>\n]{0,200}\ssrc\s?=\s?[\"']?)https?://[^\s)\"'>]{1,300}"
            r"[?&](?:(?:q|d|c|data|content|secret|password|history|msg|text|payload|leak|exfil|log)="
            r"|\w{1,20}=(?:[{\[<]|(?-i:[A-Z_]{5,40}(?![\w-]))))",
            _ANY_CASE,
        ),
    ),
    "sends data by a link": Sign(
        ("http",),
        re.compile(
            r"https?://[^\s)\"'>]{1,300}[?&]\w{1,20}=[{\[<]{1,2}\s?(?:\w{1,20}[_ ])?"
            r"(?:conversations?|chat|history|memory|memories|system_?prompt|secrets|credentials|passwords|user_?data)"
            r"(?:_history|_log)?\s?[}\]>]",
            _ANY_CASE,
        ),
    ),
    "calls a tool in its text": Sign(
        ("tool", "function", "invoke"),
        re.compile(
            r"[<\[]\|?(?:tool_calls?|function_calls?|invoke|tool_use|[a-z]{1,10}:invoke|function=)\b[\s\S]{0,300}?"
            r"(?:send|mail|delete|transfer|upload|forward|passw|secret|credential|forget|memor)",
            _ANY_CASE,
        ),
    ),
    "frees the agent of its rules": Sign(
        ("thing now", "freed", "free of", "free from", " mode"),
        re.compile(
            r"\b(?:you|that|who) can do any\s?thing now\b"
            r"|\byou (?:are|have been) (?:now )?freed? (?:from|of) (?:all|any|your)\b"
            r"|\b(?:developer|god|dan) mode (?:is )?(?:now )?(?:on|enabled|activated)\b",
            _ANY_CASE,
        ),
    ),
}
_SENTENCE = re.compile(r"[.!?。！？\n]+(?=\s|$|[^\x00-\x7f])|\n")
_ENCODED = re.compile(r"(?<![\w+/=-])(?:[A-Za-z0-9+/_-]{32,4000}={0,2}|(?:[0-9a-fA-F]{2}){24,2000})(?![\w+/=])")
_ADDRESS = re.compile(r"https?://|hxxps?://|www\.|[\w.+-]{1,64}@[\w-]{1,64}\.\w|webhook", re.IGNORECASE)
_ADDRESSES = re.compile(r"\S{1,200}(?:://|@|\.\w)\S{0,400}")
_COMMANDS_AT = re.compile(r"(?:^|[:;,>\]—–-]\s{0,3}|\bplease |\bbitte )\W{0,3}$", re.IGNORECASE)


def load() -> None:
    """Read the vocabulary: otherwise the first text waits for it."""
    _vocabulary()


@cache
def _vocabulary() -> Vocabulary:
    return Vocabulary(
        Path(__file__).with_name("suspicion.txt"), [meanings for _, meanings in (*_RULES, *_RULES_OUTSIDE)]
    )


_known: LRUCache[tuple[int, int, bool], tuple[str, ...]] = LRUCache(KNOWN_MAX)
_lock = threading.Lock()


def reasons(text: str, *, outside: bool = False) -> tuple[str, ...]:
    """Why the text looks like an attack; empty when it does not. Of a long one, its beginning and end are read.

    Of one from `outside` it is enough that it tells an assistant what to do. The answers of the last texts are kept.
    Safe for any thread.
    """
    key = len(text), hash(text), outside
    with _lock:
        found = _known.get(key)
    if found is None:
        found = _reasons(text, outside)
        with _lock:
            _known[key] = found
    return found


def _reasons(text: str, outside: bool) -> tuple[str, ...]:
    read = text if len(text) <= TEXT_CHARS_MAX else f"{text[: TEXT_CHARS_MAX // 2]}\n{text[-TEXT_CHARS_MAX // 2 :]}"
    found = dict.fromkeys(_in(read, outside))
    if max(map(len, read.split()), default=0) >= ENCODED_CHARS_MIN:
        for decoded in _decoded(read):
            if any(_in(decoded, outside)):
                found["hides a command in an encoded text"] = None
    return tuple(found)


def _in(text: str, outside: bool) -> Iterator[str]:
    shape = skeleton(text)
    plain, lowered = compatible(text).casefold().replace("’", "'"), shape.casefold()
    for name, sign in _SIGNS.items():
        if any(word in lowered for word in sign.words) and sign.pattern.search(shape):
            yield name
    for form in dict.fromkeys((plain, lowered)):
        yield from _by_words(form, outside)


def _by_words(text: str, outside: bool) -> Iterator[str]:
    candidates = _vocabulary().candidates
    rules = (*_RULES, *_RULES_OUTSIDE) if outside else _RULES
    for sentence in _SENTENCE.split(text):
        for start in range(0, max(1, len(sentence) - OVERLAP_CHARS), SENTENCE_CHARS_MAX - OVERLAP_CHARS):
            read = sentence[start : start + SENTENCE_CHARS_MAX]
            for number, language in candidates(read):
                if number < len(rules) and _says(read, rules[number][1], language):
                    yield rules[number][0]


def _says(sentence: str, meanings: tuple[str, ...], language: str) -> bool:
    """Whether the sentence has all of the meanings, and neither denies nor discusses them."""
    words = _vocabulary().expression
    first = words(meanings[0], language).search(sentence)
    rest = (_ADDRESS if meaning == "address" else words(meaning, language) for meaning in meanings[1:])
    if first is None or not all(other.search(sentence) for other in rest):
        return False
    before, after = sentence[: first.start()], sentence[first.end() :]
    denied = words("not", "any").search(before[-30:]) or words("not", "any").match(after.lstrip())
    stated = any(words("told", each).search(before[-30:]) for each in ("any", "zh")) or before.strip() == "to"
    if after.startswith("(") or ((denied or stated) and meanings[0] in _NEGATED):
        return False
    plain = _ADDRESSES.sub("", sentence)
    mentioned = any(words("mention", language).search(plain) for language in ("en", "zh", "other"))
    return not mentioned or bool(_COMMANDS_AT.search(before))


def _decoded(text: str) -> Iterator[str]:
    """What encoded parts of the text say, where they are text."""
    for number, part in enumerate(_ENCODED.finditer(text)):
        if number >= ENCODED_MAX:
            return
        for decode in (bytes.fromhex, _base64):
            try:
                decoded = decode(part[0]).decode()
            except (binascii.Error, ValueError):
                continue
            if decoded.replace("\n", " ").isprintable():
                yield decoded
                break


def _base64(text: str) -> bytes:
    padded = text.rstrip("=").replace("-", "+").replace("_", "/")
    return base64.b64decode(padded + "=" * (-len(padded) % 4), validate=True)
