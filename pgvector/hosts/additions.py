"""What hosts add to the words of a person in a message, and what the person wrote. Pure.

docs/hosts.md lists it. `tests/host/test_runtime_messages.py` takes the forms from the installed hosts.
"""

from __future__ import annotations

import re

from .provenance import ATTACHMENT
from .runtime_messages import JOB, NOTES, NOTES_MAX, ORIGIN

# What hosts put before what a person wrote: the message that it replies to, its id, files, pictures and recordings.
REPLY = "[Replying to"
PICTURE = ("[The user sent an image", "[The user attached an image")
# What follows the description of a picture, which may have any text.
LOOK = ("[If you need a closer look,", "[You can examine it with ")
PREFIXES = (
    REPLY, *PICTURE, *LOOK, "[Examine it with ", "[Triggering message id:", "[The user sent ", "[User sent ",
    "[voice message could not be transcribed", *NOTES,
)  # fmt: skip
# How the text of a file begins, perhaps behind the name of the speaker, that a gateway puts before the words of a
# person. Nothing shows where it ends.
DOCUMENT = re.compile(r"(?:\[[^\[\]\n]{1,100}\]\s*)?\[Content of [^\n]{1,300}\]:\n")
# What follows the words of a person who referred to files, changes or pages (`@file:notes.txt`); the mark of a page.
ATTACHED, PAGE = "\n\n--- Attached Context ---\n\n", "\U0001f310 @url:"
# The tools of hosts that stand for such texts.
DESCRIBING, READING, FETCHING = "vision_analyze", "read_file", "web_extract"
# It follows the messages of others in a room.
NEW_MESSAGE = "\n\n[New message]\n"
# The messages of others in a thread of Slack, which one host puts behind the name of the speaker.
THREAD = re.compile(r"(?P<speaker>\[[^\[\]\n]{1,100}\]\s*)?\[Thread context — ")
THREAD_END = "\n[End of thread context]\n\n"
# A command of a skill, and of several, in the transcript: before the person's words, or behind them, stands the skill.
SKILL, SKILLS = "[IMPORTANT: The user has invoked the ", " skill bundle,"
SKILL_INSTRUCTION = "The user has provided the following instruction alongside the skill invocation: "
SKILL_END = "\n\n[Runtime note:"
SKILLS_INSTRUCTION, SKILLS_END = "\nUser instruction: ", "\n\n[Loaded as part of the "
# Skills of a channel, before the first message of a session: how they begin, how the last one ends, what may follow it.
CHANNEL_SKILL = re.compile(r'\[IMPORTANT: The "[^\n]{1,200}" skill is auto-loaded')
SKILL_FOOTER = "then run them with the terminal tool using the absolute path."
SKILL_NOTES = (
    "[Skill config (", "[Skill setup note:", "[This skill has supporting files", "Load any of these with skill_view(",
)  # fmt: skip
# How one host names who speaks in a channel of Slack. The name is kept, as elsewhere, without the id.
SLACK_SPEAKER = re.compile(r"\[(?P<name>[^\[\]\n]{1,100}?) \| Slack user <@\w{1,40}>\](?= )")
# How hosts say before the words of a message how many pictures it has.
PICTURES = re.compile(r"\[\d+ images?\] ?")
# Such a note, up to the end of a line. Not its first words alone count, with which a person may begin, too: who answers
# a user's mail, or names a system.
_NOTE = re.compile(
    # A reply quotes a text that may have brackets, also at the end of a line, as JSON has.
    r'(?:\[Replying to(?: your previous message)?: ".*?"\](?=\n\n|\Z)'
    rf"|(?:{'|'.join(map(re.escape, PICTURE))}).*?\](?=\n(?:{'|'.join(map(re.escape, LOOK))}))"
    rf"|(?:{'|'.join(map(re.escape, PICTURE))})(?:[~.:]| but ).*?\]"
    r"|\[(?:System note:|SYSTEM NOTICE|System: (?:The|This|These|Your|You|Continue) ).*?\]"
    r"|\[The user sent an? (?:animated )?sticker.*?\]"
    r"|\[The user sent an? (?:(?:text )?document|audio file attachment|video attachment): '[^\n]*\]"
    r"|\[The user sent a voice message(?:: | but it )[^\n]*\]"
    r"|\[User sent (?:an image|audio|a video|a file): [^\n]*\]"
    r"|\[(?:If you need a closer look,|You can examine it with |Examine it with |Triggering message id:)[^\n]*\]"
    r"|\[voice message could not be transcribed[^\n]*\]"
    r")(?=\n|\Z)",
    re.DOTALL,
)


def written(message: str) -> str:
    """What a person wrote of a message, perhaps behind the name of the speaker, without what a host adds to it.

    The note of how many pictures a message has stays before it, and the text of a file that a gateway puts there.
    """
    pictures, text = _without_notes(message)
    return f"{pictures}{_without_skill(text)}".strip()


def brought(message: str) -> list[str]:
    """The tools that stand for the texts by others in a message: of files, descriptions of pictures, and pages."""
    own, mark, context = message.partition(ATTACHED)
    described = any(picture in own and f"]\n{look}" in own for picture in PICTURE for look in LOOK)
    return [
        *([ATTACHMENT] if DOCUMENT.match(_without_notes(own)[1]) else []),
        *([DESCRIBING] if described else []),
        *([FETCHING if PAGE in context else READING] if mark else []),
    ]


def _without_skill(text: str) -> str:
    """What a person wrote behind the command of a skill, without the skill itself; empty when that was nothing."""
    if CHANNEL_SKILL.match(text):
        said = text.rpartition(SKILL_FOOTER)[2].lstrip()
        for _ in range(NOTES_MAX):
            said = said.partition("\n\n")[2].lstrip() if said.startswith(SKILL_NOTES) else said
        return said
    if not text.startswith(SKILL):
        return text
    if SKILLS in text.partition("\n")[0]:
        return text.partition(SKILLS_INSTRUCTION)[2].partition(SKILLS_END)[0]
    # The text of the skill may have the same words.
    _, found, said = text.rpartition(SKILL_INSTRUCTION)
    return said.partition(SKILL_END)[0] if found else ""


def _without_notes(message: str) -> tuple[str, str]:
    """The note of how many pictures a message has, and the rest without what a host adds but skills."""
    text = ORIGIN.sub("", JOB.sub("", message.strip()).partition(ATTACHED)[0])
    found = PICTURES.match(text)
    pictures = found[0] if found else ""
    text = text[len(pictures) :].lstrip()
    if text.startswith("["):
        text = text.rpartition(NEW_MESSAGE)[2].lstrip()
    for _ in range(NOTES_MAX):
        note = _NOTE.match(text) if text.startswith(PREFIXES) else None
        if note is None:
            break
        text = text[note.end() :].lstrip()
    thread = THREAD.match(text)
    if thread and THREAD_END in text:
        text = f"{thread['speaker'] or ''}{text.rpartition(THREAD_END)[2]}"
    speaker = SLACK_SPEAKER.match(text)
    return pictures, f"[{speaker['name']}]{text[speaker.end() :]}" if speaker else text
