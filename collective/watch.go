package collective

import (
	"fmt"
	"slices"
	"time"

	"github.com/elrun/elrun/collective/flight"
	"github.com/elrun/elrun/collective/internal/stall"
	"github.com/elrun/elrun/collective/transport"
)

// The watchdog of a rank finds the cause if a call waits for long. It does no work for a call that
// makes progress. It handles a waiting call in three steps:
//
//  1. After stall.AskAfter without a message, or when half of the limit has passed, it asks the
//     ranks for which the call waits about their position. An ask names the waiting call.
//  2. The watchdog of an asked rank answers at once: its rank is in the same call, has not begun
//     it, or has ended it. The answer also has the end of the chain of waits that begins at that
//     rank. A rank that is in another call at the same place of the sequence has found a mismatch,
//     and revokes instead. The asked rank also sends later changes of its answer, as news.
//  3. After the limit, an adaptive timeout, it asks once more and then reports the ranks that block
//     the call to OnStall. Package stall computes the limit and finds these ranks.
//
// A deadlock of blocking calls is a mistake, too, whatever the calls and their communicators are.
// Package stall finds the cycle of waits. Every wait in it must be firm, and time proves nothing
// about that: a message may be in flight for seconds. So the watchdog decides from what this rank
// has received. One rank of the cycle asks the others for their calls, and revokes with a
// *DeadlockError.
//
//	wait for rank B          firm if B, blocked in another call, tells that
//	in a collective call     it has not begun the call
//	in Recv                  it is there, and no message for the Recv came before the tell
//	in Send                  it reads no more messages of this rank, for fullAfter
//
// A rank whose program has begun a call during a blocking call has several goroutines: one of them
// may compute while another is blocked. So no wait for such a rank is firm. A program may also be in
// its first calls, so a deadlock must last for deadlockAfter.

const (
	// watchPeriod is the interval at which the watchdog checks the calls in progress.
	watchPeriod = 50 * time.Millisecond
	// suspendedAfter is the interval between two checks from which this process is assumed to
	// have been stopped or starved.
	suspendedAfter = 10 * watchPeriod
	// maxAskInterval bounds the pause between two asks. The pause is stall.AskAfter at first and
	// doubles with each report (exponential backoff).
	maxAskInterval = 2 * time.Second
	// fullAfter is how long a Send must have made no progress when its receiver tells that it reads
	// no more messages. Before, bytes that fit into buffers of the network may be in flight.
	fullAfter = 3 * time.Second
	// deadlockAfter is how long a deadlock must last. A goroutine that has made no call yet may make
	// the awaited one: the call of another communicator, or a Send.
	deadlockAfter = 5 * time.Second
)

// watchState is the state of the watchdog for one call that waits.
type watchState struct {
	wait        stall.Wait    // edges of the call in the waits-for graph
	askInterval time.Duration // from one ask to the next
	lastAsk     time.Duration // time of the ask that precedes the next report; 0 if this ask was not sent yet
	reported    time.Duration // how long the call had been blocked at the last report
	told        Stall         // the last report to OnStall
	began       time.Duration // when the wait of told began
	deadlocked  time.Duration // since when the wait is known to be in a deadlock; 0 if it is not
}

// watchdog watches the calls of an endpoint. The one goroutine that runs it owns its fields and the
// watchStates of the calls.
type watchdog struct {
	*endpoint
	matcher    transport.Matcher // the transport, or noMatcher
	chase      stall.Chase       // finds the ranks that block a call
	lastReport reportKey
	told       []*operation // whose stall was reported and is not over
}

// newWatchdog returns the watchdog of an endpoint. Close ends its method run.
func newWatchdog(ep *endpoint) *watchdog {
	w := &watchdog{endpoint: ep, matcher: noMatcher{}, chase: stall.Chase{Self: ep.self, Ranks: ep.ranks,
		Send: func(to int, s *stall.Signal) { ep.t.Signal(to, s.Append(nil)) }}}
	if m, ok := ep.t.(transport.Matcher); ok {
		w.matcher = m
	}
	return w
}

// noMatcher is for a transport that is no transport.Matcher: it proves nothing.
type noMatcher struct{}

// Awaits implements transport.Matcher.
func (noMatcher) Awaits(int, transport.Envelope) bool { return false }

