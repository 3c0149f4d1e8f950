"""Tables in docs/ that are generated from the code: settings, metrics, layers and modules.

Usage: doc_tables.py [--fix]. Without `--fix` it changes nothing and exits with 1 when a table is out of date.
"""

from __future__ import annotations

import ast
import json
import re
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hermes_memory_pgvector.admin.web.metrics import METRICS, PREFIX
from hermes_memory_pgvector.hosts.config import ENV_PREFIX
from hermes_memory_pgvector.settings import Settings

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "pgvector"


def settings() -> str:
    """A row for each setting: key, environment variable, default, allowed values, description."""
    rows = ["| key | environment | default | allowed | what it does |", "|---|---|---|---|---|"]
    for key, schema in Settings.model_json_schema()["properties"].items():
        field = Settings.model_fields[key]
        default = shown(field.get_default(call_default_factory=True))
        description = (field.description or "").replace("|", "\\|")
        rows.append(f"| `{key}` | `{ENV_PREFIX}{key.upper()}` | {default} | {allowed(schema)} | {description} |")
    return "\n".join(rows)


def shown(default: Any) -> str:
    """A default value as the table shows it."""
    if default is None:
        return "unset"
    value = getattr(default, "get_secret_value", lambda: default)()
    if value == "":
        return "empty"
    if isinstance(value, float):
        value = f"{value:g}"
    return f"`{value if isinstance(value, str) else json.dumps(value)}`"


def allowed(schema: dict[str, Any]) -> str:
    """The allowed values of a setting, from its JSON schema."""
    if "anyOf" in schema:
        return " or ".join(allowed(choice) for choice in schema["anyOf"] if choice.get("type") != "null")
    if "enum" in schema:
        return ", ".join(f"`{choice}`" for choice in schema["enum"])
    if schema["type"] in ("integer", "number"):
        return f"{schema['minimum']:,} to {schema['maximum']:,}"
    return {"boolean": "`true`, `false`", "array": "list", "object": "mapping"}.get(schema["type"], "text")


def layers() -> str:
    """A row for each layer of the import contract, the top one first."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        contracts = tomllib.load(file)["tool"]["importlinter"]["contracts"]
    contract = next(contract for contract in contracts if contract["name"] == "Imports point down")
    rows = ["| layer | folders and modules |", "|---|---|"]
    for number, layer in enumerate(contract["layers"], 1):
        names = (name.strip() for name in re.split("[|:]", layer))
        rows.append(f"| {number} | {', '.join(f'`{label(name)}`' for name in names)} |")
    return "\n".join(rows)


def label(name: str) -> str:
    """A folder with a slash, a module with its ending."""
    return f"{name}/" if (PACKAGE / name).is_dir() else f"{name}.py"


def modules() -> str:
    """A table for each folder: the first line of every module's docstring."""
    folders = sorted({path.parent for path in PACKAGE.rglob("*.py")}, key=lambda folder: folder.parts)
    tables = []
    for folder in folders:
        found = sorted(path for path in folder.glob("*.py") if path.name != "__init__.py")
        if not found:
            continue
        name = folder.relative_to(PACKAGE).as_posix()
        title = "pgvector/" if name == "." else f"{name}/"
        about = (
            "The modules that the hosts look for, and what all folders share." if name == "." else first_line(folder)
        )
        rows = [f"**`{title}`** {about}", "", "| module | what it does |", "|---|---|"]
        rows += [f"| `{path.name}` | {first_line(path)} |" for path in found]
        tables.append("\n".join(rows))
    return "\n\n".join(tables)


def metrics() -> str:
    """A row for each metric: its name in Prometheus, type and meaning."""
    rows = ["| metric | type | meaning |", "|---|---|---|"]
    for name, (kind, text) in METRICS.items():
        rows.append(f"| `{PREFIX}{name}{'_total' * (kind == 'counter')}` | {kind} | {text} |")
    return "\n".join(rows)


def first_line(path: Path) -> str:
    """The first line of the docstring of a module, or of the `__init__.py` of a folder."""
    module = ast.parse((path / "__init__.py" if path.is_dir() else path).read_text(encoding="utf-8"))
    return (ast.get_docstring(module) or "").partition("\n")[0]


TABLES: dict[str, tuple[str, Callable[[], str]]] = {
    "settings": ("docs/configuration.md", settings),
    "metrics": ("docs/monitoring.md", metrics),
    "layers": ("docs/architecture.md", layers),
    "modules": ("docs/modules.md", modules),
}


def main() -> int:
    """Check every table, or write it; returns the exit code."""
    outdated = []
    for name, (document, table) in TABLES.items():
        path = ROOT / document
        text = path.read_text(encoding="utf-8")
        between = re.compile(rf"(<!-- table: {name} -->\n).*?(<!-- end of table -->)", re.DOTALL)
        place = between.search(text)
        if not place:
            print(f"{document} has no place for the table of {name}", file=sys.stderr)
            return 1
        fresh = f"{text[: place.start()]}{place[1]}{table()}\n{place[2]}{text[place.end() :]}"
        if fresh != text:
            outdated.append(f"{name} in {document}")
            if "--fix" in sys.argv:
                path.write_text(fresh, encoding="utf-8")
    if outdated and "--fix" not in sys.argv:
        print(f"out of date: {', '.join(outdated)}; run: scripts/check --fix", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
