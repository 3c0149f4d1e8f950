#!/bin/sh
# Installs this clone into the Python that runs hermes and links it into HERMES_HOME. Run it again after `git pull`.
#   [PYTHON=/path/to/python] [HERMES_HOME=DIR] scripts/install.sh
set -eu

case ${1:-} in
  '') ;;
  -h | --help) printf '%s\n' 'usage: [PYTHON=/path/to/python/of/hermes] [HERMES_HOME=DIR] scripts/install.sh'; exit ;;
  *) printf '%s\n' "install.sh: unknown word $1; see $0 --help" >&2; exit 2 ;;
esac

root=$(cd "$(dirname "$0")/.." && pwd -P)
fail() { printf 'install.sh: %s\n' "$1" >&2; exit 1; }

python=${PYTHON:-}
if [ -z "$python" ]; then
  hermes=$(command -v hermes) || fail "hermes is not on the PATH; run: PYTHON=/path/to/python/of/hermes $0"
  # The first line of a script names its Python; the second line does when the path is long or has blanks.
  python=$(sed -n "1s|^#! *\(/[^ ]*python[0-9.]*\).*|\1|p; 2s|^'''exec' \"\(/[^\"]*python[0-9.]*\)\".*|\1|p
    2s|^'''exec' \(/[^\" ]*python[0-9.]*\) .*|\1|p" "$hermes" | head -n 1)
  [ -n "$python" ] || fail "cannot find the Python of $hermes; run: PYTHON=/path/to/python/of/hermes $0"
fi
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || fail "$python is not Python 3.11 or newer"

# -P: in the root of the clone, our folder pgvector would hide the library pgvector.
if "$python" -P -m pip --version >/dev/null 2>&1; then
  "$python" -P -m pip install --quiet --disable-pip-version-check "$root[embedded]"
elif command -v uv >/dev/null; then
  uv pip install --quiet --python "$python" --reinstall-package hermes-memory-pgvector "$root[embedded]"
else
  fail "$python has no pip, and uv is not on the PATH; install one of them first"
fi

"$python" -P -m hermes_memory_pgvector install
printf '%s\n' "Installed. Once memory.provider is pgvector, check everything with: hermes pgvector doctor" >&2
