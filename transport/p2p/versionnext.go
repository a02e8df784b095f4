//go:build elrunnext

package p2p

// version makes a peer of the next version, for tests of what two versions say to each other.
const version = "5"
