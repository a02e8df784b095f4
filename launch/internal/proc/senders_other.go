//go:build !linux

package proc

import (
	"net"
	"os"
)

// senders reads from a socket. The sender is known on Linux only.
type senders struct {
	*net.UnixConn
	last int // 0: unknown
}

// newSenders returns senders that never know the sender.
func newSenders(conn *net.UnixConn) (*senders, error) { return &senders{UnixConn: conn}, nil }

// take returns nil: only Linux has the word of a program.
func (s *senders) take() *os.File { return nil }

// drop does nothing.
func (s *senders) drop() {}

// principal returns the process for which a process says hello: the sender is not known here.
func (s *senders) principal(named int) int { return named }
