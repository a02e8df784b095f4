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

# A build without the version control stamp has no version, and Debian wants a digit first.
version=$($go version -m "$tree/elrun" | awk '$1 == "mod" { print $3 }')
case $version in v[0-9]*) ;; *) version=v0.0.0-devel ;; esac

# The time of the entries of the tarball.
SOURCE_DATE_EPOCH=$(date -u -d 2000-01-01 +%s) ARCH=$1 TREE=$tree VERSION=$version CGO_ENABLED=0 \
	$go run github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.44.2 package --config scripts/deb/nfpm.yaml --packager deb --target dist/
