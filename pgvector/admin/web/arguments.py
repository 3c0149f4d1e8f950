"""The arguments of the commands of this folder. The hosts import this, so it imports nothing of the others."""

from __future__ import annotations

from ..command_parser import Commands, Filled, add, number


def add_commands(commands: Commands) -> None:
    """Add the commands."""
    text = "serve a page that shows the memory, and its metrics, over HTTP"
    serve = add(commands, "serve", text, "web.command:serve")
    serve.add_argument("--host", default="127.0.0.1", metavar="H", help="the address to serve on (default 127.0.0.1)")
    serve.add_argument("--port", type=number(0, 65535), default=8766, metavar="P", help="the port (default 8766)")
    text = "a name by which the page is asked for, as behind a proxy; give it again for others; needs the token"
    serve.add_argument("--allow-host", action="append", default=[], metavar="NAME", help=text)
    text = "show also the themes of persons and chat rooms"
    serve.add_argument("--persons", action="store_true", help=text)
    metrics = add(commands, "metrics", "print the metrics in the text format of Prometheus", "web.command:metrics")
    text = "replace this file by them, for node_exporter, and print nothing"
    metrics.add_argument("--textfile", action=Filled, default="", metavar="PATH", help=text)
