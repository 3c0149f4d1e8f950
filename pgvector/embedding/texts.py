"""Texts as an embedder may get them."""

from __future__ import annotations


def prepared(text: str, chars_max: int) -> str:
    """The text as UTF-8 can carry it: no NUL, no lone surrogate, no space around it, at most `chars_max` characters.

    Raises ValueError when nothing is left: an empty text has no meaning to embed, and endpoints answer it with zeros.
    """
    clean = text.replace("\0", " ").strip()[:chars_max].encode("utf-8", "replace").decode("utf-8").strip()
    if not clean:
        raise ValueError("an empty text cannot be embedded; leave it out")
    return clean


def cut(text: str, bytes_max: int) -> str:
    """The longest head of at most `bytes_max` UTF-8 bytes.

    Bytes follow a model's tokens better than characters do: a Chinese character takes three bytes and about one token,
    an English word five bytes and about one.
    """
    return text.encode("utf-8")[:bytes_max].decode("utf-8", "ignore")


def longest_bytes(texts: list[str]) -> int:
    """The UTF-8 length of the longest text."""
    return max(len(text.encode("utf-8")) for text in texts)
