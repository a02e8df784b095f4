package p2p

import "time"

// SetHandshakeTime sets how long whoever has connected to a host may take until it is known
// who it is.
func SetHandshakeTime(cfg *Config, d time.Duration) { cfg.handshake = d }

// OnLoopback lets relays take loopback for a network, and if punch is set also those who look for
// ways through routers.
func OnLoopback(cfg *Config, punch bool) { cfg.loopback, cfg.punch = true, punch }
