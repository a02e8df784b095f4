//go:build !linux

package agent

import "net"

// pathMTU returns 0: it is known on Linux only.
func pathMTU(net.Conn) int { return 0 }
