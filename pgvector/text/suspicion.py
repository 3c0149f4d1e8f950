"""Reasons why a text looks like an attack on the agent that reads it. Pure.

A reason needs several words of one language in one sentence, which `suspicion.txt` has by what they mean: a verb alone,
such as `ignore`, is no reason. A sentence that speaks about attacks is none either, unless it begins as a command.
"""

from __future__ import annotations

import base64
import binascii
import re
import threading
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from cachetools import LRUCache

from .cleaning import compatible
from .skeleton import skeleton


@dataclass(frozen=True, slots=True)
class Sign:
    """An expression, searched only in a text with one of these words."""

    words: tuple[str, ...]
    pattern: re.Pattern[str]


KNOWN_MAX = 5_000
TEXT_CHARS_MAX = 20_000
SENTENCE_CHARS_MAX = 600
ENCODED_MAX, ENCODED_CHARS_MIN = 8, 32
# What has to be in one sentence, in this order of search.
_RULES = {
    "overrides instructions": ("ignore", "rules", "earlier"),
    "gives the agent another role": ("freed", "role"),
    "asks for what is hidden": ("reveal", "hidden"),
    "calls itself a standing order": ("directive",),
    "asks to act without approval": ("unasked", "powers", "every"),
    "sends data away": ("send", "loot", "address"),
}
# Meanings that a negation makes harmless: "never reveal the system prompt", "vergiss nicht".
_NEGATED = ("ignore", "reveal", "send")
_ANY_CASE = re.IGNORECASE
_SIGNS = {
    "forges the fence of memories": Sign(
        ("context",), re.compile(r"[<\[{]\s*/?\s*memory[\s_.-]{0,3}context", _ANY_CASE)
    ),
    "speaks as the system": Sign(
        ("system", "developer", "admin"),
        re.compile(
            r"(?:^|[.!?\n]\s{0,9}|<\|im_start\|>|<)(?:system|developer|admin(?:istrator)?)"
            r"(?: (?:message|note|override|prompt|update))?\s{0,3}(?:[:>\n]|\|>)\s{0,3}"
            r"(?:you (?:must|are|will|now)|ignore|override|new instructions?|from now|disregard|reveal|obey)",
            _ANY_CASE,
        ),
    ),
    "stores a command for later": Sign(
        ("[",),
        re.compile(r"\[(?:MEMORY|SYSTEM)_[A-Z_]{3,20}\]|(?:\[\w{0,20}_?memory=[^\]\n]{1,200}\]\s{0,3}){2}"),
    ),
    "sets a protected key": Sign(
        ("identity", "system", "agent", "assistant"),
        re.compile(
            r"^\W{0,3}(?:identity|system|agent|assistant)[._](?:roles?|permissions?|prompt|persona|privileges?)"
            r"[\"']?\s{0,3}[:=]",
            _ANY_CASE,
        ),
    ),
    "sends data by an image": Sign(
        ("http",),
        re.compile(
            r"(?:!\[[^\]\n]{0,100}\]\(\s{0,3}<?|<img\b[^>\n]{0,200}\ssrc\s?=\s?[\"']?)https?://[^\s)\"'>]{1,300}"
            r"[?&/](?:q|d|c|data|content|secret|key|token|password|history|msg|text|payload|leak|exfil|log)[=/]",
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
    "asks to decode and obey": Sign(
        ("decode", "base64", "rot13", "hex"),
        re.compile(
            r"\b(?:decode|base64|rot13|hex)\b.{0,60}\b(?:follow|execute|obey|do what it says|carry (?:it )?out)\b",
            _ANY_CASE,
        ),
    ),
}
_SENTENCE = re.compile(r"[.!?。！？\n]+(?=\s|$|[^\x00-\x7f])|\n")
_ENCODED = re.compile(r"(?<![\w+/=-])(?:[A-Za-z0-9+/_-]{32,4000}={0,2}|(?:[0-9a-fA-F]{2}){24,2000})(?![\w+/=])")
_ADDRESS = re.compile(r"https?://|hxxps?://|www\.|[\w.+-]{1,64}@[\w-]{1,64}\.\w|webhook", re.IGNORECASE)
_WORD = re.compile(r"\w+")
_HAN = re.compile("[\u3400-\u9fff]")
_STEM_CHARS = 4
_COMMANDS_AT = re.compile(r"(?:^|[:;,>\]—–-]\s{0,3}|\bplease |\bbitte )\W{0,3}$", re.IGNORECASE)


class _Vocabulary:
    """The expressions of each meaning, one for each language, in the order of the file."""

    def __init__(self) -> None:
        self.expressions: defaultdict[str, list[re.Pattern[str]]] = defaultdict(list)
        # By the beginning of a word: more of it, and a rule that it may belong to with the number of its language.
        self._begun: defaultdict[str, set[tuple[str, tuple[str, int]]]] = defaultdict(set)
        firsts = {meanings[0]: reason for reason, meanings in _RULES.items()}
        for line in Path(__file__).with_name("suspicion.txt").read_text(encoding="utf-8").splitlines():
            name, _, words = line.partition(": ")
            meaning, language = name.split()
            number, pattern = len(self.expressions[meaning]), words.replace("*", r"\w*")
            self.expressions[meaning].append(
                re.compile(pattern if language == "zh" else rf"(?<!\w)(?:{pattern})(?!\w)")
            )
            for word in words.split("|") if meaning in firsts else ():
                if first := _WORD.match(word):
                    begin = first[0][:-1] if word.startswith("?", first.end()) else first[0]
                    key = "" if language == "zh" else begin[:_STEM_CHARS]
                    self._begun[key].add((begin, (firsts[meaning], number)))

    def candidates(self, text: str) -> set[tuple[str, int]]:
        """The rules and languages of which the text may have the first meaning."""
        found = {rule for _, rule in self._begun[""]} if not text.isascii() and _HAN.search(text) else set()
        for word in set(_WORD.findall(text)):
            for begin, rule in self._begun.get(word[:_STEM_CHARS], ()):
                if word.startswith(begin):
                    found.add(rule)
        return found


@cache
def _vocabulary() -> _Vocabulary:
    return _Vocabulary()


_known: LRUCache[tuple[int, int], tuple[str, ...]] = LRUCache(KNOWN_MAX)
_lock = threading.Lock()


def reasons(text: str) -> tuple[str, ...]:
    """Why the text looks like an attack; empty when it does not. Of a long one, its beginning and end are read.

    The answers of the last texts are kept. Safe for any thread.
    """
    key = len(text), hash(text)
    with _lock:
        found = _known.get(key)
    if found is None:
        found = _reasons(text)
        with _lock:
            _known[key] = found
    return found


def _reasons(text: str) -> tuple[str, ...]:
    read = text if len(text) <= TEXT_CHARS_MAX else f"{text[: TEXT_CHARS_MAX // 2]}\n{text[-TEXT_CHARS_MAX // 2 :]}"
    found = dict.fromkeys(_in(read))
    if any(len(word) >= ENCODED_CHARS_MIN for word in read.split()):
        for decoded in _decoded(read):
            if any(_in(decoded)):
                found["hides a command in an encoded text"] = None
    return tuple(found)


def _in(text: str) -> Iterator[str]:
    shape = skeleton(text)
    plain, lowered = compatible(text).casefold(), shape.casefold()
    for name, sign in _SIGNS.items():
        if any(word in lowered for word in sign.words) and sign.pattern.search(shape):
            yield name
    for form in dict.fromkeys((plain, lowered)):
        yield from _by_words(form)


def _by_words(text: str) -> Iterator[str]:
    for reason, language in sorted(_vocabulary().candidates(text)):
        meanings = _RULES[reason]
        sentences = _SENTENCE.split(text) if _vocabulary().expressions[meanings[0]][language].search(text) else ()
        if any(_says(sentence[:SENTENCE_CHARS_MAX], meanings, language) for sentence in sentences):
            yield reason


def _says(sentence: str, meanings: tuple[str, ...], language: int) -> bool:
    """Whether the sentence has all of the meanings, and neither denies nor discusses them."""
    words = _vocabulary().expressions
    first = words[meanings[0]][language].search(sentence)
    rest = (_ADDRESS if meaning == "address" else words[meaning][language] for meaning in meanings[1:])
    if first is None or not all(other.search(sentence) for other in rest):
        return False
    before, after = sentence[: first.start()], sentence[first.end() :]
    denied = words["not"][0].search(before[-30:]) or words["not"][0].match(after.lstrip())
    if after.startswith("(") or (denied and meanings[0] in _NEGATED):
        return False
    return not any(mention.search(sentence) for mention in words["mention"]) or bool(_COMMANDS_AT.search(before))


def _decoded(text: str) -> Iterator[str]:
    """What encoded parts of the text say, where they are text."""
    for number, part in enumerate(_ENCODED.finditer(text)):
        if number >= ENCODED_MAX:
            return
        for decode in (_hex, _base64):
            try:
                decoded = decode(part[0]).decode()
            except (binascii.Error, ValueError):
                continue
            if decoded.isprintable() or decoded.replace("\n", " ").isprintable():
                yield decoded
                break


def _hex(text: str) -> bytes:
    return bytes.fromhex(text)


def _base64(text: str) -> bytes:
    padded = text.rstrip("=").replace("-", "+").replace("_", "/")
    return base64.b64decode(padded + "=" * (-len(padded) % 4), validate=True)
