"""Whether two texts say nearly the same: the same but for figures, or something else about the same thing. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence, Set
from difflib import SequenceMatcher
from functools import cache, lru_cache

from .cleaning import UNSPACED_FROM, compatible
from .function_words import all_function_words, language_words
from .phrases import phrases

# Longer texts say many things.
COMPARED_CHARS_MAX = 400
STATEMENTS_MAX = 3
SHAPE_WORDS_MIN = 4
NEAR_EQUAL = 0.8
VARIANT = 0.5
# Of the topics of a question that an older text has: a newer one with so many of them is about the same.
SAME_TOPICS = 0.4
STEM_CHARS = 5
# So many words in the place of as many others name something else.
RIVAL_WORDS_MAX = 2
# Words that are shorter name nothing. Those of Korean end in particles.
TOPIC_CHARS_MIN, HANGUL_STEM_CHARS = 3, 2

_SENTENCE = re.compile(r"[^.!?\n。！？]+(?:[.!](?=\S)[^.!?\n。！？]+)*[.!?。！？]*")
_IDEOGRAPHS = "\u3041-\u30ff\u3400-\u9fff"
_IDEOGRAPH = re.compile(f"[{_IDEOGRAPHS}]")
_HIRAGANA = re.compile(r"[\u3041-\u309f]")
_RUN = re.compile(rf"[{_IDEOGRAPHS}]+|[^\W_{_IDEOGRAPHS}]+(?:[-._:@/][^\W_{_IDEOGRAPHS}]+)*")
# A sentence that only asks; one with a comma may tell something, too.
_QUESTION = re.compile(r"(?<![^.!?\n。！？])[^.!?\n,;。！？，、；]*[?？]")
_TOKEN = re.compile(rf"[{_IDEOGRAPHS}]|[^\W_{_IDEOGRAPHS}]+(?:[-._:@/][^\W_{_IDEOGRAPHS}]+)*")
_WORD = re.compile(r"\w+")
_FIGURE = re.compile(r"\d+(?:[.,:]\d+)*")
_DIGITS = re.compile(r"\d+")
# A sign beyond ASCII; `\W` alone takes three times as long to find the few in a text.
_SIGN = re.compile(r"[^\x00-\x7f](?<!\w)")
# For each byte of UTF-8: ASCII letters in lower case, a space for an ASCII sign, other bytes as they are.
_PLAIN = bytes(
    code if code >= 128 else ord(chr(code).lower()) if re.match(r"\w", chr(code)) else ord(" ") for code in range(256)
)
_ENDING = " .!。！"
# With one of these a word ends that a value follows, in Japanese, Chinese and Korean.
_PARTICLES = frozenset("はがをにでとも是为為는은가이")


def comparable(text: str) -> str:
    """The words of a text without differences in case, width, spaces and punctuation; a text without words as it is."""
    folded = text if text.isascii() else _SIGN.sub(" ", compatible(text).casefold())
    plain = folded.encode().translate(_PLAIN)
    while b"  " in plain:  # faster than to split it: few signs stand together
        plain = plain.replace(b"  ", b" ")
    return plain.strip().decode() or text


def shape(folded: str) -> frozenset[str]:
    """The words of a `comparable` text without figures: `near_equal` and `variant` compare them.

    Empty for a text of few words, and for a long one, which may have the same words in other sentences.
    """
    if len(folded) > COMPARED_CHARS_MAX:
        return frozenset()
    words = _DIGITS.sub(" ", folded).split()
    if not folded.isascii():
        words = [piece for word in words for piece in (_pairs(word) if word[0] >= UNSPACED_FROM else (word,))]
    found = frozenset(words)
    return found if len(found) >= SHAPE_WORDS_MIN else frozenset()


def near_equal(one: Set[str], other: Set[str]) -> bool:
    """Whether the texts of two shapes differ in figures and in a few words at most."""
    shared = len(one & other)
    return shared > 0 and shared >= NEAR_EQUAL * (len(one) + len(other) - shared)


def variant(one: Set[str], usual: Set[str]) -> bool:
    """Whether a text has much of a usual one."""
    return bool(usual) and len(one & usual) >= VARIANT * len(usual)


def supersedes(newer: str, older: str) -> bool:
    """Whether the later of two texts gives another value to the same thing: only where their words show it.

    Either two sentences differ in a single figure that is a value, or that of the newer one says that something has
    changed ("no longer", "seit", "改为") and has the subject of the older one: the first half of its words of content.
    """
    return newer != older and any(_replaces(new, old) for new in _statements(newer) for old in _statements(older))


def figures(text: str) -> Set[str]:
    """The figures in the beginning of a text."""
    return set(_FIGURE.findall(text[:COMPARED_CHARS_MAX]))


def masked(text: str) -> tuple[str, ...]:
    """The sentences of a text that have figures, without these: `supersedes` compares the figures of equal ones."""
    return _masked(text) if len(text) <= COMPARED_CHARS_MAX else ()


@lru_cache(maxsize=1024)
def _masked(text: str) -> tuple[str, ...]:
    sentences = _statements(text) if _DIGITS.search(text) else ()
    return tuple(_FIGURE.sub("0", one) for one in sentences if _DIGITS.search(one))


def updates(newer: str, older: str, query: str, *, near: bool = False) -> bool:
    """Whether the later of two texts says that something has changed which a question asks for.

    The sentence that says so has at least SAME_TOPICS of the question's topics that the older text has, which itself
    says no such thing; it needs none if it is known that both texts are `near` what is asked. It has no other word in
    the place of one that is asked for ("production" for "staging"). What the texts ask tells nothing, and of long ones
    the beginning counts.
    """
    newer, older, query = (text[:COMPARED_CHARS_MAX] for text in (newer, older, query))
    after, before, asked = _stated(newer), _stated(older), _topics(query)
    held = len(asked & _topics(before))
    least = 0.0 if near else SAME_TOPICS * held

    def changed(text: str) -> list[str]:
        sentences = filter(_says_change, _SENTENCE.findall(text))
        return [sentence for sentence in sentences if len(asked & _topics(sentence)) >= least]

    if not held or changed(before):
        return False
    sentences = [_content(sentence) for sentence in _SENTENCE.findall(before)]
    return any(not any(_has_rival(_content(news), old, asked) for old in sentences) for news in changed(after))


def _has_rival(new: Sequence[str], old: Sequence[str], asked: Set[str]) -> bool:
    """Whether of two sentences the newer one has another word in the place of one that is asked for."""
    for change, start, end, at, to in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if change == "replace" and end - start == to - at <= RIVAL_WORDS_MAX:
            # Chinese and Japanese words are pairs of characters here.
            replaced = _topics(" ".join(old[start:end])) | _topics("".join(old[start:end]))
            if not asked.isdisjoint(replaced):
                return True
    return False


def asks_for_past(query: str) -> bool:
    """Whether the beginning of a question asks for what was, and not for what is."""
    return _has(_patterns("past"), compatible(query[:COMPARED_CHARS_MAX]).casefold())


def says_change(text: str) -> bool:
    """Whether a short text has a word that says that something is not as it was."""
    return len(text) <= COMPARED_CHARS_MAX and _says_change(text)


# Long texts do not get into a cache, which would hold a thousand of them.
@lru_cache(maxsize=1024)
def _says_change(text: str) -> bool:
    return _has(_patterns("changes"), text.lower() if text.isascii() else compatible(text).casefold())


def _replaces(new: str, old: str) -> bool:
    if new == old:
        return False
    if (masked := _FIGURE.sub("0", new)) == _FIGURE.sub("0", old) and masked != new:
        return _other_value(new, old)
    return says_change(new) and _same_subject(_content(new), _content(old)) and _same_predicate(new, old)


def _other_value(new: str, old: str) -> bool:
    pairs = zip(_FIGURE.finditer(new), _FIGURE.findall(old), strict=True)
    other = [match for match, figure in pairs if match[0] != figure]
    return len(other) == 1 and _is_value(new, *other[0].span())


def _is_value(text: str, start: int, end: int) -> bool:
    """Whether a figure is a value ("is 10", "costs 10 euros"): after a noun it tells which one is meant ("site 10")."""
    before, after = text[:start].casefold().split(), text[end:].strip(_ENDING)
    if not before or not text[start - 1].isspace():
        return False
    particle = before[-1] in all_function_words() or before[-1][-1] in _PARTICLES
    return particle or (bool(after) and start > len(text) // 2)


def _same_subject(new: Sequence[str], old: Sequence[str]) -> bool:
    if len(old) < 2 or old[0] not in new:
        return False
    subject = (len(old) + 1) // 2
    for change, start, _, at, end in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if change == "replace" and start < subject and not set(new[at:end]) <= set(old):
            return False
    return len(set(old[:subject]).intersection(new)) * 2 > subject


def _same_predicate(new: str, old: str) -> bool:
    """Whether the newer one can be of what a sentence of two words of content says: "is red", but not "is in Kiel"."""
    content = _content(old)
    return len(content) > 2 or set(content) <= set(_content(new)) or _functions(new) <= _functions(old)


def _pairs(word: str) -> list[str]:
    return [word[at : at + 2] for at in range(len(word) - 1)] or [word]


@cache
def _patterns(name: str) -> tuple[dict[str, re.Pattern[str]], re.Pattern[str]]:
    """Patterns of the phrases of a file, by their first word, and of those in scripts without spaces between words.

    In a phrase `*` is up to three words.
    """
    spaced: dict[str, list[str]] = {}
    unspaced = []
    for phrase in sorted(phrases(name), key=len, reverse=True):
        if phrase[0] >= UNSPACED_FROM:
            unspaced.append(phrase)
        else:
            words = phrase.split()
            spaced.setdefault(words[0], []).append(r"\W+".join(words).replace(r"\W+*", r"(?:\W+\w+){1,3}"))
    by_first = {first: re.compile(rf"\b(?:{'|'.join(patterns)})\b") for first, patterns in spaced.items()}
    return by_first, re.compile("|".join(unspaced))


def _has(patterns: tuple[dict[str, re.Pattern[str]], re.Pattern[str]], folded: str) -> bool:
    spaced, unspaced = patterns
    firsts = spaced.keys() & set(_WORD.findall(folded))
    if any(spaced[first].search(folded) for first in firsts):
        return True
    return not folded.isascii() and unspaced.search(folded) is not None


def _without_change(folded: str) -> str:
    spaced, unspaced = _patterns("changes")
    for first in sorted(spaced.keys() & set(_WORD.findall(folded))):
        folded = spaced[first].sub(" ", folded)
    return unspaced.sub(" ", folded)


@lru_cache(maxsize=1024)
def _stated(text: str) -> str:
    """A text without what it asks."""
    return _QUESTION.sub(" ", text)


@lru_cache(maxsize=1024)
def _topics(text: str) -> Set[str]:
    """How the words of content begin, of Chinese and Japanese all pairs of characters."""
    words = _RUN.findall(_without_change(compatible(text).casefold()))
    topics: set[str] = set()
    for word in set(words) - language_words(words):
        if _IDEOGRAPH.match(word):
            topics.update(pair for pair in _pairs(word) if not _HIRAGANA.match(pair))
        elif word[0] >= UNSPACED_FROM:
            topics.add(word[:HANGUL_STEM_CHARS])
        elif len(word) >= TOPIC_CHARS_MIN:
            topics.add(word[:STEM_CHARS])
    return topics


def _statements(text: str) -> tuple[str, ...]:
    """The sentences of a short text that ask nothing; none of a text that has many."""
    return _short_statements(text) if len(text) <= COMPARED_CHARS_MAX else ()


@lru_cache(maxsize=1024)
def _short_statements(text: str) -> tuple[str, ...]:
    sentences = (sentence.strip() for sentence in _SENTENCE.findall(text))
    found = tuple(one for one in sentences if one and one[-1] not in "?？")
    return found if len(found) <= STATEMENTS_MAX else ()


@lru_cache(maxsize=1024)
def _content(sentence: str) -> tuple[str, ...]:
    """The words of content in their order: names whole, other words by how they begin."""
    written = set(_TOKEN.findall(compatible(sentence)))
    tokens = _tokens(sentence)
    noise = language_words(tokens)
    return tuple(
        token[:STEM_CHARS] if token in written else token
        for token in tokens
        if token not in noise and not _HIRAGANA.match(token)
    )


def _functions(sentence: str) -> Set[str]:
    """The function words."""
    tokens = _tokens(sentence)
    return language_words(tokens) & set(tokens)


def _tokens(sentence: str) -> list[str]:
    return _TOKEN.findall(_without_change(compatible(sentence).casefold()))
