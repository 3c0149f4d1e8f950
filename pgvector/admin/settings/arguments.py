"""The arguments of the commands of this folder. The hosts import this, so it imports nothing of the others."""

from __future__ import annotations

from ..command_parser import Commands, Filled, add


def add_commands(commands: Commands) -> None:
    """Add the commands."""
    settings = add(commands, "settings", "show settings with the place of each, change them, and copy them", "")
    actions = settings.add_subparsers(dest="action", metavar="ACTION")
    show = add(actions, "list", "list the settings that are set, and where", "settings.listing:show_all")
    show.add_argument("--all", action="store_true", help="those with their default, too")
    get = add(actions, "get", "print the value of a setting", "settings.listing:get")
    change = add(actions, "set", "change a setting; sessions that start afterwards use it", "settings.change:change")
    unset = add(actions, "unset", "remove what is saved for a setting", "settings.change:unset")
    for action in (get, change, unset):
        action.add_argument("key", metavar="KEY", help="its name, such as prefetch_limit")
    change.add_argument("value", metavar="VALUE", help="its value; a list or a mapping as JSON")
    copy = add(actions, "copy", "copy what is set for this home to other profiles", "settings.copy:copy")
    copy.add_argument("keys", nargs="*", metavar="KEY", help="only these settings (default: all that are set)")
    text = "a profile, or the folder of a home; give it again for others"
    copy.add_argument("--to", action=Filled, default=[], required=True, metavar="PROFILE", help=text)
    copy.add_argument("--yes", action="store_true", help="ask no question")
    add(actions, "on", "make hermes use this memory in this home", "settings.provider:turn_on")
    add(actions, "off", "make hermes use its own memory only; nothing is deleted", "settings.provider:turn_off")
    project = add(actions, "project", "show or choose the theme of a working folder", "settings.project:project")
    project.add_argument("folder", nargs="?", default=".", metavar="DIR", help="the folder (default: the current one)")
    text = "the name of the project, saved in the root of its checkout, or in the folder"
    project.add_argument("--name", default="", metavar="N", help=text)
