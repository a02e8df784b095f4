package launch

import (
	"context"
	"crypto/rand"
	"io"
	"os"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/transport/mem"
)

// solo returns a group of one in this process, without a network, so that a program for elrun also
// runs alone. It takes the same code path as a larger group, with a network in memory. The group
// owns closers.
func solo(ctx context.Context, sink event.Sink, closers ...io.Closer) (*elastic.Group, error) {
	host, _ := os.Hostname() // appears in messages only; an unknown name stays empty
	self := elastic.Member{ID: "solo", Host: host}
	network := mem.NewNetwork()
	return elastic.Join(ctx, elastic.Config{
		Endpoint: elastic.Endpoint{Self: self, Network: network.Member(self.ID), Close: network.Close},
		Peers:    []elastic.Member{self}, Job: rand.Text(), Sink: sink, Closers: closers,
	})
}
