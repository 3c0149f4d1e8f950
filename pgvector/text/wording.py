"""The wording of a text: whether two texts have the same words, or the same numbers, names and negations. Pure."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from typing import NamedTuple

from .cleaning import compatible

_BULLET = re.compile(r"\s*(?:[-*•]\s+)?")
_EDGES = re.compile(r"^(?:\*\*|[\"'“”‘’«»„`(\[])+|(?:\*\*|[.,;:!?\"'“”‘’«»`)\]。，；：！？、])+$")
# In backticks, with what the sentence has around it.
_CODE = re.compile(r"[\"'“‘«„(\[*]*`+(?P<code>[^`]+)`+[.,;:!?\"'”’»)\]*。，；：！？、]*")
# French sets them apart.
_LOOSE = frozenset("!?«»！？")
_ENDS_SENTENCE = (".", "!", "?", ":", "。", "！", "？")
_PLAIN = re.compile(r"[^\W\d_]{2,}(?:[-'][^\W\d_]+)*")
# Negations, and one of each pair of opposites. Other differences are for a person to judge.
_OPPOSITES = frozenset(
    """
    no not never none nor neither nothing nobody nowhere without cannot hardly rarely seldom unless except only instead
    off out down after below under false some sometimes if until maybe was were formerly less least min last left old
    disable disabled disables deny denied denies forbid forbidden forbids stop stopped stops remove removed removes
    dislike dislikes hate hates avoid avoids closed private
    nicht kein keine keinen keiner keinem nie niemals ohne nein aus nach ne pas non jamais sans rien nunca sin nada
    senza mai niente não sem nem niet geen nooit zonder не нет ни никогда без değil yok hayır olmadan bez nikdy inte
    aldrig utan ikke aldri uten ei
    """.split()  # noqa: SIM905
)
# Scripts without spaces: a negation is a part of the word.
_UNSPACED_NEGATIONS = re.compile("[不没沒無无非未別别勿莫]|ない|なく|ません|なし|안|못|없|않|아니")


class Wording(NamedTuple):
    """A text as it is compared. Texts with the same `key` have the same words in the same order; `marks` are the words
    in which texts that say the same cannot differ; `length` is the number of words."""

    key: bytes
    marks: bytes
    length: int


def wording(text: str) -> Wording:
    """The wording of a text. Case, punctuation, line breaks and `the` make no difference, except in identifiers."""
    words = list(_words(text))
    marks = [mark for word, starts in words for mark in _marks(word, starts)]
    kept = [word for word, _ in words]
    return Wording(_digest([_folded(word) for word in kept]), _digest(marks), len(kept))


def _words(text: str) -> Iterator[tuple[str, bool]]:
    """The words without quotes and punctuation around them, each with whether it begins a sentence.

    A question mark is a word.
    """
    for line in text.splitlines():
        starts = True
        for token in line[_BULLET.match(line).end() :].split():  # type: ignore[union-attr]
            word = _bare(token)
            if word and word.casefold() != "the":
                # NFKC makes 102 of 10², so a word with such digits stays as it is.
                normal = compatible(word)
                yield (word if normal != word and any(map(str.isdigit, normal)) else normal).replace("’", "'"), starts
            starts = token.endswith(_ENDS_SENTENCE) or (starts and not word)
            if "?" in token[-3:] or "？" in token[-3:]:
                yield "?", False


def _bare(token: str) -> str:
    """The token without quotes and punctuation around it; empty for punctuation that ends a sentence.

    Code keeps its own: `a.` is not `a`. So does a token that is nothing else, such as a delimiter.
    """
    if code := _CODE.fullmatch(token):
        return code["code"]
    return _EDGES.sub("", token) or ("" if token in _LOOSE else token)


def _folded(word: str) -> str:
    """The word in lower case, unless its case tells identifiers apart: `PATH`, `userId`, `C`."""
    return word if len(word) == 1 or word[1:] != word[1:].lower() else word.casefold()


def _marks(word: str, starts_sentence: bool) -> Iterator[str]:
    """What of a word must be the same: numbers, identifiers, names, symbols, negations."""
    folded = word.casefold()
    named = word[0].isupper() and word != "I" and not starts_sentence
    identifier = word[1:] != word[1:].lower() or not (_PLAIN.fullmatch(word) or folded in ("a", "i"))
    if folded in _OPPOSITES or folded.endswith("n't"):
        yield folded
    elif named or identifier:
        yield word
    else:
        yield from _UNSPACED_NEGATIONS.findall(word)


def _digest(words: list[str]) -> bytes:
    return hashlib.blake2b("\n".join(words).encode("utf-8", "surrogatepass"), digest_size=16).digest()
