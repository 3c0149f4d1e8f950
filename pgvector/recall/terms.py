"""The terms of a question: what Postgres makes of its words, asked once a word."""

from __future__ import annotations

from ..store import retrieval
from ..store.connection.database import Connection
from ..text import tokenizer
from .cache import Remembered

WORDS_REMEMBERED_MAX = 4096


class Terms:
    """The terms of questions. Safe for any thread."""

    def __init__(self) -> None:
        self._lexemes = Remembered[str, tuple[str, ...]](WORDS_REMEMBERED_MAX)

    def of(self, connection: Connection, query: str) -> dict[str, str]:
        """The terms in their order, each with the word of the question that it comes from, folded and in parts.

        Of several words with a term in common the first counts.
        """
        words = tokenizer.query(query).split()
        known = {word: lexemes for word in words if (lexemes := self._lexemes.get(word)) is not None}
        unknown = [word for word in words if word not in known]
        if unknown:
            for word, lexemes in retrieval.lexemes(connection, unknown).items():
                known[word] = lexemes
                self._lexemes.put(word, lexemes)
        terms = {lexeme: word for word in reversed(words) for lexeme in known[word]}
        return dict(sorted(terms.items()))
