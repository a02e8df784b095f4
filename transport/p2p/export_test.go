package p2p

import "time"

// SetHandshakeTime sets how long whoever has connected to a host may take until it is known
// who it is.
func SetHandshakeTime(cfg *Config, d time.Duration) { cfg.handshake = d }
