#!/bin/sh
# Runs every fuzz target of the tree, one after another, for FUZZTIME each.
#
# The script finds the targets by their names, so that a new target needs no entry here. All targets
# run even when one has failed. The exit status is 1 if a target has failed.
set -eu

time=${FUZZTIME:-10s}
go=${GO:-go}

# One line for each target, for example "./transport/internal/wire FuzzDecode".
targets=$(find . -name '*_test.go' -not -path '*/testdata/*' -exec grep -H '^func Fuzz' {} + |
	sed -n 's|^\(.*\)/[^/]*:func \(Fuzz[A-Za-z0-9_]*\)(.*$|\1 \2|p' | sort)
if [ -z "$targets" ]; then
	echo "fuzz: no targets"
	exit 0
fi

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
log=$scratch/log
found=$("$go" env GOCACHE)/fuzz/$("$go" list -m) # the folder in which "go test -fuzz" keeps inputs that reach new code

# build DIR builds the tests of a package with the instrumentation for fuzzing, once for all targets
# of the package.
build() {
	binary=$scratch/$(echo "$1" | tr / _)
	[ -x "$binary" ] || "$go" test -c -vet=off -fuzz=. -o "$binary" "$1" </dev/null
}

# fuzz DIR NAME runs one target. On a busy machine the fuzzing engine may report the end of FUZZTIME
# as an error, without an input that fails. Then fuzz runs the target again.
fuzz() {
	for _ in 1 2 3; do
		if (cd "$1" && "$binary" -test.run='^$' -test.fuzz="^$2\$" -test.fuzztime="$time" -test.fuzzcachedir="$found/${1#./}") </dev/null >"$log" 2>&1; then
			cat "$log"
			return 0
		fi
		cat "$log"
		grep -q '^ *context deadline exceeded$' "$log" && ! grep -q 'Failing input' "$log" || return 1
	done
	return 1
}

n=0
failed=
# The list comes from a here-document, because with a pipe the loop would run in a subshell and lose
# the counts.
while read -r dir name; do
	echo "fuzz: $name in $dir for $time"
	{ build "$dir" && fuzz "$dir" "$name"; } || failed="$failed $dir:$name"
	n=$((n + 1))
done <<EOF
$targets
EOF

if [ -n "$failed" ]; then
	echo "fuzz: FAIL:$failed" >&2
	exit 1
fi
echo "fuzz: ok, $n targets"