// Full implements transport.Matcher.
func (noMatcher) Full(int) bool { return false }

// run handles signals and checks the calls in progress until Close.
func (w *watchdog) run() {
	ticker := time.NewTicker(watchPeriod)
	defer ticker.Stop()
	last := time.Since(w.started)
	for {
		select {
		case <-w.stop:
			for len(w.told) > 0 {
				w.over(w.told[0], time.Since(w.started))
			}
			return
		case s := <-w.t.Signals():
			w.handleSignal(s)
		case <-ticker.C:
			now := time.Since(w.started)
			// This process was stopped, or its machine was suspended, so the silence of other ranks
			// proves nothing.
			if now-last > suspendedAfter {
				w.resetClocks(now)
			}
			last = now
			w.checkAll()
		}
	}
}

// resetClocks restarts the clocks of all waits at now. It is called after this process did not run
// for a while: messages could not be received during this time, so a wait of that length does not
// show that another rank is slow.
func (w *watchdog) resetClocks(now time.Duration) {
	for _, o := range w.inProgress() {
		o.lastMessage.Store(int64(now))
	}
	w.chase.Reset()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.limit.ResetStep(now)
}

// checkAll checks all calls in progress, and sends news to the ranks that have asked.
func (w *watchdog) checkAll() {
	w.updateLimit()
	now := time.Since(w.started)
	waiting := false
	ops := w.updateWaits(now)
	for _, o := range slices.Clone(w.told) {
		if !slices.Contains(ops, o) {
			w.over(o, now)
		}
	}
	for _, o := range ops {
		waiting = w.check(o, now) || waiting
		w.recordWait(o, now, flight.Wait{})
		w.revokeIfDeadlock(o, now)
	}
	if !waiting {
		w.chase.Reset() // response times of an earlier stall would mislead the next chase
	}
	w.chase.SendNews(nil, func(e transport.Envelope, from int) stall.Position { return w.position(ops, e, from, now) }, now)
}

