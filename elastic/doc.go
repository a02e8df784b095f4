// Package elastic keeps a group of peers in agreement on who is in while peers come, go
// and die, and hands out sessions: fixed memberships with a communicator, in which
// all members hold the same state.
//
//	package main
//
//	import (
//		"context"
//		"fmt"
//		"log"
//
//		"github.com/elrun/elrun/collective"
//		"github.com/elrun/elrun/elastic"
//		"github.com/elrun/elrun/launch"
//	)
//
//	// main finds the mean of the samples 0 to 9.
//	func main() {
//		ctx := context.Background()
//		g, err := launch.Init(ctx) // makes a Config and calls Join
//		if err != nil {
//			log.Fatal(err)
//		}
//		defer g.Close()
//		step, mean := int64(0), []float64{0}
//		for t := range g.Steps(ctx, elastic.Vectors(&step, mean), 50) {
//			sum := []float64{0}
//			lo, hi := t.Part(10) // this peer's samples of the step
//			for i := lo; i < hi; i++ {
//				sum[0] += float64(i) - mean[0]
//			}
//			if err := collective.AllReduce(ctx, t.Comm, sum, sum, collective.Sum[float64]); err != nil {
//				continue // the step is tried again
//			}
//			mean[0] += sum[0] / 20
//			step++
//		}
//		fmt.Println(mean[0], g.Err())
//	}
//
// Below Steps is the loop over sessions, as package trainer has one:
//
//	g.Hold(state, settings) // how to copy what all members hold alike
//	for epoch := uint64(0); ; {
//		s, err := g.Next(ctx, epoch)
//		if err != nil {
//			return err
//		}
//		epoch = s.View.Epoch
//		err = work(ctx, g, s) // until it fails with collective.ErrRevoked, or s.Boundary says so
//	}
//
// Between two steps work calls Committed, and Boundary or something of its own that
// makes the same decision at all ranks: whether the session is left for a later view. No
// session mends an error that is collective.ErrMistake.
//
// # Who does what
//
//	Group      the user's side: Next, Committed, Leave, Close. It owns the State
//	keeper     one identity's side: a goroutine that drives elastic/member, says to
//	           others that it lives, and judges who of them does
//	Endpoint   the network under it: messages, data planes, long answers, keys
//
// A process has one identity at a time. One that was put out though it lives (fenced)
// gets another by Config.Reopen, and joins again with nothing.
//
// # Who is believed
//
// Control messages (letters) and requests (Network.Request) come from whoever was let as far
// as members' gates, by a ticket for example. The table (letter_table.go) says how far a letter counts. An outsider is not
// in the present view: a newcomer, a member that was put out, one of another branch, or
// somebody with a ticket and no good intent.
//
//	              member of the view    outsider
//	member        elastic/member says  elastic/member says: signed decisions only
//	beat          believed              answered with where this member is
//	yield         believed              refused
//	foreign       believed              refused
//	foreign ack   believed              refused
//	probe(d)      believed              refused
//
// Of one outsider 100 letters are read in half a second, all others are dropped unread. The
// network may hold it up earlier, as transport/p2p does.
// Requests: an offer is answered, and lets its author in if the settings and the Judge
// agree, which is what a ticket is for; a transfer copies the state out. Neither changes
// what members hold. The network bounds how many are answered at a time.
//
// # From a death to the next step
//
//	the connection breaks -> the session's calls fail everywhere; the keeper dials again
//	   |                     refused: suspected at once; no answer: see detect.go
//	   v
//	elastic/member agrees on a view without the dead: two round trips
//	   |
//	   v
//	Next: connect the members of the view -> level -> session
//
// Silence is judged by a detector per member (detect.go), which is pure: a silent member
// is asked for a word, directly and through others (probe.go), before it is suspected, and
// limits grow with the lateness of this process itself (health.go). Nobody is judged by
// silence before the first session, and none whose process on this host is busy. The
// certain ways, a wait status and a refused dial, do without all of that. The limits and
// their formulas stand in docs/elastic.md.
//
// A suspicion may be wrong: then it costs a member its place, and it comes back. A death
// that a launcher reports (Dead) is certain and can stand in for a vote. A session that
// broke though nobody is lost is followed by a view of the same members (reason renew).
//
// Members watch the two before and the two after them in rank order (peer.go), so the
// cost per member does not grow with the group. Whom nobody watches is found by those
// who wait for it in a call.
//
// # Level
//
// When members enter a session they gather the step that each has committed (level.go).
// At most one step lies between survivors, as a collective call returns nil only after
// all ranks have contributed to it; one that is behind applies the update of the step
// from one that is ahead, and keeps its own state untouched until it has it whole.
//
// # Joining
//
// A peer that joins makes an offer to the members (offer.go): its settings are compared,
// and one that differs is refused by the name of the setting. Then it copies the
// state while they go on (donor.go, elastic/internal/transfer), follows step by step, and when
// it is level asks to be let in (applying.go). The session of the incumbents ends at a
// boundary.
//
// Whether it helps the job is the State's to say, if it is a Judge (admission.go): one
// member decides, the first in rank order that lives. A peer that is not let in for now
// is parked: it goes on following, and asks again.
//
// # Stalls
//
// A member that holds up a call is named by the communicator's watch; what it said of
// itself (Busy) stands beside it. If it lives and says nothing for long it is asked to
// make way, and leaves by agreement, which needs no quorum without it.
package elastic
