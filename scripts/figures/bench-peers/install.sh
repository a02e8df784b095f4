#!/bin/sh
# install.sh installs Open MPI, Gloo and tools for make bench-peers, as root on Debian. Otherwise it
# prints the missing packages, and make bench-peers leaves out the sides that need them.
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
# bench-peers runs this Python, because another Python of the user may not find Debian's torch.
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
