"""The arguments of the commands of this folder. The hosts import this, so it imports nothing of the others."""

from __future__ import annotations

from ..command_parser import Commands, add, add_administrator


def add_commands(commands: Commands) -> None:
    """Add the command."""
    grants = add(commands, "grants", "list, add or remove the themes that logins may see with row security", "")
    actions = grants.add_subparsers(dest="action", metavar="ACTION")
    listing = add(actions, "list", "list the grants of all logins, or of one", "grants.command:show_all")
    listing.add_argument("login", nargs="?", default="", metavar="LOGIN", help="the role that agents connect as")
    adding = add(actions, "add", "let a login see a theme, or themes of a form", "grants.command:add")
    removing = add(actions, "remove", "take a grant from a login", "grants.command:remove")
    for action in (adding, removing):
        action.add_argument("login", metavar="LOGIN", help="the role that agents connect as")
        text = "a theme; a beginning with * behind it, or *, for all but those of persons and rooms; ** for all"
        action.add_argument("pattern", metavar="PATTERN", help=text)
    for action in (listing, adding, removing):
        add_administrator(action)
