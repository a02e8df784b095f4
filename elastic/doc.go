// Package elastic keeps a group of peers in agreement on its membership while peers join, leave and
// die. It hands out sessions. A session is a fixed membership with a communicator, whose members
// all hold the same state.
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
//		for t := range g.Steps(ctx, elastic.Vectors(&step, &mean), 50) {
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
//		if err := g.Err(); err != nil { // not all steps are committed
//			log.Fatal(err)
//		}
//		fmt.Println(mean[0])
//	}
//
// # Calls of a program
//
// A program needs few of the names below. Its loop is [Group.Steps] and [Group.Err], over a state
// that [Vectors], [Gob] or [Binary] makes; its body uses [Turn.Part] and Turn.Comm,
// [Turn.Report] to show a loss, and seldom [Turn.Stop], [Turn.Fail] and [Turn.Busy]. State that only some
// members hold is for package parts, which needs [Turn.Leaving] and [Turn.View]. [Equal] and [Setting] are options of Steps. Afterwards
// [Group.Report] passes on the score, and [Group.Close] ends. The errors to tell apart are
// [ErrLeft], [ErrFinished] and [ErrQuorum]. Config, Endpoint, [Sessions] and [Admin] are for package
// launch, package trainer and carriers.
//
// # Sessions
//
// Below Steps is the loop over sessions, which package trainer uses:
//
//	sessions := g.Sessions()
//	sessions.Hold(state, settings) // how to copy the common state
//	for epoch := uint64(0); ; {
//		s, err := sessions.Next(ctx, epoch)
//		if err != nil {
//			return err
//		}
//		epoch = s.View.Epoch
//		err = work(ctx, sessions, s) // until it fails with collective.ErrRevoked, or s.Boundary returns true
//	}
//
// Between two steps, work calls Committed. Then all members decide together whether to leave the
// session for a later view: Boundary makes this decision; a program may also make it with a
// collective call of its own. An error that is collective.ErrMistake recurs in every session, so a
// program ends with it; Next has then told the other members, whose Next fails, too.
package elastic

// For readers of the code:
//
// # Parts
//
//	Group      the user's side: Steps, Err, Leave, Close; and two more sides of the same struct,
//	           Sessions (Next, Committed) and Admin (Dead, Kick)
//	           owned by the goroutine that calls Next: heldState (the State, and how to give and
//	           receive it), loops
//	           shared, with locks: registration (what offers are compared with), identity,
//	           openSessions, orders, outcome
//	driver     the membership of one identity: a goroutine that drives elastic/member
//	           owned by that goroutine: roster (the view, and a record of each member that
//	           matters), watcher (which members can be reached), heartbeatSender, admitter,
//	           singleLauncher, tickClock
//	           shared, with locks: watchedStatus, selfReport, sendQueues
//	Endpoint   the network below: control messages, data planes, requests, keys
//
// A process has one identity at a time. A live process that was put out (fenced) gets a new
// identity from Config.Reopen, and joins again without state.
//
// # Who is believed
//
// Control messages and requests (Network.Request) come from any peer that has passed a member's
// gate, for example with a ticket. The table (control.go) gives the effect that a control
// message may have, by its kind and its sender. An outsider is a peer outside the present view: a
// newcomer, a member that was put out, a member of another branch, or an attacker with a ticket.
//
//	                      member of the view      outsider
//	member                see elastic/member      see elastic/member: signed decisions only
//	heartbeat             believed                answered with this member's view
//	step down             believed                refused
//	foreign join          believed                refused
//	foreign join ack      believed                refused
//	probe, probe reply    believed                refused
//	reverse dial          believed                refused
//
// A rate limit drops all but the first 100 messages of an outsider in each half second. The network
// may limit an outsider further, as transport/p2p does. There are two kinds of requests. An offer
// is a newcomer's request to join: members answer it, and admit its author if the settings and the
// Judge allow it. A transfer sends a copy of the state. Neither kind changes the members' State.
// The network bounds the number of requests that are answered at a time.
//
// # From a death to the next step
//
//	the connection breaks -> the session's calls fail everywhere; the driver dials again
//	   |                     refused: suspected at once; no answer: see detector.go
//	   v
//	elastic/member agrees on a view without the dead: two round trips
//	   |
//	   v
//	Next: connect the members of the view -> level -> session
//
// A detector per member (detector.go), a pure function of time and messages, judges silence by an
// adaptive timeout. A silent member is probed, directly and through others (watcher.go, as in SWIM),
// before it is suspected. If no other member of its host answers either, the whole host is
// suspected (watcher.go). Limits grow with the lateness of this process itself (tickclock.go, as in
// Lifeguard). Silence of less than 30 s does not count before the first session. Silence never
// counts while the member's process is on this host and is busy. Two signs are certain and need no
// probes: the end of a process that the kernel has reported, and a refused dial. The limits and
// their formulas are in docs/limits.md.
//
// A suspicion may be wrong. Then the member is put out, and joins again. A death that a launcher
// reports (Admin.Dead) is certain, and can replace the vote of the dead member. If a session broke
// and no member is lost, a view of the same members follows (reason renew).
//
// A member watches at most four others, two of them on other hosts (watchring.go), so the cost per
// member does not grow with the group. A member whose call waits for a lost member notices the loss
// even if it does not watch that member.
//
// # Level
//
// When members enter a session they gather the step that each has committed (synchronize.go). Survivors
// differ by at most one step, as a collective call returns nil only after all ranks have
// contributed to it. A survivor that lags behind receives the update of the step from a member that
// is ahead, and changes its own state only when it has the whole update.
//
// # Joining
//
// A newcomer makes an offer to the members (offer.go). The members compare the newcomer's settings
// with their own. If a setting differs, they refuse the newcomer and name the setting. Then the
// newcomer copies the state while the members go on (joiner.go, elastic/internal/transfer), follows
// the updates step by step, and requests admission when it is level (follower.go). Before a
// newcomer is admitted, it has to connect with the members (in a large group, with some members of
// each host; reach.go). It also has to connect with the newcomers that are admitted at the same
// time (admission.go). The members' session ends at a boundary between two steps.
//
// A State that is a Judge decides whether the newcomer helps the job (admission.go). One member
// asks the Judge: the live member with the lowest rank. A newcomer that is not admitted for now is
// parked: it keeps following the updates, and asks again.
//
// # Stalls
//
// The communicator finds the member that holds up a call. The log names that member, with the
// reason that the member reports (Busy). If the member lives but reports no reason, the others ask
// it, after 30 s, to step down, and it leaves by agreement. In this agreement the member itself
// votes, so the others need no quorum without it.
