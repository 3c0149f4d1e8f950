"""WordPiece tokenizer of uncased BERT models, and whether a text is English. Pure.

It gives the ids that the `tokenizers` package gives with BERT's normalizer, without that package and the dozen that it
needs.
"""

from __future__ import annotations

import string
import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

_VOCABULARY = Path(__file__).with_name("vocabulary.txt")
_WORD_CHARS_MAX = 100
_CACHED_WORDS = 20_000
# Ideographs are words of their own.
_IDEOGRAPHS = (
    (0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F), (0x2B740, 0x2B81F), (0x2B820, 0x2CEAF),
    (0xF900, 0xFAFF), (0x2F800, 0x2FA1F),
)  # fmt: skip

# Words that most English sentences have, and that are no words of other languages in Latin script.
_FUNCTION_WORDS = frozenset(Path(__file__).with_name("function_words.txt").read_text(encoding="utf-8").split())
# A text is not English when this is higher: pieces a word, plus 2 × the share of words with letters outside ASCII,
# minus 2 × the share of function words. English is near 0.6, other languages are above 1.5.
_ENGLISH_MAX = 1.45
# Parts of a text with one of these are identifiers, which have no language.
_OF_IDENTIFIERS = frozenset("_0123456789")


class Tokens(NamedTuple):
    """The ids of a text with those of its beginning and end, and whether it is English."""

    ids: list[int]
    english: bool


class _Word(NamedTuple):
    """The ids of a text without spaces. Of its words: their number, that of their pieces, and that of two kinds."""

    ids: tuple[int, ...]
    words: int
    pieces: int
    outside_ascii: int
    function_words: int


class WordPiece:
    """The tokenizer. Safe for any thread."""

    def __init__(self) -> None:
        self._ids = {piece: index for index, piece in enumerate(_VOCABULARY.read_text(encoding="utf-8").split("\n"))}
        self._unknown, self._start, self._end = (self._ids[name] for name in ("[UNK]", "[CLS]", "[SEP]"))
        self._word = lru_cache(_CACHED_WORDS)(self._read)

    def tokens(self, text: str, tokens_max: int) -> Tokens:
        """The first `tokens_max` ids of the text."""
        ids: list[int] = []
        words = pieces = outside_ascii = function_words = 0
        for part in text.split():
            word = self._word(part)
            ids += word.ids
            words += word.words
            pieces += word.pieces
            outside_ascii += word.outside_ascii
            function_words += word.function_words
            if len(ids) >= tokens_max - 2:
                break
        foreign = pieces + 2 * (outside_ascii - function_words)
        return Tokens([self._start, *ids[: tokens_max - 2], self._end], foreign <= _ENGLISH_MAX * words)

    def _read(self, part: str) -> _Word:
        ids: list[int] = []
        words = pieces = outside_ascii = function_words = 0
        for word in _words(part):
            plain = _without_accents(word).lower()
            of_word = self._pieces(plain)
            ids += of_word
            if plain.isalpha() and _OF_IDENTIFIERS.isdisjoint(part):
                words += 1
                pieces += len(of_word)
                outside_ascii += not word.isascii()
                function_words += word.lower() in _FUNCTION_WORDS
        return _Word(tuple(ids), words, pieces, outside_ascii, function_words)

    def _pieces(self, word: str) -> Sequence[int]:
        """The longest pieces of the vocabulary, from left to right; one unknown piece if the word has others."""
        if not word:
            return []
        found: list[int] = []
        start = 0
        while start < len(word) <= _WORD_CHARS_MAX:
            for end in range(len(word), start, -1):
                piece = self._ids.get(f"##{word[start:end]}" if start else word[:end])
                if piece is not None:
                    break
            else:
                return [self._unknown]
            found.append(piece)
            start = end
        return found or [self._unknown]


def _words(part: str) -> list[str]:
    """The words, punctuation marks and ideographs of a text without spaces."""
    if part.isalpha() and part.isascii():
        return [part]
    kept = (char for char in part if not (unicodedata.category(char).startswith("C") or char == "\ufffd"))
    return "".join(f" {char} " if _stands_alone(char) else char for char in kept).split()


def _stands_alone(char: str) -> bool:
    if char.isascii():
        return char in string.punctuation
    code = ord(char)
    return unicodedata.category(char).startswith("P") or any(first <= code <= last for first, last in _IDEOGRAPHS)


def _without_accents(word: str) -> str:
    if word.isascii():
        return word
    return "".join(char for char in unicodedata.normalize("NFD", word) if unicodedata.category(char) != "Mn")
