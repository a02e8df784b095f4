#!/bin/sh
# Checks the model of the view change with Spin: the model as it is must have no error,
# and each of its planted errors must be found. Needs spin and a C compiler (Debian:
# apt-get install spin gcc libc6-dev).
set -eu
model=$(cd "$(dirname "$0")" && pwd)
for tool in spin "${CC:=cc}"; do
	command -v "$tool" >/dev/null || { echo "check.sh: there is no $tool; install spin and gcc" >&2; exit 1; }
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# run NAME SPIN-FLAGS: leaves the verifier's report in $work/NAME.
run() {
	name=$1
	shift
	(cd "$work" && spin -a "$@" "$model/view.pml" >spin.out && "$CC" -w -O2 -DSAFETY -DCOLLAPSE -DMEMLIM=3000 -o pan pan.c && ./pan -m1000000 -n || true) >"$work/$name" 2>&1 || { cat "$work/$name" >&2; exit 1; }
}

# sound NAME SPIN-FLAGS: searches all states of the model as it is.
sound() {
	run "$@"
	if ! grep -q 'errors: 0' "$work/$1" || grep -q 'search not completed\|depth too small\|out of memory' "$work/$1"; then
		cat "$work/$1" >&2
		echo "check.sh: the model has an error, or is too large" >&2
		exit 1
	fi
	echo "$1: $(sed -n 's/^ *\([0-9.e+]*\) states, stored.*/\1/p' "$work/$1") states, no error"
}

one="-DCHANGES=1 -DBALLOTS=3 -DCRASHES=2"
two="-DCHANGES=2 -DBALLOTS=2 -DCRASHES=0"
sound one-change $one
sound two-changes $two
for bug in HALF FORGET BELOW SHRINK REUSE EAGER; do
	flags=$one
	if [ $bug = EAGER ]; then flags=$two; fi
	run "$bug" $flags "-D$bug"
	grep -q 'assertion violated' "$work/$bug" || { cat "$work/$bug" >&2; echo "check.sh: $bug was not found" >&2; exit 1; }
	echo "$bug: found"
done
