//go:build !linux

package direct

import (
	"errors"
	"net"
	"syscall"
	"time"
)

// site: without abstract sockets there is no use for it.
func site() ([32]byte, bool) { return [32]byte{}, false }

// ListenAbstract fails: the system has no sockets without a name in the file system.
func ListenAbstract(string) (net.Listener, error) { return nil, errors.ErrUnsupported }

// CheckUser has nothing to check.
func CheckUser(net.Conn) error { return nil }

// avoidBBR has nothing to avoid.
func avoidBBR(string, string, syscall.RawConn) error { return nil }

// takeBBR has nothing to take.
func takeBBR(net.Conn, time.Duration) {}

// roundTrip is not known.
func roundTrip(net.Conn) time.Duration { return 0 }

// carried is not known.
func carried(net.Conn) (uint64, time.Duration) { return 0, 0 }

// boundSegments is not possible.
func boundSegments(syscall.RawConn, int) error { return errors.ErrUnsupported }

// resent is not known.
func resent(net.Conn) int { return 0 }

// limitUnsent does nothing.
func limitUnsent(net.Conn, uint32) {}
