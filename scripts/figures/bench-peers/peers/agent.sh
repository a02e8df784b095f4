#!/bin/sh
# Runs a command on a host of the lab, as ssh would on a real one: agent.sh ADDRESS COMMAND...
#
# The names of the network namespaces begin with $LAB. Each host has a name of its own: Open
# MPI would take hosts of one name for one.
set -eu
host=$((${1##*.} - 1))
shift
exec ip netns exec "$LAB$host" unshare --uts sh -c "hostname host$host; $*"
