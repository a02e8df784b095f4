#!/bin/sh
# build.sh ARCH makes dist/elrun_VERSION_ARCH.deb from the tarball that "make dist" has left in
# dist. The bytes depend on those of the tarball alone.
set -eu
cd "$(dirname "$0")/../.."
go=${GO:-go}

tree=dist/elrun-linux-$1
trap 'rm -rf "$tree"' EXIT
tar -xzf "$tree.tar.gz" -C dist

# The licences of all that is in the program, in one file, as Debian wants them.
{
	echo "elrun is under the licence that follows. The program has other modules in it,"
	echo "whose licences come after it."
	echo
	cat LICENSE "$tree/NOTICES"
} >"$tree/copyright"
gzip -9n <CHANGELOG.md >"$tree/changelog.gz"

version=$(sed -n 's/^const release = "\([0-9.]*\)"$/\1/p' cmd/elrun/version.go)
[ -n "$version" ] || {
	echo "build.sh: cmd/elrun/version.go has no version" >&2
	exit 1
}

# The time of the entries of the tarball.
SOURCE_DATE_EPOCH=$(date -u -d 2000-01-01 +%s) ARCH=$1 TREE=$tree VERSION=$version CGO_ENABLED=0 \
	$go run github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.44.2 package --config scripts/deb/nfpm.yaml --packager deb --target dist/
