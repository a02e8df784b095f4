#!/usr/bin/env bash
# Tests of the Python package: style, types, and programs of PyTorch under elrun. It makes an environment outside of the
# checkout once, with packages from PyPI (several GB), and keeps it. Where that cannot be had the tests are skipped with the
# reason, but not with ELRUN_CI=1.
set -euo pipefail
cd "$(dirname "$0")/.."

packages=(torch==2.15.0 numpy pytest==9.2.0 ruff==0.17.6 mypy==2.4.1)
tools=(hatchling==1.33.0 twine==7.0.0)
home=${ELRUN_PYTHON:-${XDG_CACHE_HOME:-$HOME/.cache}/elrun/python}
log=$(mktemp)
user=$(mktemp -d)
trap 'rm -rf "$log" "$user"' EXIT

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

if [ "$(cat "$home/tools" 2>/dev/null)" != "${tools[*]}" ]; then
	"$home/bin/pip" install --quiet --disable-pip-version-check --no-cache-dir "${tools[@]}" >"$log" 2>&1 || missing "PyPI gives no ${tools[*]}"
	echo "${tools[*]}" >"$home/tools"
fi

mkdir -p bin
CGO_ENABLED=0 "${GO:-go}" build -buildvcs=false -o bin/elrun ./cmd/elrun
# A user of the wheel has an environment with PyTorch, and neither Go, a compiler nor this folder.
try_wheel() {
	rm -f dist/elrun-*.whl
	PYTHON=$home/bin/python scripts/wheel.sh "$("${GO:-go}" env GOOS)/$("${GO:-go}" env GOARCH)"
	"$home/bin/twine" check --strict dist/elrun-*.whl
	"$home/bin/python" -m venv --without-pip "$user/env"
	"$home/bin/pip" --python "$user/env/bin/python" install --quiet --disable-pip-version-check --no-index --no-deps dist/elrun-*.whl
	"$home/bin/python" -c 'import site; print(site.getsitepackages()[0])' >"$(echo "$user"/env/lib/python3*/site-packages)/torch.pth"
	cp python/tests/train.py "$user"
	(cd "$user" && env -i PATH="$user/env/bin" env/bin/elrun -n 2 python train.py --epochs 1)
	(cd "$user" && env -i PATH="$user/env/bin" env/bin/python -m elrun version)
}

try_wheel
cd python
"$home/bin/ruff" check .
"$home/bin/ruff" format --check .
"$home/bin/mypy"
ELRUN=$PWD/../bin/elrun "$home/bin/python" -m pytest -q -p no:cacheprovider tests
