package collective

import (
	"slices"
	"time"

	"github.com/elrun/elrun/collective/transport"
)

// callList is the calls in progress at one moment, the oldest first. Its methods find the call that
// blocks this rank. Only the watchdog uses a callList.
type callList []*operation

// find returns the call with the communicator and sequence number of e, or nil if no such call is
// in progress.
func (c callList) find(e transport.Envelope) *operation {
	return c.first(func(o *operation) bool { return o.env.Comm == e.Comm && o.env.Seq == e.Seq })
}

// findAsker returns the call with the communicator and sequence number of e that has asked a rank, or
// nil if no such call is in progress. Sends and Recvs with several ranks may have the same tag; of
// these calls, the one with the rank itself comes first.
func (c callList) findAsker(e transport.Envelope, rank int) *operation {
	asker := func(o *operation) bool {
		return o.env.Comm == e.Comm && o.env.Seq == e.Seq && o.watch.wait.HasAsked(rank)
	}
	if o := c.first(func(o *operation) bool { return o.peer == rank && asker(o) }); o != nil {
		return o
	}
	return c.first(asker)
}

// isBusy reports whether a call in progress blocks the program of this rank (see blocksProgram).
// The call may wait for another rank, or compute.
func (c callList) isBusy(now time.Duration) bool {
	return c.first(func(o *operation) bool { return o.blocksProgram(now) }) != nil
}

// oldestBlocker returns the oldest call that blocks this rank and waits for another rank, or nil if
// there is no such call.
func (c callList) oldestBlocker(now time.Duration) *operation {
	return c.first(func(o *operation) bool { return o.blocksProgram(now) && o.watch.wait.Waits() })
}

// hasBackgroundPoint reports whether a Send to peer, or a Recv from peer or from any rank, is in
// progress in the background.
func (c callList) hasBackgroundPoint(peer int) bool {
	return c.first(func(o *operation) bool {
		return !o.blocking && o.env.Call.Kind == transport.KindPoint && (o.peer == peer || o.peer < 0)
	}) != nil
}

// first returns the oldest call for which is returns true, or nil if there is none.
func (c callList) first(is func(*operation) bool) *operation {
	i := slices.IndexFunc(c, is)
	if i < 0 {
		return nil
	}
	return c[i]
}
