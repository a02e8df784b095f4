#!/bin/sh
# check.sh makes the Debian package for this machine twice and compares the bytes. It installs the
# package into a scratch root, with dpkg if it runs as root, and else by unpacking. Then it runs the
# installed elrun.
set -eu
cd "$(dirname "$0")/../.."
command -v dpkg >/dev/null || {
	echo "check.sh: no dpkg here: nothing is checked" >&2
	[ -z "${ELRUN_CI:-}" ] && exit 0
	exit 1
}
arch=$(dpkg --print-architecture)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

for i in 1 2; do
	rm -f dist/elrun_*_"$arch".deb
	make -s deb PLATFORMS="linux/$arch"
	mkdir "$scratch/$i"
	cp dist/elrun-linux-"$arch".tar.gz "$scratch/$i/"
	mv dist/elrun_*_"$arch".deb "$scratch/$i/elrun.deb"
done
diff -r "$scratch/1" "$scratch/2"

root=$scratch/root
mkdir -p "$root/var/lib/dpkg/info" "$root/var/lib/dpkg/updates"
touch "$root/var/lib/dpkg/status"
if [ "$(id -u)" -eq 0 ]; then
	dpkg --root="$root" --log="$scratch/log" -i "$scratch/1/elrun.deb"
	dpkg --root="$root" -s elrun | grep '^Version: [0-9]'
else
	dpkg-deb -x "$scratch/1/elrun.deb" "$root"
fi
"$root/usr/bin/elrun" version
"$root/usr/bin/elrun" doctor
for f in lib/systemd/system/elrun-join@.service share/doc/elrun/copyright share/doc/elrun/README.md \
	share/man/man1/elrun.1.gz share/man/man1/elrun-run.1.gz share/bash-completion/completions/elrun \
	share/zsh/vendor-completions/_elrun share/fish/vendor_completions.d/elrun.fish; do
	[ -s "$root/usr/$f" ] || {
		echo "check.sh: the package lacks /usr/$f" >&2
		exit 1
	}
done
# Each command has a manual page, which man can show.
"$root/usr/bin/elrun" --help | sed -n '/^Commands:/,/^$/s/^  \([a-z0-9][a-z0-9]*\) .*/\1/p' | while read -r command; do
	page=$root/usr/share/man/man1/elrun-$command.1.gz
	[ -s "$page" ] || {
		echo "check.sh: the package lacks the manual page of elrun $command" >&2
		exit 1
	}
	if command -v man >/dev/null; then
		man -l "$page" | grep -q "elrun $command" || {
			echo "check.sh: man does not show the page of elrun $command" >&2
			exit 1
		}
	fi
done
# The file copyright has the licence of each module in the program.
"${GO:-go}" version -m "$root/usr/bin/elrun" | awk '$1 == "dep" { print $2 " " $3 }' | while read -r module; do
	grep -qxF "$module" "$root/usr/share/doc/elrun/copyright" || {
		echo "check.sh: no licence of $module" >&2
		exit 1
	}
done
echo "check.sh: the package is the same twice, and works"
