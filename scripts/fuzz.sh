#!/bin/sh
# Runs every fuzz target of the tree, one after another, for FUZZTIME each.
#
# The targets are found by their names, so that a new one needs no entry here. All of
# them run even when one has failed; the exit status says whether any did.
set -eu

time=${FUZZTIME:-10s}
go=${GO:-go}

# One line per target, as in "./internal/wire FuzzDecode".
targets=$(find . -name '*_test.go' -not -path '*/testdata/*' -exec grep -H '^func Fuzz' {} + |
	sed -n 's|^\(.*\)/[^/]*:func \(Fuzz[A-Za-z0-9_]*\)(.*$|\1 \2|p' | sort)
if [ -z "$targets" ]; then
	echo "fuzz: no targets"
	exit 0
fi

n=0
failed=
# The list comes from a here-document and not a pipe, which would lose the counts.
while read -r dir name; do
	echo "fuzz: $name in $dir for $time"
	"$go" test -run='^$' -fuzz="^$name\$" -fuzztime="$time" "$dir" </dev/null || failed="$failed $dir:$name"
	n=$((n + 1))
done <<EOF
$targets
EOF

if [ -n "$failed" ]; then
	echo "fuzz: FAIL:$failed" >&2
	exit 1
fi
echo "fuzz: ok, $n targets"