// updateLimit updates the adaptive timeout: it records untracked calls since the last check, and
// the current step of the program.
func (w *watchdog) updateLimit() {
	step := int64(0)
	if w.opts.Step != nil {
		step = w.opts.Step()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Since(w.started)
	if w.untrackedSeen {
		w.limit.RecordUntracked(now)
		w.untrackedSeen = w.untracked != nil
	}
	w.limit.Step(step, now)
}

// check checks one call: if o has waited for long, it asks other ranks, and after the limit it
// reports a stall. It returns true if some rank needs the answers: this rank, or another rank that
// has asked.
func (w *watchdog) check(o *operation, now time.Duration) bool {
	r := o.watch
	quiet := now - r.wait.Since
	w.mu.Lock()
	d := w.limit.Judge(quiet, now)
	w.mu.Unlock()
	hasUnasked := func() bool { return w.chase.HasUnasked(&r.wait, now) }
	if !d.Likely {
		w.over(o, now)
		wanted := r.wait.Wanted(now)
		if !wanted {
			r.wait.Forget()
			*r = watchState{wait: r.wait}
		} else if hasUnasked() {
			w.chase.Ask(&r.wait, now)
		}
		return wanted
	}
	// A call that was reported is reported again when its stall has taken twice as long.
	overdue := d.Overdue && d.Held >= 2*r.reported
	switch {
	case overdue && r.lastAsk > 0 && (w.chase.Settled(o.blockingWait(), now) || now-r.lastAsk >= stall.SilentAfter):
		w.report(o, Stall{Since: d.Held, Quiet: quiet}, now)
		r.askInterval = min(2*r.askInterval, maxAskInterval)
		r.lastAsk = 0
	case overdue && r.lastAsk == 0, now-r.wait.Asked() >= r.askInterval, hasUnasked():
		r.askInterval = max(r.askInterval, stall.AskAfter)
		w.chase.Ask(&r.wait, now)
		if overdue && r.lastAsk == 0 {
			r.lastAsk = now
		}
	}
	return true
}

// report reports the stall s of o to OnStall. It suppresses the report if the same culprits were
// reported recently for another call: usually several calls wait for the same rank.
func (w *watchdog) report(o *operation, s Stall, now time.Duration) {
	o.watch.reported = s.Since
	if w.opts.OnStall == nil {
		return
	}
	s.Call, s.For, s.Waiting = o.env.Call, o.purpose, int(o.recvFrom.Load())-1
	s.Culprits, s.Phase = w.culprits(o, now)
	w.recordWait(o, now, flight.Wait{Culprits: s.Culprits, Phase: s.Phase})
	// The same call is reported again, at growing intervals, so that long stalls stay visible.
	same := w.lastReport.by != o && slices.Equal(w.lastReport.culprits, s.Culprits)
	if same && now-w.lastReport.at < max(stall.After, s.Since/4) {
		return
	}
	w.lastReport = reportKey{o, s.Culprits, now}
	w.opts.OnStall(s)
	if !slices.Contains(w.told, o) {
		w.told = append(w.told, o)
	}
	o.watch.told, o.watch.began = s, now-s.Since
}

// recordWait records in Options.Record for whom a call waits, unless the wait is short. The caller may set the culprits and the
// phase.
func (w *watchdog) recordWait(o *operation, now time.Duration, known flight.Wait) {
	x := o.blockingWait()
	known.Quiet = now - x.Since
	if o.number == 0 || known.Quiet < stall.AskAfter {
		return
	}
	known.For = -1
	if len(x.For) > 0 {
		known.For = x.For[0]
	}
	w.opts.Record.Wait(o.number, known)
}

// over ends the stall of a call, if it was reported.
func (w *watchdog) over(o *operation, now time.Duration) {
	i := slices.Index(w.told, o)
	if i < 0 {
		return
	}
	w.told = slices.Delete(w.told, i, i+1)
	if w.opts.OnStallOver != nil {
		s := o.watch.told
		s.Since = now - o.watch.began
		w.opts.OnStallOver(s)
	}
}

// culprits returns the ranks that block o, and their Phase.
func (w *watchdog) culprits(o *operation, now time.Duration) ([]int, string) {
	ranks, why := w.chase.Blame(o.blockingWait(), now)
	return ranks, phaseOf(why)
}

// phaseOf converts the Cause at the end of a chain of waits to a Phase constant.
func phaseOf(w stall.Cause) string {
	switch w {
	case stall.Absent:
		return PhaseAbsent
	case stall.Silent:
		return PhaseSilent
	case stall.Slow:
		return PhaseSlow
	case stall.Deadlock:
		return PhaseDeadlock
	}
	return PhaseInside
}

// inProgress returns the calls in progress, the oldest first. It tracks the untracked call if
// there is one.
func (w *watchdog) inProgress() callList {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.all()
}

// updateWaits is inProgress; it also updates the watchStates of the calls.
func (w *watchdog) updateWaits(now time.Duration) callList {
	ops := w.inProgress()
	for _, o := range ops {
		if o.watch == nil {
			o.watch = new(watchState)
		}
		x := &o.watch.wait
		x.Envelope, x.Blocking, x.Since, x.Oldest = o.env, o.blocking, time.Duration(o.lastMessage.Load()), nil
		x.For = o.awaited(x.For[:0])
	}
	if oldest := ops.oldestBlocker(now); oldest != nil {
		for _, o := range ops {
			if o != oldest {
				o.watch.wait.Oldest = &oldest.watch.wait
			}
		}
	}
	return ops
}

// handleSignal handles a signal of another rank: a note, or a signal of its watchdog. A signal that cannot be decoded is dropped:
// signals only help to find the cause of a stall, and the sender asks again.
func (w *watchdog) handleSignal(s transport.Signal) {
	if len(s.Data) > 0 && stall.Kind(s.Data[0]) == stall.Note {
		w.noted(s.From, s.Data[1:])
		return
	}
	m, err := stall.Decode(s.Data, w.ranks)
	if err != nil {
		return
	}
	now := time.Since(w.started)
	ops := w.updateWaits(now)
	if m.Kind == stall.Ask {
		w.handleAsk(s.From, ops, &m, now)
		return
	}
	w.handleTell(s, ops, &m, now)
}

// handleTell records an answer of another rank, revokes if the call can never end, and sends the
// news to the ranks that have asked this rank.
func (w *watchdog) handleTell(s transport.Signal, ops callList, m *stall.Signal, now time.Duration) {
	from := s.From
	o := ops.findAsker(m.Envelope, from)
	if o == nil {
		w.chase.RecordTell(from, m, nil, false, now)
		return
	}
	x := &o.watch.wait
	firm := slices.Contains(x.For, from) && w.isFirm(o, s, m, now)
	w.chase.RecordTell(from, m, x, firm, now)
	if m.State == stall.Closed && (firm || o.peer < 0) {
		w.revoke(&AbortError{Rank: from, Cause: fmt.Sprintf("closed the communicator of %v, in which rank %d waits", o.env.Call, w.self)})
	}
	w.revokeIfDeadlock(o, now)
	w.chase.SendNews(x, func(e transport.Envelope, from int) stall.Position { return w.position(ops, e, from, now) }, now)
}

// isFirm reports whether a tell m in the signal s proves that the Send or Recv o cannot end before
// the sender of the tell makes another call.
func (w *watchdog) isFirm(o *operation, s transport.Signal, m *stall.Signal, now time.Duration) bool {
	if o.sends {
		return m.Full && (m.At == 0 || m.At >= o.watch.wait.Since) && now-o.watch.wait.Since >= fullAfter
	}
	// A message that was sent before the tell has come before it. The envelope has no tag for AnyTag.
	return !s.Overtook && (o.match == nil || o.match.tag != AnyTag) && w.matcher.Awaits(s.From, o.env)
}

// revokeIfDeadlock revokes if o is in a deadlock and all ranks to be named have told their calls.
func (w *watchdog) revokeIfDeadlock(o *operation, now time.Duration) {
	if !w.chase.IsDeadlock(&o.watch.wait) {
		o.watch.deadlocked = 0
		return
	}
	if o.watch.deadlocked == 0 {
		o.watch.deadlocked = now
	}
	all := w.chase.Deadlock(&o.watch.wait, o.sends, now)
	if all == nil || now-o.watch.deadlocked < deadlockAfter {
		return
	}
	e := new(DeadlockError)
	for _, r := range all {
		e.Waits = append(e.Waits, transport.DeadlockWait{Rank: r.Rank, Call: r.Call.Call, Comm: r.Call.Comm, Sends: r.Sends})
	}
	w.revoke(e)
}

// handleAsk answers an ask of rank from with the position of this rank. It revokes if the two ranks
// make different calls at the same place in the sequence.
func (w *watchdog) handleAsk(from int, ops callList, m *stall.Signal, now time.Duration) {
	mine, here := w.queued(m.Envelope)
	if o := ops.find(m.Envelope); o != nil {
		mine, here = o.env.Call, true
	}
	if here && m.Seq&pointBit == 0 && mine != m.Call { // for a Send or Recv Seq is a tag, not a place
		w.revoke(&MismatchError{RankA: w.self, A: mine, RankB: from, B: m.Call})
		return
	}
	w.chase.Answer(from, m, w.position(ops, m.Envelope, from, now), now)
}

// hasGoroutines reports whether the program has made blocking calls from several goroutines.
func (w *watchdog) hasGoroutines() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.goroutines
}

// position returns the position of this rank in relation to the call of e, for rank from, which has
// asked.
func (w *watchdog) position(ops callList, e transport.Envelope, from int, now time.Duration) stall.Position {
	o := ops.find(e)
	_, queued := w.queued(e)
	point := e.Seq&pointBit != 0
	p := stall.Position{State: stall.NotYet, Busy: ops.isBusy(now), Full: w.matcher.Full(from)}
	p.Free = w.hasGoroutines() || queued || o != nil && !o.blocking || point && ops.hasBackgroundPoint(from)
	switch {
	case o == nil && !queued && w.closedBefore(e):
		return stall.Position{State: stall.Closed}
	case !point && (o != nil || queued):
		p.State = stall.Present
	case !point && w.hasBegun(e):
		return stall.Position{State: stall.Past}
	}
	blocker := o
	if p.State != stall.Present || o == nil || !o.watch.wait.Waits() {
		blocker = ops.oldestBlocker(now)
	}
	if blocker != nil {
		p.Wait, p.Sends = &blocker.watch.wait, blocker.sends
	}
	return p
}
