#!/usr/bin/env bash
# churn.sh runs python/bench/churn with its arguments, in an environment outside of the checkout that has the systems which
# PyPI gives. The environment shares PyTorch with that of python.sh, if there is one, and is kept. A system that can't be
# had is skipped with the reason. PCCL is used where the environment has it: pip install what its source makes, built without
# CUDA.
set -euo pipefail
cd "$(dirname "$0")/.."

packages=(torch==2.15.0 numpy torchft==0.2.0 hivemind==1.1.12)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/elrun
home=${ELRUN_CHURN:-$cache/churn}
torch=${ELRUN_PYTHON:-$cache/python}

site() { "$1/bin/python" -c 'import site; print(site.getsitepackages()[0])'; }

if [ "$(cat "$home/packages" 2>/dev/null)" != "${packages[*]}" ]; then
	echo "making an environment in $home, which takes some minutes"
	mkdir -p "$home"
	base=${PYTHON:-python3}
	[ ! -x "$torch/bin/python" ] || base=$torch/bin/python
	"$base" -m venv "$home"
	[ ! -x "$torch/bin/python" ] || site "$torch" >"$(site "$home")/torch.pth"
	for package in "${packages[@]}"; do
		"$home/bin/pip" install --quiet --disable-pip-version-check --no-cache-dir "$package" || echo "make bench-churn: PyPI gives no $package" >&2
	done
	echo "${packages[*]}" >"$home/packages"
fi
ELRUN=$PWD/bin/elrun exec "$home/bin/python" python/bench/churn/run.py "$@"
