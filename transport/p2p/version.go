//go:build !elrunnext

package p2p

// version is the number of the protocol between the peers of a job, from the proof of a newcomer to
// the messages of the members. Raise it, and the one in versionnext.go, with every change after which
// peers of before cannot take part.
const version = "4"
