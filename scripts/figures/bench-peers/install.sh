#!/bin/sh
# Installs what make bench-peers compares elrun with, as root on Debian. Elsewhere it says
# what is missing, and the comparison does without.
set -eu

wanted=
need() { # COMMAND PACKAGE...
	command=$1
	shift
	command -v "$command" >/dev/null || wanted="$wanted $*"
}

need mpirun openmpi-bin
need mpicc libopenmpi-dev
need gcc gcc libc6-dev
need ip iproute2
# The script runs this Python: others, of a user's own, need not have Debian's torch.
/usr/bin/python3 -c 'import torch' 2>/dev/null || wanted="$wanted python3-torch"

[ -n "$wanted" ] || exit 0
if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
	echo "bench-peers: not here:$wanted; root on Debian would install them" >&2
	exit 0
fi
echo "bench-peers: installing$wanted" >&2
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
# shellcheck disable=SC2086 # a list of packages
apt-get install -y -qq --no-install-recommends $wanted >/dev/null
