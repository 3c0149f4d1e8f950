"""Run by the Python of a host, which may lack this package: load the provider as the host does, and print the result.

    python load_provider.py NAME

The last line of the output is a JSON document: `host` is whether this Python has a host, `folder` where the host found
the provider, `available` whether it can be used, and `reason` why not.
"""

from __future__ import annotations

import json
import logging
import sys


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
    folder = find_provider_dir(name)
    provider = load_memory_provider(name)
    available = provider is not None and bool(provider.is_available())
    explain = getattr(provider, "unavailable_reason", None)
    reason = "" if available else str(explain() if explain else "; ".join(logged[-3:]))
    return {"host": True, "folder": str(folder or ""), "available": available, "reason": reason}


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1])))
