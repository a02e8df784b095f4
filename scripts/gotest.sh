#!/bin/sh
# gotest.sh ARGS runs "go test" with the arguments, by gotestsum. It prints a line for each package
# when its tests end, and the output of failed tests at once. At the end it prints each failed test
# and the reason of each skipped test, which plain "go test" does not show.
#
# If ELRUN_CI is set, a skipped test counts as a failure, because CI has everything that tests need.
# The environment variable GO is the name of the go command. The tests are linked without debug
# information, because that takes two thirds of the time.
set -eu
tools=$(cd "$(dirname "$0")/../internal/lint" && pwd)/tools.mod
events=$(mktemp)
trap 'rm -f "$events"' EXIT
"${GO:-go}" tool -modfile="$tools" gotestsum --format=pkgname-and-test-fails --format-hide-empty-pkg --jsonfile="$events" -- -ldflags=-w "$@"
if [ -n "${ELRUN_CI:-}" ] && grep -q '"Action":"skip",.*"Test":' "$events"; then
	echo "gotest.sh: a skipped test counts as a failure where ELRUN_CI is set" >&2
	exit 1
fi
