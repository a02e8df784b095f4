// Package proc starts a peer's process on this host, passes on its output, messages and end to a
// Receiver, and signals it. It runs in a launcher, for the peers of its host, and in the agent of
// another host, for the peers there.
//
// StartLocal starts a Local, which is a Process. No process outlives its owner: the kernel kills the
// peers of a launcher that dies, and Linux gives their children to a ChildReaper, which AdoptOrphans
// starts.
package proc
