"""The messages that take a session off the record, and the turns of a transcript that are on it. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ..hosts.additions import written
from ..hosts.runtime_messages import SPEAKER
from ..hosts.transcript import MERGED, exchanges
from ..text.cleaning import compatible
from ..text.phrases import made_of, phrases

# What the agent is told of a switch.
SWITCHED_OFF = "Nothing of this session is stored from now on, until the user says: on the record."
SWITCHED_ON = "What is said in this session is stored again."
ONE_MESSAGE = "This message and its answer are not stored."
STAYS_OFF = "Nothing of this session is stored: the operator has set off_record."
# What may stand beside the words for it, and says nothing of its own.
_FILLERS = phrases("switch_fillers") | phrases("acknowledgements") | phrases("greetings")
_WORDS = (phrases("off_record"), phrases("on_record"))
_OFF, _ON = (words | _FILLERS for words in _WORDS)
# Nearly all messages have nothing of it, and one search is faster than to take them apart.
_STEMS = frozenset(max(phrase.split(), key=len)[:5] for words in _WORDS for phrase in words)
_MENTION = re.compile(r"<@[!&]?\w{1,40}>|(?<!\w)@[\w.-]{1,60}")
# Characters without width can stand in the midst of a word.
_WITHOUT_WIDTH = re.compile("[\u00ad\u200b-\u200f\u2060-\u2064\ufeff]")
_SENTENCE_END = re.compile(r"[.!?\n]+(?=\s|$)|[。！？…\n]+")
_CLAUSE_END = re.compile(r"\s*(?:[:：,，、;；—–()\[\]\n]|\s[-~|]\s|\s[-=]>)\s*")
_CLAUSES_MAX = 3
# How many of the last messages that a host has merged are looked at.
PARTS_MAX = 20
# So much of a long message is looked at, at each end.
_EDGE_CHARS = 300
_SPEAKS_OF_ONESELF = re.compile(
    r"(?P<before>[^.!?:\n]{0,60}?)\boff[ -]the[ -]record (?:but|my|i|i['’]m|we|our|here['’]s|between)\b", re.IGNORECASE
)
# Who asks whether a session is on the record does not put it there.
_ASKS = re.compile(r"\W*(?:are|is)\b", re.IGNORECASE)


def switch(message: object) -> bool | None:
    """True for a message that takes the session off the record, False for one that puts it on the record, else None.

    The words for it count in ten languages, in any case and punctuation, with an address, a courtesy or the like beside
    them. Off the record it is also when the first or the last sentence that says anything says nothing else; on the
    record only when the whole message does.
    """
    return _switch(_texts(message))


def aside(message: object) -> bool:
    """Whether a message that switches nothing says of itself that it is off the record: `off the record: …`."""
    return any(map(_is_aside, _texts(message)))


def unrecorded(message: object) -> bool:
    """Whether a message is not stored because of what it says itself."""
    texts = _texts(message)
    return _switch(texts) is not None or any(map(_is_aside, texts))


def silences(message: object) -> bool:
    """Whether a message takes the session or itself off the record."""
    texts = _texts(message)
    return bool(_switch(texts)) or any(map(_is_aside, texts))


def recorded(
    messages: Sequence[Mapping[str, Any]], *, ends_off: bool = False, gaps: bool = False, merged: bool = False
) -> list[tuple[str, str]]:
    """The (user, answer) pairs of a host's transcript, as `on_record`, without turns that were silenced meanwhile.

    With `merged` a question may be several messages: one host merges those that it has not answered with the next one.
    """
    pairs = exchanges(messages, _corrected)
    if merged:
        pairs = [(_silencing_part(question), answer) for question, answer in pairs]
    return on_record(pairs, ends_off=ends_off, gaps=gaps)


def has_switch(messages: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a message of a host's transcript switches the session, also one that the host has merged with others."""
    questions = (question for question, _ in exchanges(messages, _corrected))
    return any(switch(part) is not None for asked in questions for part in asked.split(MERGED)[-PARTS_MAX:])


def _corrected(question: str, said: str) -> str:
    """The question of a turn, or what was said later to silence it: an aside does not replace a switch."""
    return said if silences(said) and not switch(question) else question


