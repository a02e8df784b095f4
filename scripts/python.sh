#!/usr/bin/env bash
# Tests of the Python package: style, types, and programs of PyTorch under elrun. It makes an environment outside of the
# checkout once, with packages from PyPI (several GB), and keeps it. Where that cannot be had the tests are skipped with the
# reason, but not with ELRUN_CI=1.
set -euo pipefail
cd "$(dirname "$0")/.."

packages=(torch==2.15.0 numpy pytest==9.2.0 ruff==0.17.6 mypy==2.4.1)
home=${ELRUN_PYTHON:-${XDG_CACHE_HOME:-$HOME/.cache}/elrun/python}
log=$(mktemp)
trap 'rm -f "$log"' EXIT

missing() {
	echo "make test-python: $1:"
	tail -n 3 "$log"
	[ -z "${ELRUN_CI:-}" ] || exit 1
	echo "SKIPPED: the tests of the Python package"
	exit 0
}

if [ "$(cat "$home/packages" 2>/dev/null)" != "${packages[*]}" ]; then
	echo "making an environment with PyTorch in $home, which takes some minutes"
	rm -rf "$home"
	mkdir -p "$(dirname "$home")"
	"${PYTHON:-python3}" -m venv "$home" >"$log" 2>&1 || missing "no virtual environment (Debian: apt-get install python3-venv)"
	"$home/bin/pip" install --quiet --disable-pip-version-check --no-cache-dir "${packages[@]}" >"$log" 2>&1 || missing "PyPI gives no PyTorch"
	echo "${packages[*]}" >"$home/packages"
fi

mkdir -p bin
CGO_ENABLED=0 "${GO:-go}" build -buildvcs=false -o bin/elrun ./cmd/elrun
cd python
"$home/bin/ruff" check .
"$home/bin/ruff" format --check .
"$home/bin/mypy"
ELRUN=$PWD/../bin/elrun exec "$home/bin/python" -m pytest -q -p no:cacheprovider tests
