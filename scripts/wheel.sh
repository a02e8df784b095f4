#!/bin/sh
# wheel.sh OS/ARCH... writes wheels of the Python package into dist/, each with a static binary. The bytes depend on the commit, and on
# the versions of Go and of hatchling. If PYTHON has no hatchling, it is fetched from PyPI into a temporary environment.
set -eu
cd "$(dirname "$0")/.."
go=${GO:-go}
python=${PYTHON:-python3}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if ! "$python" -c 'import hatchling' 2>/dev/null; then
	"$python" -m venv "$work/env"
	python=$work/env/bin/python
	"$python" -m pip install --quiet --disable-pip-version-check hatchling==1.33.0
fi
vcs=$(git rev-parse HEAD >/dev/null 2>&1 && echo true || echo false)

for platform; do
	case $platform in
	linux/amd64) tag=manylinux2014_x86_64 ;;
	linux/arm64) tag=manylinux2014_aarch64 ;;
	darwin/arm64) tag=macosx_11_0_arm64 ;;
	*)
		echo "wheel.sh: there is no wheel for $platform" >&2
		exit 1
		;;
	esac
	rm -rf "$work/bin"
	mkdir "$work/bin"
	CGO_ENABLED=0 GOOS=${platform%/*} GOARCH=${platform#*/} GOAMD64=v1 GOARM64=v8.0 GOFLAGS='' "$go" build -trimpath -buildvcs="$vcs" \
		-ldflags="-s -w -buildid=" -o "$work/bin/elrun" ./cmd/elrun
	GO=$go "$go" run ./scripts/notices "$work/bin/elrun" >"$work/bin/NOTICES"
	cp LICENSE "$work/bin/LICENSE"
	(cd python && ELRUN_WHEEL_FOLDER=$work/bin ELRUN_WHEEL_TAG=py3-none-$tag "$python" -m hatchling build -t wheel -d ../dist) >"$work/log" 2>&1 || {
		cat "$work/log" >&2
		exit 1
	}
	echo dist/elrun-*-py3-none-"$tag".whl
done