def _switch(texts: Sequence[str]) -> bool | None:
    if texts and _says(_ON, texts[-1]) and not _ASKS.match(texts[-1]):
        return False
    return True if any(map(_switches_off, texts)) else None


def _silencing_part(question: str) -> str:
    """The first of the messages in a question that takes the session or itself off the record; without one, all."""
    parts = question.split(MERGED)[-PARTS_MAX:]
    return next(filter(silences, parts), question) if len(parts) > 1 else question


def _switches_off(said: str) -> bool:
    sentences = [text for text in _SENTENCE_END.split(said) if not made_of(_FILLERS, text)]
    return any(_says(_OFF, text) for text in (said, *sentences[:1], *sentences[-1:]))


def _is_aside(said: str) -> bool:
    clauses = [clause for clause in _CLAUSE_END.split(said.strip(" .!?…。！？")) if clause]
    beside = range(1, min(len(clauses) - 1, _CLAUSES_MAX) + 1)
    edges = [" ".join(part) for count in beside for part in (clauses[:count], clauses[-count:])]
    of_oneself = _SPEAKS_OF_ONESELF.match(said)
    return (of_oneself is not None and made_of(_FILLERS, of_oneself["before"])) or any(
        _says(_OFF, edge) for edge in edges
    )


def _says(words: frozenset[str], text: str) -> bool:
    """Whether the text consists of these words, more of them than what may stand beside them."""
    return made_of(words, text) and not made_of(_FILLERS, text)


def _texts(message: object) -> list[str]:
    """The texts that a message may be: with what stands in brackets before it, and then without.

    That may be the name of the speaker, but a person may also write the words for it in brackets.
    """
    if not isinstance(message, str):
        return []
    text = written(message)
    speaker = SPEAKER.match(text)
    texts = [text, text[speaker.end() :]] if speaker else [text]
    return [said for said in map(_said, texts) if said]


def _said(text: str) -> str:
    """Both ends of a text, without mentions of others and characters without width.

    Empty when they have none of the words.
    """
    if len(text) > 2 * _EDGE_CHARS:
        text = f"{text[:_EDGE_CHARS]}\n{text[-_EDGE_CHARS:]}"
    text = _WITHOUT_WIDTH.sub("", text)
    folded = compatible(text).casefold()
    return _MENTION.sub(" ", text) if any(stem in folded for stem in _STEMS) else ""


def notice(message: object, *, always_off: bool) -> str:
    """What the agent is told of a message that switches the session; empty for other messages.

    `always_off` is the setting `off_record`, with which no message puts a session on the record.
    """
    switched = switch(message)
    if switched is None:
        return ONE_MESSAGE if aside(message) and not always_off else ""
    if always_off:
        return STAYS_OFF
    return SWITCHED_OFF if switched else SWITCHED_ON


def on_record(turns: Sequence[tuple[str, str]], *, ends_off: bool = False, gaps: bool = False) -> list[tuple[str, str]]:
    """The (user, answer) pairs of a transcript that were said on the record, without the switches themselves.

    With `ends_off` it is known that the session is off the record at its end, whether or not a message says so. With
    `gaps` a switch may be missing between any two turns.
    """
    kept: list[tuple[str, str]] = []
    # Turns since the last switch. `off` is None while the switch before them may have been compressed away.
    stretch: list[tuple[str, str]] = []
    off: bool | None = None
    for pair in turns:
        switched = switch(pair[0])
        if switched is not None:
            # Turns of an unknown state that end with "on the record" were probably off it. So may those be that stand
            # before a summary, where it may have replaced such a switch.
            if (switched and not off) or (off is False and not gaps):
                kept += stretch[_last_summary(stretch) :] if off is None else stretch
            stretch, off = [], switched
        elif aside(pair[0]):
            continue
        elif off is False and not pair[0]:
            # A question without words may be a summary in place of compressed turns, a switch among them.
            kept += stretch
            stretch, off = [pair], None
        else:
            stretch.append(pair)
    return kept if off or ends_off else kept + stretch


def _last_summary(turns: Sequence[tuple[str, str]]) -> int:
    """The place of the last turn that may be a summary, 0 without one."""
    return max((place for place, (question, _) in enumerate(turns) if not question), default=0)
