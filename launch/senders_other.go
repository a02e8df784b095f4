//go:build !linux

package launch

import "net"

// senders reads a socket. Who sends is known on Linux only.
type senders struct {
	*net.UnixConn
	last int // 0: not known
}

func newSenders(conn *net.UnixConn) (*senders, error) { return &senders{UnixConn: conn}, nil }
