"""Abbreviations that models read as well as the words. Pure."""

from __future__ import annotations

import re

# Long words of technical notes.
_SHORT = {
    "administrator": "admin", "application": "app", "applications": "apps", "argument": "arg", "arguments": "args",
    "approximately": "about", "authentication": "auth", "authorization": "authz", "average": "avg",
    "certificate": "cert", "certificates": "certs", "command line": "CLI", "configuration": "cfg",
    "configurations": "cfgs", "configure": "cfg", "continuous integration": "CI", "credentials": "creds",
    "database": "db", "databases": "dbs", "dependencies": "deps", "dependency": "dep", "development": "dev",
    "directories": "dirs", "directory": "dir", "documentation": "docs", "environment": "env",
    "environments": "envs", "environment variable": "env var", "environment variables": "env vars",
    "for example": "e.g.", "frontend": "FE", "function": "fn", "functions": "fns", "identifier": "id",
    "identifiers": "ids", "implementation": "impl", "in order to": "to", "information": "info",
    "infrastructure": "infra", "initialization": "init",
    "kubernetes": "k8s", "mandatory": "mndtry", "maximum": "max", "message": "msg", "messages": "msgs",
    "milliseconds": "ms", "minimum": "min", "number of": "no. of", "object": "obj",
    "operating system": "OS", "package": "pkg", "packages": "pkgs", "parameter": "param", "parameters": "params",
    "password": "pw", "performance": "perf", "permission": "perm", "permissions": "perms",
    "postgresql": "Postgres", "previous": "prev", "production": "prod",
    "pull request": "PR", "pull requests": "PRs", "reference": "ref", "references": "refs", "regarding": "re",
    "repositories": "repos", "repository": "repo", "request": "req", "requests": "reqs", "requirement": "reqmt",
    "requirements": "reqmts", "response": "resp", "server": "srv", "servers": "srvs",
    "service": "svc", "services": "svcs", "specification": "spec", "specifications": "specs",
    "synchronization": "sync", "temporary": "tmp", "transaction": "tx", "transactions": "txs", "utilities": "utils",
    "variable": "var", "variables": "vars", "version": "ver", "with regard to": "re", "without": "w/o",
}  # fmt: skip
# Whole words of prose only: no part of a path, an address, a name or a quoted text.
_WORDS = re.compile(
    r"(?<![\w./\\@:#$%&=~\"'`<>-])(?:{})(?![\w/\\@#$%&=~\"'`<>-]|[.:]\w)".format(
        "|".join(sorted(map(re.escape, _SHORT), key=len, reverse=True))
    ),
    re.IGNORECASE,
)
_QUOTED = re.compile(r"(```.*?```|`[^`\n]*`|\"[^\"\n]*\"|“[^”\n]*”|„[^“\n]*“|https?://\S+)", re.DOTALL)


def abbreviated(text: str) -> str:
    """The text with its long words abbreviated, but for code, quotes and addresses."""
    # Every second part is quoted.
    parts = [part if place % 2 else _WORDS.sub(_short, part) for place, part in enumerate(_QUOTED.split(text))]
    return "".join(parts)


def _short(found: re.Match[str]) -> str:
    return _SHORT[found[0].lower()]
