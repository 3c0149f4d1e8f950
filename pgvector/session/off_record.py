"""The messages that take a session off the record, and the turns of a transcript that are on it. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..hosts.runtime_messages import SPEAKER

# What the agent is told of a switch.
SWITCHED_OFF = "Nothing of this session is stored from now on, until the user says: on the record."
SWITCHED_ON = "What is said in this session is stored again."
STAYS_OFF = "Nothing of this session is stored: the operator has set off_record."
_OFF = re.compile(r"(?:go |we are |this is )?off (?:the )?record")
_ON = re.compile(r"(?:go |we are |this is )?(?:back )?on (?:the )?record")


def switch(message: object) -> bool | None:
    """True for a message that takes the session off the record, False for one that puts it on the record, else None.

    Only a whole message counts: "off the record", "on the record" and close variants, in any case and punctuation.
    """
    if not isinstance(message, str):
        return None
    speaker = SPEAKER.match(message)
    said = message[speaker.end() :] if speaker else message
    if len(said) > 60:
        return None
    words = " ".join(re.findall(r"[^\W_]+", said.casefold()))
    return True if _OFF.fullmatch(words) else False if _ON.fullmatch(words) else None


def notice(message: object, *, always_off: bool) -> str:
    """What the agent is told of a message that switches the session; empty for other messages.

    `always_off` is the setting `off_record`, with which no message puts a session on the record.
    """
    switched = switch(message)
    if switched is None:
        return ""
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
