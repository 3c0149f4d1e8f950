"""The themes that a theme may read and write, and which of them a recall reads without being asked."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from ..errors import BadArgument
from ..model import Scope
from ..settings import Settings
from ..text.theme_names import covers, hidden_pattern, is_bench, is_pattern, normalise, reserved
from .themes import aliased, allowed, quoted, stored_name


def readable(
    theme: str, scope: str, settings: Settings, granted: tuple[str, ...] | None = None
) -> tuple[str, ...] | None:
    """The themes that `theme` reads when it asks for `scope`: `current`, `session`, `all`, or the name of a theme.

    None means `theme` itself and every theme that `theme_names.hidden_pattern` does not match. Where other themes are
    `granted`, the settings add none to them. Raises BadArgument when the scope may not be read.
    """
    wanted = normalise(scope)
    if wanted == "session":
        return (theme,)
    _, *also = unasked = read_unasked(theme, settings) if granted is None else (theme,)
    if wanted == "current":
        return unasked
    others = _others(theme, settings) if granted is None else _granted(theme, granted, settings)
    if wanted == "all":
        return None if others is None else tuple(dict.fromkeys((theme, *also, *others)))
    named = aliased(wanted, settings.theme_aliases)
    if named == theme:
        return (theme,)
    hidden = reserved(named) or is_bench(named, settings.bench_themes) or not allowed(named, settings.allowed_themes)
    if hidden or (others is not None and named not in (*also, *others)):
        choice = "" if others is None else "".join(f", {other}" for other in (*also, *others)[:20])
        rule = "" if hidden or granted is not None else "; the setting cross_theme_recall opens other themes"
        raise BadArgument(f"scope {quoted(scope)} may not be read from here; use current, session, all{choice}{rule}")
    return (named,)


def scope_of(
    theme: str, name: str, session_id: str, settings: Settings, granted: tuple[str, ...] | None = None
) -> Scope:
    """The rows that `theme` may read with the scope `name`, as `readable`; empty for `scope_default`.

    Raises BadArgument.
    """
    name = normalise(name or settings.scope_default)
    if name == "session" and not session_id:
        raise BadArgument("scope is 'session' but there is no session; use current")
    hidden = hidden_pattern(settings.bench_themes, settings.allowed_themes)
    themes = readable(theme, name, settings, granted)
    return Scope(theme, themes, (session_id,) if name == "session" else (), hidden=hidden)


def writable(theme: str, name: str, settings: Settings) -> str:
    """The theme that `theme` may write by the name `name`. Raises BadArgument unless `also_write` lists it."""
    named = stored_name(name, settings)
    listed = layered(theme, settings.also_write, settings)
    if named != theme and named not in listed:
        choice = ", ".join(listed[:20])
        raise BadArgument(
            f"theme {quoted(name)} may not be written from here; "
            + (f"leave it out, or use {choice}" if listed else "leave it out")
        )
    return named


def read_unasked(theme: str, settings: Settings) -> tuple[str, ...]:
    """The themes that a recall of `theme` reads without being asked: itself, then those of `also_recall`."""
    return (theme, *layered(theme, settings.also_recall, settings))


def layered(theme: str, rules: Mapping[str, Collection[str]], settings: Settings) -> tuple[str, ...]:
    """The other themes that the rules of `also_recall` or `also_write` list for a theme, by their stored names.

    A key of the rules is a theme or a pattern. Reserved names and benchmark themes are never listed.
    """
    if is_bench(theme, settings.bench_themes):
        return ()
    ours = [names for key, names in rules.items() if covers(stored_name(key, settings), theme)]
    return _listed(theme, ours, settings)


def _others(theme: str, settings: Settings) -> tuple[str, ...] | None:
    """The other themes that a theme may read, by their stored names; None for all that are not hidden."""
    rule = settings.cross_theme_recall
    if rule == "none" or is_bench(theme, settings.bench_themes):
        return ()
    if isinstance(rule, dict):
        ours = [themes for reader, themes in rule.items() if stored_name(reader, settings) == theme]
        return _listed(theme, ours, settings)
    names = settings.allowed_themes
    # Where there are patterns, `hidden_pattern` leaves out what they do not cover.
    return _visible(theme, names, settings) if names and not any(map(is_pattern, names)) else None


def _granted(theme: str, granted: tuple[str, ...], settings: Settings) -> tuple[str, ...]:
    """Those of the granted themes that `theme` may read: never reserved ones, nor any from or of a benchmark."""
    return () if is_bench(theme, settings.bench_themes) else _listed(theme, [granted], settings)


def _listed(theme: str, lists: Iterable[Iterable[str]], settings: Settings) -> tuple[str, ...]:
    """The other themes of some lists that may be used, by their stored names."""
    found = _visible(theme, (name for names in lists for name in names), settings)
    return tuple(name for name in found if allowed(name, settings.allowed_themes))


def _visible(theme: str, names: Iterable[str], settings: Settings) -> tuple[str, ...]:
    """The stored names of those other themes that are not hidden."""
    found, bench = dict.fromkeys(stored_name(name, settings) for name in names), settings.bench_themes
    return tuple(name for name in found if name != theme and not reserved(name) and not is_bench(name, bench))
