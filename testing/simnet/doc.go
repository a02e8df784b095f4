// Package simnet is a network with faults, for tests of programs that train with elrun. Any number of members run in one
// process. Links between them can be slow, lossy or cut, and members can be stopped or killed. In a synctest bubble time is
// virtual, so that hours of partitions pass in milliseconds. The network works in real time as well.
//
// A test of a program's own training loop gives each member a goroutine and an endpoint:
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
//		s, err := g.Sessions().Next(ctx, 0)
//		for step := int64(1); err == nil && step <= 10; {
//			n.Begin(g.Self().ID, s.Rank, step)
//			if collective.AllReduce(ctx, s.Comm, sum, gradient, collective.Sum) != nil {
//				s, err = g.Sessions().Next(ctx, s.View.Epoch) // without the dead, and the same step again
//				continue
//			}
//			step++
//		}
//		return err
//	}
//
// # What a fault looks like
//
// The network behaves as TCP does. The session protocol of elrun, transport/mesh, runs on top of it:
//
//   - A stream never loses or reorders bytes; it only delays them. Only Kill, Reset, Close and its
//     two ends can break it. Control messages can be lost, duplicated or overtaken, but only if
//     Link has probabilities for these faults.
//   - A cut (Cut, Partition) is a black hole: frames that enter it do not arrive, and no member
//     gets an error. A sender can write until the window is full, and then blocks. A cut of one
//     direction also stops the acknowledgements for the other direction. When the cut is healed,
//     streams deliver what they have accepted, unless the protocol above has given them up.
//   - To open a stream takes one frame to the peer and one back. Over a cut it waits until the cut
//     is healed or ctx ends. It also waits for a member that does not exist yet.
//   - Kill is SIGKILL: frames in flight arrive, then the connections to all members that can be
//     reached break. The host of the dead member refuses connections.
//   - Stop is SIGSTOP as far as a network can do it: the member neither sends nor reads.
//     Its goroutines run until their next call.
//   - Revocations of a session have a stream of their own, on which they overtake messages.
//     Cuts and delays apply to this stream, too.
//
// # Repeating a run
//
// Each link has its own sequence of random numbers, which depends on Seed and the two IDs. So the
// same messages over a link have the same faults. The order in which goroutines run at one instant
// is not repeatable. A run that depends on this order is not repeatable either.
package simnet
