#!/bin/sh
# gotest.sh ARGS runs "go test" with the arguments, by gotestsum: a line for each package as it ends, the output of failed tests
# at once, and a summary with each failed test and the reason of each skipped one, which plain "go test" hides.
#
# With ELRUN_CI set a skipped test counts as a failure: CI has everything that tests need, and a test that never runs proves
# nothing. GO names the go command.
set -eu
tools=$(cd "$(dirname "$0")/../internal/lint" && pwd)/tools.mod
events=$(mktemp)
trap 'rm -f "$events"' EXIT
"${GO:-go}" tool -modfile="$tools" gotestsum --format=pkgname-and-test-fails --format-hide-empty-pkg --jsonfile="$events" -- "$@"
if [ -n "${ELRUN_CI:-}" ] && grep -q '"Action":"skip",.*"Test":' "$events"; then
	echo "gotest.sh: a skipped test counts as a failure where ELRUN_CI is set" >&2
	exit 1
fi
