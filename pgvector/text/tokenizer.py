"""Tokenizer of rows and of questions. Pure.

Postgres' own parser does not suit what agents write: `db-prod-03` yields the number -03, `user_id` is split, a Chinese
sentence is one word. So the text given to `to_tsvector('english', …)` holds only tokens of letters and digits,
which the parser keeps whole, and the English dictionary does the rest (stop-words, stems), the same for rows and for
questions:

* A word is itself: `Backups` → `backups`.
* An identifier is itself without its punctuation, and its parts: `db-prod-03` → `dbprod03 db prod 03`; so `db_prod_03`
  and `dbprod03` find it. Between two digits an `x` stands for the punctuation, lest `1.23` be `12.3`. An address is
  also cut at its larger seams: `10.0.3.7:5432` → `10x0x3x7x5432 10x0x3x7 5432 10 0 3 7`.
* A name in camel case is itself and its humps: `maxRetryCount` → `maxretrycount max retry count`.
* Scripts that do not put spaces between words (Chinese, Japanese, Thai, …; Korean, for its endings) become pairs of
  characters. Rows hold the single characters, too, so that a question of one character finds them.

Each token occurs once: in texts of this length, the frequency of a word says little.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import chain, pairwise

from .cleaning import compatible

TOKEN_CHARS_MAX = 200
KNOWN_CHARS_MAX = 40
TEXT_CHARS_MAX = 100_000
# A tsvector holds less than 1 MiB, and a token costs its bytes and some ten more.
DOCUMENT_BYTES_MAX = 600_000
_BYTES_PER_TOKEN = 12

# Thai, Lao, Tibetan, Myanmar, Khmer; kana, bopomofo, Han, Hangul.
_UNSPACED = (
    "\u0e01-\u0e3a\u0e40-\u0e4e\u0e81-\u0ece\u0f40-\u0fbc\u1000-\u103f\u1050-\u109d\u1780-\u17d3"
    "\u1100-\u11ff\u3005-\u3007\u3021-\u3029\u3031-\u3035\u3041-\u309f\u30a1-\u30fa\u30fc-\u30ff\u3100-\u312f"
    "\u31a0-\u31bf\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97f\uac00-\ud7fb\uf900-\ufaff\U00020000-\U0003ffff"
)
# Vowel signs and tone marks of those scripts: they stay with the letter before them.
_SIGNS = (
    "\u0e31\u0e34-\u0e3a\u0e47-\u0e4e\u0eb1\u0eb4-\u0ebc\u0ec8-\u0ece\u0f71-\u0fbc\u102b-\u103e\u1056-\u1059"
    "\u105e-\u1060\u1062-\u1064\u1067-\u106d\u1071-\u1074\u1082-\u108d\u108f\u109a-\u109d\u17b4-\u17d3\u3099\u309a"
)
# `\w` leaves out the marks that Indic and other scripts write their vowels with.
_MARKS = "\u0300-\u036f\u0900-\u0963\u0966-\u0d7f\u0d80-\u0df3\u200c\u200d"
_WORD = rf"[^\W_](?:[^\W_]|[{_MARKS}{_SIGNS}])*"
_FINE = r"\-._"
_COARSE = r"/:@\\=+#%&?$~|"
_CHUNK = re.compile(rf"{_WORD}(?:[{_FINE}{_COARSE}]+{_WORD})*")
_COARSE_SEAM = re.compile(rf"[{_COARSE}]+")
_SEAM = re.compile(rf"[{_FINE}{_COARSE}]+")
_DIGITS_SEAM = re.compile(rf"(?<=\d)[{_FINE}{_COARSE}]+(?=\d)")
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_LETTERS_OR_DIGITS = re.compile(r"[^\W\d_]{3,}|\d{3,}")
_UNSPACED_RUN = re.compile(f"([{_UNSPACED}][{_UNSPACED}{_SIGNS}]*)")
_UNIT = re.compile(f".[{_SIGNS}]{{0,8}}", re.DOTALL)
_SHARP = re.compile(r"\b([A-Za-z])(\+\+|#)(?!\w)")
_LIKE_FLOAT = re.compile(r"[0-9]+e[0-9]")
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
# Short vowels of Hebrew and Arabic and the Arabic stretcher: written or not as the writer likes.
_OPTIONAL = re.compile("[\u0591-\u05bd\u05bf-\u05c7\u0610-\u061a\u0640\u064b-\u065f\u0670\u200c\u200d]")


def document(text: str) -> str:
    """A row's text as tokens for `to_tsvector('english', …)`; of a longer text the first TEXT_CHARS_MAX characters.

    The result is bounded so that the tsvector stays below Postgres' limits.
    """
    kept: list[str] = []
    bytes_left = DOCUMENT_BYTES_MAX
    for token in dict.fromkeys(_tokens(text, singles=True)):
        bytes_left -= _BYTES_PER_TOKEN + len(token.encode())
        if bytes_left < 0:
            break
        kept.append(token)
    return " ".join(kept)


def query(text: str, tokens_max: int) -> list[str]:
    """The tokens of a question for the configuration `english`; all of them are in `document` of the same text.

    Of a long text the first and the last tokens are taken.
    """
    tokens = list(dict.fromkeys(_tokens(text, singles=False)))
    if len(tokens) > tokens_max:
        tokens = tokens[: tokens_max - tokens_max // 2] + tokens[len(tokens) - tokens_max // 2 :]
    return tokens


def shortened(text: str, chars_max: int) -> str:
    """A question of at most `chars_max` characters: its beginning and its end, where people put what they ask."""
    if len(text) <= chars_max:
        return text
    half = chars_max // 2
    return f"{text[: half - 1]}\n{text[-half:]}"


def _tokens(text: str, *, singles: bool) -> Iterator[str]:
    text = text[:TEXT_CHARS_MAX]
    if not text.isascii():
        # One character can become eighteen.
        text = _OPTIONAL.sub("", compatible(text))[:TEXT_CHARS_MAX]
    text = _THOUSANDS.sub("", _SHARP.sub(_spelled_out, text))
    for chunk in dict.fromkeys(_CHUNK.findall(text)):
        if chunk.isascii():
            yield from _of_known_chunk(chunk) if len(chunk) <= KNOWN_CHARS_MAX else _of_chunk(chunk)
            continue
        for index, run in enumerate(_UNSPACED_RUN.split(chunk)):
            if index % 2:
                yield from _of_unspaced(run, singles=singles)
            else:
                yield from chain.from_iterable(map(_of_chunk, _CHUNK.findall(run)))


def _spelled_out(match: re.Match[str]) -> str:
    return f"{match[1]} {match[1]}{'sharp' if match[2] == '#' else 'plusplus'}"


def _of_chunk(chunk: str) -> Iterator[str]:
    """A word or an identifier: whole, its pieces between the larger seams, its parts, and their humps and numbers."""
    pieces = [piece for piece in _COARSE_SEAM.split(chunk) if piece.strip("-._")]
    for piece in [chunk, *pieces] if len(pieces) > 1 else pieces:
        yield _folded(_SEAM.sub("", _DIGITS_SEAM.sub("x", piece)))
    for part in _SEAM.split(chunk):
        yield _folded(part)
        if not part.islower() and not part.isdigit() and not part.istitle():
            yield from map(_folded, _HUMP.split(part))
        if not part.isalpha() and not part.isdigit():
            yield from map(_folded, _LETTERS_OR_DIGITS.findall(part))


@lru_cache(maxsize=8192)
def _of_known_chunk(chunk: str) -> tuple[str, ...]:
    """The same, remembered: most of any text is made of few words."""
    return tuple(dict.fromkeys(_of_chunk(chunk)))


def _of_unspaced(run: str, *, singles: bool) -> Iterable[str]:
    units = _UNIT.findall(run)
    pairs = list(map("".join, pairwise(units)))
    return [*units, *pairs] if singles else (pairs or units)


def _folded(token: str) -> str:
    token = token.lower() if token.isascii() else compatible(token.casefold())
    if _LIKE_FLOAT.match(token):
        # The parser would read a number out of the beginning of a hash.
        token = f"x{token}"
    if len(token) > TOKEN_CHARS_MAX:
        # The whole of a long identifier is still found: a digest stands for the rest.
        return token[: TOKEN_CHARS_MAX - 17] + "h" + hashlib.sha256(token.encode()).hexdigest()[:16]
    return token
