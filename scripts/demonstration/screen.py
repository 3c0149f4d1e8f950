"""Output of the demo on the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console, RenderableType
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table

console = Console(highlight=False, width=max(80, min(100, Console().width)))


def heading(text: str) -> None:
    console.print()
    console.rule(f"[b]{text}[/]", align="left")
    console.print()


def show(what: RenderableType, *, indent: int = 2, after: int = 0) -> None:
    console.print(Padding(what, (0, 0, after, indent)))


def note(text: str) -> None:
    show(f"[dim]{escape(text)}[/]", after=1)


def show_table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, right_from: int = 99, indent: int = 2) -> None:
    """Print a table without lines. Columns from number `right_from` on are right-aligned."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number >= right_from else "left", no_wrap=number >= right_from)
    for row in rows:
        table.add_row(*row)
    show(table, indent=indent, after=1)


def milliseconds(ms: float) -> str:
    return f"{ms:.1f} ms" if ms < 100 else f"{ms:.0f} ms"
