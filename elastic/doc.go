// Package elastic keeps a group of peers in agreement on who is in, and hands out
// sessions: fixed memberships with a communicator.
//
//	g, err := elastic.Join(ctx, cfg) // or launch.Init, which makes cfg
//	defer g.Close()
//	for epoch := uint64(0); ; {
//		s, err := g.Next(ctx, epoch)
//		if err != nil {
//			return err
//		}
//		epoch = s.View.Epoch
//		err = work(ctx, s.Comm) // until it fails with collective.ErrRevoked
//	}
//
// # Agreement, first form
//
// The members of the first view are those that the launcher names, in its order. Each
// peer makes the view of them, sends its hash to every other member, and goes on
// when it holds an equal hash of each. So no peer begins unless all are there and
// were told the same. Then all connect and the session begins.
//
// There is no second view yet: after the loss of a member every call fails with an
// error that names it, and Next says so.
package elastic
