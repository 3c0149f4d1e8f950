"""memory_optimize: the tool that relieves a full MEMORY.md or USER.md, and the plan as text and as JSON.

A host imports this module at its start, so the functions import what takes long to import.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from ..errors import BadArgument, Refused
from ..hosts.environment import profile_name
from ..model import Caller, FactKind
from ..runtime import Runtime
from ..session.identity import Identity
from ..session.themes import home_theme
from . import arguments as given
from .arguments import Arguments

if TYPE_CHECKING:
    from ..mirror.relief import Relief, Relieved
    from ..mirror.relief_plan import Plan

LINE_CHARS_MAX = 300
PROPOSALS_MAX = 20
PROPOSED = (
    "alike and shorter are proposals, which nobody but you carries out, with your memory tool; ask the user before you "
    "change words of theirs"
)


def memory_optimize(runtime: Runtime, arguments: Arguments, caller: Caller) -> dict[str, Any]:
    """The plan for the files of the home, or what was done with them. Raises BadArgument, Refused, Unavailable."""
    found = _relief(runtime, arguments, caller)
    if _only_shows(arguments):
        plans = found.plans()
        notes = {"note": f"the order is by length alone, because {found.problem}"} if found.problem else {}
        return {"dry_run": True, "files": [document(plan) for plan in plans], "proposals": PROPOSED, **notes}
    if caller.off_record:
        raise Refused("nothing is changed, because this session is off the record")
    runtime.writer.flush(runtime.settings.recall_budget_s / 2)
    return {"dry_run": False, "files": [done(each) for each in found.carry_out()], "proposals": PROPOSED}


def preview_of_memory_optimize(runtime: Runtime, arguments: Arguments, caller: Caller) -> str:
    """What `memory_optimize` would do; empty when it would change no file. Raises as it does."""
    if _only_shows(arguments):
        return ""
    plans = [plan for plan in _relief(runtime, arguments, caller).plans() if plan.changes]
    return "\n".join(line for plan in plans for line in lines(plan))


def relief_of(runtime: Runtime, *, session_id: str = "", above_pct: int | None = None) -> Relief:
    """The relief of the files of a runtime's home."""
    from ..mirror.relief import Relief

    settings, home = runtime.settings, runtime.home
    # Where agents have no tools for facts, they would not recall them.
    facts = {"fact_of": partial(_fact_of, settings.facts_text_chars_max)} if settings.tools == "facts" else {}
    return Relief(
        home, runtime.database, settings, runtime.files, runtime.context.capture.keeps_of_file,
        theme=_home_theme(runtime), session_id=session_id, above_pct=above_pct,
        **facts,
    )  # fmt: skip


def _home_theme(runtime: Runtime) -> str:
    identity = Identity(agent_identity=profile_name(runtime.home.path))
    return home_theme(identity, aliases=runtime.settings.theme_aliases)


def _fact_of(chars_max: int, line: str) -> tuple[FactKind, str, str] | None:
    from ..facts.notation import parse

    try:
        fact = parse(line, chars_max)
    except BadArgument:
        return None
    return fact.kind, fact.target, fact.content


def document(plan: Plan) -> dict[str, Any]:
    """A plan as JSON values."""
    return {
        "file": plan.file, "cap_chars": plan.chars_max,
        "chars": plan.chars, "pct": plan.pct(plan.chars),
        "chars_after": plan.chars_after, "pct_after": plan.pct(plan.chars_after),
        "above_pct": plan.above_pct, "to_pct": plan.to_pct,
        "moves": [
            {
                "entry": move.entry, "to": "facts" if move.facts else "entries", "chars": move.freed,
                "changed_at": move.changed_at.isoformat(), **({"facts": list(move.facts)} if move.facts else {}),
                **({"rest": move.rest} if move.rest else {}),
            }
            for move in plan.moves
        ],
        "repeated": list(plan.repeated),
        "stays": [{"entry": entry, "why": why} for entry, why in plan.staying.items()],
        "alike": [{"entry": one.entry, "other": one.other} for one in plan.alike[:PROPOSALS_MAX]],
        "shorter": [
            {"entry": one.entry, "proposed": one.other, "chars": one.shorter} for one in plan.shorter[:PROPOSALS_MAX]
        ],
    }  # fmt: skip


def done(relieved: Relieved) -> dict[str, Any]:
    """What was done with a file as JSON values."""
    backup = str(relieved.backup) if relieved.backup else None
    return {"changed": relieved.backup is not None, "backup": backup, **document(relieved.plan)}


def lines(plan: Plan) -> list[str]:
    """A plan as text: what becomes of the file, and of each entry that leaves it."""
    shown = [headline(plan)]
    shown += [f"  to {'facts' if move.facts else 'entries'}: {_line(move.entry)}" for move in plan.moves]
    return shown + [f"  once, not twice: {_line(entry)}" for entry in plan.repeated]


def headline(plan: Plan) -> str:
    """The size of a file before and after."""
    before = f"{plan.file}: {plan.chars:,} of {plan.chars_max:,} characters ({plan.pct(plan.chars)} %)"
    return f"{before} → {plan.chars_after:,} ({plan.pct(plan.chars_after)} %)" if plan.changes else before


def _line(entry: str) -> str:
    from ..text.sanitize import safe_line

    return safe_line(entry, LINE_CHARS_MAX)


def _only_shows(arguments: Arguments) -> bool:
    return arguments.get("dry_run") is None or given.switch(arguments, "dry_run")


def _relief(runtime: Runtime, arguments: Arguments, caller: Caller) -> Relief:
    own = _home_theme(runtime)
    if not caller.reads_files and caller.theme != own:
        raise Refused(f"MEMORY.md and USER.md of this home are for theme {own} only")
    above_pct = given.whole(arguments, "threshold_pct", 1, 100)
    session_id = given.text(arguments, "session_id") or caller.session_id
    return relief_of(runtime, session_id=session_id, above_pct=above_pct)
