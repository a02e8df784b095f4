//go:build !linux

package launch

import "net"

// senders reads from a socket. The sender is known on Linux only.
type senders struct {
	*net.UnixConn
	last int // 0: unknown
}

// newSenders returns senders that never know the sender.
func newSenders(conn *net.UnixConn) (*senders, error) { return &senders{UnixConn: conn}, nil }
