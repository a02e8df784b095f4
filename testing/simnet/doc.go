// Package simnet is a network with faults, for tests of programs that train over elrun:
// any number of members live in one process, and links between them can be slow, lossy or
// cut, members stopped or killed. Inside a synctest bubble time is virtual, so that hours
// of partitions pass in milliseconds; it works in real time as well.
//
// A test of one's own training loop gives each member a goroutine and an endpoint:
//
//	func TestSurvivesKill(t *testing.T) {
//		synctest.Test(t, func(t *testing.T) {
//			n := simnet.New(simnet.Config{Seed: 1, Link: simnet.Link{Delay: time.Millisecond}})
//			members := []elastic.Member{{ID: "a", Index: 0}, {ID: "b", Index: 1}, {ID: "c", Index: 2}}
//			n.KillAt(0, 5) // rank 0, as it begins step 5
//			var all sync.WaitGroup
//			for _, m := range members {
//				all.Go(func() {
//					g, err := elastic.Join(t.Context(), elastic.Config{Endpoint: n.Endpoint(m), Peers: members})
//					if err == nil {
//						err = loop(t.Context(), n, g)
//					}
//					if err != nil && m.ID != "a" {
//						t.Error(err)
//					}
//				})
//			}
//			all.Wait()
//			n.Close()
//		})
//	}
//
//	func loop(ctx context.Context, n *simnet.Network, g *elastic.Group) error {
//		defer g.Close()
//		s, err := g.Next(ctx, 0)
//		for step := int64(1); err == nil && step <= 10; {
//			n.Begin(g.Self().ID, s.Rank, step)
//			if collective.AllReduce(ctx, s.Comm, sum, gradient, collective.Sum) != nil {
//				s, err = g.Next(ctx, s.View.Epoch) // without the dead, and the same step again
//				continue
//			}
//			step++
//		}
//		return err
//	}
//
// # What a fault looks like
//
// The network behaves as TCP does. On top of it runs transport/mesh, the session protocol
// that elrun runs:
//
//   - A stream never loses or reorders; it is only late. Nothing but Kill, Reset, Close and
//     its two ends break one. Only control messages can be lost, come twice or be
//     overtaken, and that only where Link says so.
//   - A cut (Cut, Partition) is a black hole: what travels into it stays away, and nobody
//     is told. A sender goes on until the window is full, then blocks. A cut of one
//     direction also swallows the news of what was read in the other. What streams have
//     taken in flows when the cut has healed. The protocol above may have given up a
//     stream before.
//   - To open a stream takes one frame there and one back. Over a cut it hangs until that heals
//     or the ctx ends; to a member that is not there yet, until it comes.
//   - Kill is SIGKILL: what is on its way arrives, then the connections break, for those
//     who can be reached. The host of the dead refuses connections.
//   - Stop is SIGSTOP as far as a network can do it: the member neither sends nor reads.
//     Its goroutines run until their next call that sends.
//   - Revocations of a session travel on a stream of their own, past messages, and are cut
//     and delayed like these.
//
// # Repeating a run
//
// Each link draws from a random stream of its own, which Seed and its two IDs determine:
// the same messages over a link meet the same luck. The order in which goroutines run at
// one instant is not repeated, so neither is a whole run if it depends on that.
package simnet
