#!/bin/sh
# build.sh ARCH makes dist/elrun_VERSION_ARCH.deb from the tarball that "make dist" has written to
# dist, and from documents of the repository. The same files give the same bytes.
set -eu
cd "$(dirname "$0")/../.."
go=${GO:-go}

tree=dist/elrun-linux-$1
trap 'rm -rf "$tree"' EXIT
tar -xzf "$tree.tar.gz" -C dist

# Debian requires the licences of the program and of its modules in one file.
{
	echo "elrun is under the licence that follows. The program has other modules in it,"
	echo "whose licences come after it."
	echo
	cat LICENSE "$tree/NOTICES"
} >"$tree/copyright"
gzip -9n <CHANGELOG.md >"$tree/changelog.gz"

# The pages and scripts are those of any platform, so this one makes them.
CGO_ENABLED=0 $go build -buildvcs=false -o "$tree/here" ./cmd/elrun
"$tree/here" man-pages "$tree/man"
gzip -9n "$tree"/man/*
mkdir "$tree/completion"
for shell in bash zsh fish; do
	"$tree/here" completion "$shell" >"$tree/completion/$shell"
done

version=$(sed -n 's/^const Version = "\([0-9.]*\)"$/\1/p' launch/spec/version.go)
[ -n "$version" ] || {
	echo "build.sh: launch/spec/version.go has no version" >&2
	exit 1
}

# SOURCE_DATE_EPOCH is the time of the entries of the tarball.
SOURCE_DATE_EPOCH=$(date -u -d 2000-01-01 +%s) ARCH=$1 TREE=$tree VERSION=$version CGO_ENABLED=0 \
	$go run github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.44.2 package --config scripts/deb/nfpm.yaml --packager deb --target dist/
