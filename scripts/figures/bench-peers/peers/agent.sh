#!/bin/sh
# agent.sh ADDRESS COMMAND... runs a command on a host of the lab. Open MPI uses it in place of ssh.
#
# The names of the network namespaces begin with $LAB. Each host gets a different host name, because
# Open MPI treats hosts with the same name as one host.
set -eu
host=$((${1##*.} - 1))
shift
exec ip netns exec "$LAB$host" unshare --uts sh -c "hostname host$host; $*"
