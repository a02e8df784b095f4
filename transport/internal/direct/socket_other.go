//go:build !linux

package direct

import (
	"errors"
	"net"
	"syscall"
	"time"
)

// kernelID returns zero: the ID is needed for abstract sockets only.
func kernelID() [32]byte { return [32]byte{} }

// checkUser checks nothing.
func checkUser(net.Conn) error { return nil }

// avoidBBR does nothing.
func avoidBBR(string, string, syscall.RawConn) error { return nil }

// takeBBR does nothing.
func takeBBR(net.Conn, time.Duration) {}

// roundTrip returns 0: not known.
func roundTrip(net.Conn) time.Duration { return 0 }

// carried returns zeros: not known.
func carried(net.Conn) (uint64, time.Duration) { return 0, 0 }

// boundSegments fails: not supported.
func boundSegments(syscall.RawConn, int) error { return errors.ErrUnsupported }

// resent returns 0: not known.
func resent(net.Conn) int { return 0 }

// limitUnsent does nothing.
func limitUnsent(net.Conn, uint32) {}
