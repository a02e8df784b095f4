#!/usr/bin/env bash
# The first hour of a person who is new to elrun, as README and docs/quickstart.md describe it: clone, make run, a program, three
# peers, a kill, and the job in the terminal, on its page and in its report. It needs git, Go, make and curl.
set -euo pipefail
cd "$(dirname "$0")/.."

fail() {
	echo "newcomer: $*" >&2
	exit 1
}

# until_true COMMAND... repeats the command until it succeeds, for a minute.
until_true() {
	local end=$((SECONDS + 60))
	until "$@"; do
		[ $SECONDS -lt $end ] || fail "not within a minute: $*"
		sleep 0.2
	done
}

# has FILE TEXT succeeds if the file has the text.
has() { grep -q -- "$2" "$1"; }

dir=$(mktemp -d)
job=
finish() {
	[ -z "$job" ] || kill "$job" 2>/dev/null || true
	wait
	rm -rf "$dir"
}
trap finish EXIT
trap 'exit 143' HUP INT TERM

# Without a repository, as in an unpacked archive, the files are what a clone has.
git clone -q . "$dir/elrun" 2>/dev/null || { mkdir "$dir/elrun" && tar -c --exclude=./bin --exclude=./data . | tar -x -C "$dir/elrun"; }
# The images of a clone of one's own come from the network; these have been fetched.
[ ! -d data ] || cp -rL data "$dir/elrun/data"
cd "$dir/elrun"

echo "== make run"
make run | tee "$dir/run"
# The last line begins with "done" and tells the accuracy on the test images.
tail -n 1 "$dir/run" | awk '
	$1 == "done" { for (i = 2; i <= NF; i++) if (split($i, f, "=") == 2 && f[1] == "accuracy") accuracy = f[2] }
	END { if (accuracy < 0.97) { print "accuracy \"" accuracy "\" in the last line, want at least 0.97"; exit 1 } }' >&2

echo "== a program with a loop of its own"
mkdir -p my/line
awk '/[Ss]ave it as `my\/line\/main.go`:$/ { named = 1 }
	/^```/ { if (inside) exit; inside = named; next }
	inside' docs/quickstart.md >my/line/main.go
CGO_ENABLED=0 go build -o bin/line ./my/line/main.go
bin/elrun -n 3 bin/line | tee "$dir/line"
[ "$(grep -c 'after 300 steps: y = 1.0 + 2.0 x' "$dir/line")" = 3 ] || fail "not all peers have fitted the line"

echo "== a kill, seen in the terminal, on the page and in the report"
sed -i 's/steps, batch, rate = 300,/steps, batch, rate = 1_000_000_000,/' my/line/main.go
CGO_ENABLED=0 go build -o bin/line ./my/line/main.go
# The commands of the section, without what a person reads behind them.
sed -n '/^## Watch it/,/^## A model/ { /^bin\/\|^kill/ { s/ *#.*//; p } }' docs/quickstart.md >"$dir/commands"
[ "$(wc -l <"$dir/commands")" = 7 ] || fail "docs/quickstart.md has other commands: $(cat "$dir/commands")"
next() {
	command=$(head -n 1 "$dir/commands")
	sed -i 1d "$dir/commands"
	echo "\$ $command"
}

next
$command >"$dir/out" 2>&1 &
job=$!
until_true has "$dir/out" 'http://'
running() { bin/elrun status line --json >"$dir/status" 2>/dev/null && [ "$(grep -c '"state": *"running"' "$dir/status")" = 3 ]; }
until_true running
next
$command | tee "$dir/text"
has "$dir/text" line || fail "elrun status does not name the job"
next
pid=$(grep -o '"pid": *[0-9]*' "$dir/status" | grep -o '[0-9]*' | sed -n 2p)
${command/PID/$pid}
killed() { bin/elrun top line --once >"$dir/top" && has "$dir/top" LOST; }
next
[ "$command" = "bin/elrun top line" ] || fail "want elrun top, not $command"
until_true killed
cat "$dir/top"
link=$(grep -o 'http://[^ ]*' "$dir/out" | head -n 1)
page=${link%%/login*}
curl -sS -c "$dir/cookies" -o /dev/null "$link"
curl -sS -b "$dir/cookies" "$page/" >"$dir/page"
has "$dir/page" '<html' || fail "the page is $(head -c 200 "$dir/page")"
events() { curl -sSN -m 3 -b "$dir/cookies" "$page/events" >"$dir/events" 2>/dev/null || true; has "$dir/events" '"lost"'; }
until_true events
next
$command
status=0
wait "$job" || status=$?
job=
[ $status = 0 ] || fail "the job ended with status $status: $(tail -n 5 "$dir/out")"
next
$command | tee "$dir/report"
has "$dir/report" lost || fail "the report does not tell of the lost peer"
next
$command
has line.html '<html' || fail "the report is no page"
echo "newcomer: all of it works"
