package launch

import (
	"github.com/elrun/elrun/launch/spec"
	"github.com/elrun/elrun/transport/p2p"
)

// listenAddrs returns the multiaddrs at which a peer first listens. The words auto, local and all
// mean addresses of this host.
func listenAddrs(listen string) ([]string, error) {
	switch listen {
	case spec.ListenAuto, spec.ListenLocal:
		return p2p.LoopbackAddrs(), nil
	case spec.ListenAll:
		return p2p.NetworkAddrs(), nil
	}
	return spec.ParseListen(listen)
}
