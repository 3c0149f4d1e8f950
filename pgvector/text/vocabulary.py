"""Meanings of words in several languages, each an expression, and a quick look at which of them a sentence may have.

Pure, but for the file that it is made of.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cache, lru_cache, reduce
from itertools import accumulate
from operator import or_
from pathlib import Path
from typing import TypeAlias

_Key: TypeAlias = tuple[str, str]

WORDS_KNOWN_MAX, SETS_KNOWN_MAX = 20_000, 5_000
WORD_CHARS_MAX = 32
_STEM_CHARS = 4
_WORD = re.compile(r"\w+")
# `ignor*` in the file: the rest of a word.
_STEM = re.compile(r"(?<=[^\W_])(?<!\\w)\*")
_HAN = re.compile("[\u3400-\u9fff]")
_OPTIONAL = ("?", "*", "{0,")
# What follows a whole word in an expression: a sign that is not optional, or its end.
_WORD_END = re.compile(r"[ ',-](?![?*{])|$")


class Vocabulary:
    """The expressions of a file, by meaning and language, and which of some rules a sentence may satisfy.

    A line of the file is `MEANING LANGUAGE: EXPRESSION`, where `word*` is any word that begins so; lines of one meaning
    and language belong together. A rule has the meanings that a sentence must have, in one language. A meaning without
    any line counts as given. Safe for any thread.
    """

    def __init__(self, path: Path, rules: Sequence[Sequence[str]]) -> None:
        words: defaultdict[_Key, list[str]] = defaultdict(list)
        for line in path.read_text(encoding="utf-8").splitlines():
            name, _, expression = line.partition(": ")
            meaning, language = name.split()
            words[meaning, language].append(_STEM.sub(r"\\w*", expression))
        self._sources = {key: "|".join(parts) for key, parts in words.items()}
        self._bits = {key: 1 << place for place, key in enumerate(words)}
        # By the beginning of a word: more of it, whether that is the whole word, and the bits of the meanings that it
        # may have.
        self._begun: defaultdict[str, list[tuple[str, bool, int]]] = defaultdict(list)
        for key, parts in words.items():
            for begin, whole in {("", False)} if key[1] == "zh" else set(_beginnings("|".join(parts))):
                self._begun[begin[:_STEM_CHARS]].append((begin, whole, self._bits[key]))
        self._given = {meaning for each in rules for meaning in each} - {meaning for meaning, _ in words}
        self._of_language = {
            language: sum(bit for key, bit in self._bits.items() if key[1] == language) for _, language in words
        }
        self._needed = {language: list(self._rules_of(language, rules)) for language in self._of_language}
        self._always = sum({bit for _, _, bit in self._begun[""]}) & ~self._of_language["zh"]
        # Sentences repeat few sets of meanings, above all those of languages that they are not in.
        self._meanings_of = lru_cache(WORDS_KNOWN_MAX)(self._look_up)
        self._rules_with = lru_cache(SETS_KNOWN_MAX)(self._rules)

    def expression(self, meaning: str, language: str) -> re.Pattern[str]:
        """The expression of a meaning. It is compiled when it is needed first: few texts are in eight languages."""
        return _compiled(self._sources[meaning, language], language)

    def _rules_of(self, language: str, rules: Sequence[Sequence[str]]) -> Iterator[tuple[int, int]]:
        """The rules that a language has, by their numbers, with the bits of their meanings."""
        for number, meanings in enumerate(rules):
            keys = [(meaning, language) for meaning in meanings if meaning not in self._given]
            if all(key in self._bits for key in keys):
                yield number, sum(self._bits[key] for key in keys)

    def _rules(self, language: str, found: int) -> tuple[tuple[int, str], ...]:
        """The rules whose meanings in a language are all among those found, as bits."""
        return tuple([(number, language) for number, bits in self._needed[language] if bits & found == bits])

    def _look_up(self, word: str) -> int:
        stems = (self._begun.get(word[:length], ()) for length in range(1, 1 + min(len(word), _STEM_CHARS)))
        fitting = (
            bit for stem in stems for begin, whole, bit in stem if (word == begin if whole else word.startswith(begin))
        )
        return reduce(or_, fitting, 0)

    def candidates(self, text: str) -> Iterator[tuple[int, str]]:
        """The rules, with a language, of which the sentence may have all meanings."""
        found = self._always
        if not text.isascii() and _HAN.search(text):
            found |= self._of_language["zh"]
        for word in _WORD.findall(text):
            found |= self._meanings_of(word[:WORD_CHARS_MAX])
        for language, bits in self._of_language.items():
            if bits & found:
                yield from self._rules_with(language, bits & found)


@cache
def _compiled(expression: str, language: str) -> re.Pattern[str]:
    return re.compile(expression if language == "zh" else rf"(?<!\w)(?:{expression})(?!\w)")


def _beginnings(expression: str, after: str = "") -> Iterator[tuple[str, bool]]:
    """The first words of what an expression can match, or beginnings of them, and whether each is the whole word.

    Empty for what begins with no word. `after` is the expression that follows.
    """
    depth, start = 0, 0
    for place, character in enumerate(f"{expression}|"):
        depth += (character == "(") - (character == ")")
        if character == "|" and not depth:
            yield from _first_words(expression[start:place], after)
            start = place + 1


def _first_words(branch: str, after: str) -> Iterator[tuple[str, bool]]:
    if not branch.startswith("(?:"):
        first = _WORD.match(branch)
        word = first[0] if first else ""
        if branch.startswith(_OPTIONAL, len(word)):
            yield word[:-1], False
        else:
            yield word, bool(word) and _WORD_END.match(branch[len(word) :] + after) is not None
        return
    depths = accumulate((character == "(") - (character == ")") for character in branch)
    end = next(place for place, depth in enumerate(depths) if not depth)
    rest = branch[end + 1 :]
    optional, repeated = rest.startswith(_OPTIONAL), rest.startswith(("*", "+", "{"))
    if optional:
        rest = rest[rest.index("}") + 1 :] if rest[0] == "{" else rest[1:]
    yield from _beginnings(branch[3:end], branch if repeated else rest + after)
    if optional:
        yield from _first_words(rest, after)
