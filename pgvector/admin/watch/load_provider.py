"""Run by the Python of a host, which may lack this package: load the provider as the host does, and print the result.

    python load_provider.py NAME

The last line of the output is a JSON document: `host` is whether this Python has a host, `folder` where the host found
the provider, `available` whether it can be used, and `reason` why not. `modules` are the entry points of the package
that pip installed under the name of ours, of those that can be imported.
"""

from __future__ import annotations

import json
import logging
import sys
from importlib import metadata
from importlib.util import find_spec


def main(name: str) -> dict[str, object]:
    """Load the provider. Nothing is initialized."""
    logged: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            logged.append(record.getMessage()[:300])

    # Hosts log why they could not load a provider.
    loader = logging.getLogger("plugins.memory")
    loader.setLevel(logging.DEBUG)
    loader.addHandler(Keep())
    try:
        from plugins.memory import find_provider_dir, load_memory_provider
    except ImportError as error:
        return {"host": False, "folder": "", "available": False, "reason": str(error)}
    try:
        found = metadata.distribution("hermes-memory-pgvector")
        names = [point.value.partition(":")[0] for point in found.entry_points]
        # A rebuilt environment may keep the description of a package that is gone.
        version, modules = found.version, [name for name in names if find_spec(name.partition(".")[0])]
    except metadata.PackageNotFoundError:
        version, modules = "", []
    folder = find_provider_dir(name)
    provider = load_memory_provider(name)
    available = provider is not None and bool(provider.is_available())
    explain = getattr(provider, "unavailable_reason", None)
    reason = "" if available else str(explain() if explain else "; ".join(logged[-3:]))
    answer = {"host": True, "folder": str(folder or ""), "available": available, "reason": reason}
    return {**answer, "version": version, "modules": modules}


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1])))
