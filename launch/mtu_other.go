//go:build !linux

package launch

import "net"

// pathMTU returns 0: it is known on Linux only.
func pathMTU(net.Conn) int { return 0 }
