package collective

import "github.com/elrun/elrun/collective/transport"

// Meter returns the transport's meter of link throughput, or nil if the transport has none. From
// the meter's measurements the trainer computes the order of the ring (CallOptions.Order).
func (c *Comm) Meter() transport.Meter {
	if !c.isValid() {
		return nil
	}
	m, _ := c.t.(transport.Meter)
	return m
}
