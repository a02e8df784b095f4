package collective

import "github.com/elrun/elrun/collective/transport"

// Meter returns the transport's, or nil if it has none.
func (c *Comm) Meter() transport.Meter {
	if !c.made() {
		return nil
	}
	m, _ := c.t.(transport.Meter)
	return m
}
