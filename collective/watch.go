package collective

import (
	"fmt"
	"time"

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
// A deadlock between a Send or Recv and a collective call is a mismatch, too. Suppose that rank A
// waits in Send or Recv for rank B, and B waits in a collective call for A. Calls come from one
// goroutine per rank, so neither call can ever end, unless an ISend or IRecv between the two ranks
// is in progress. After two answers of B that it is in this call, A revokes.

const (
	// watchPeriod is the interval at which the watchdog checks the calls in progress.
	watchPeriod = 50 * time.Millisecond
	// suspendedAfter is the interval between two checks from which this process is assumed to
	// have been stopped or starved.
	suspendedAfter = 10 * watchPeriod
	// maxAskInterval bounds the pause between two asks. The pause is stall.AskAfter at first and
	// doubles with each report (exponential backoff).
	maxAskInterval = 2 * time.Second
	// closedAnswers is the number of answers that prove that a rank has closed the communicator of
	// a call and will never send its messages. One answer is not enough: a message of that rank may
	// have arrived before the answer, and the receiving goroutine may not have run yet.
	closedAnswers = 3
	// rivalAnswers is the number of answers that prove that a rank is in another call, which can
	// never end.
	rivalAnswers = 2
)

// watchState is the state of the watchdog for one call that waits.
type watchState struct {
	wait            stall.Wait    // edges of the call in the waits-for graph
	askInterval     time.Duration // from one ask to the next
	hopelessAnswers int           // number of answers which show that the answering rank can never complete the call
	lastAsk         time.Duration // time of the ask that precedes the next report; 0 if this ask was not sent yet
	reported        time.Duration // how long the call had been blocked at the last report
}

// watchdog watches the calls of an endpoint. The one goroutine that runs it owns its fields and the
// watchStates of the calls.
type watchdog struct {
	*endpoint
	chase      stall.Chase // finds the ranks that block a call
	lastReport reportKey
}

// newWatchdog returns the watchdog of an endpoint. Close ends its method run.
func newWatchdog(ep *endpoint) *watchdog {
	return &watchdog{endpoint: ep, chase: stall.Chase{Self: ep.self, Ranks: ep.ranks,
		Send: func(to int, s *stall.Signal) { ep.t.Signal(to, s.Append(nil)) }}}
}

// run handles signals and checks the calls in progress until Close.
func (w *watchdog) run() {
	ticker := time.NewTicker(watchPeriod)
	defer ticker.Stop()
	last := time.Since(w.started)
	for {
		select {
		case <-w.stop:
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
	for _, o := range ops {
		waiting = w.check(o, now) || waiting
	}
	if !waiting {
		w.chase.Reset() // response times of an earlier stall would mislead the next chase
	}
	w.chase.SendNews(nil, func(e transport.Envelope) stall.Position { return w.position(ops, e, now) }, now)
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
		x.For = [2]int{int(o.recvFrom.Load()) - 1, int(o.sendTo.Load()) - 1}
		// A Send or Recv waits for its peer, also before it has sent or received anything.
		if o.peer >= 0 {
			x.For = [2]int{o.peer, -1}
		}
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

// blockingWait returns the wait that blocks o: its own wait, or, if o waits for no rank, the wait
// of the oldest call that blocks this rank.
func (o *operation) blockingWait() *stall.Wait {
	x := &o.watch.wait
	if !x.Waits() && x.Oldest != nil {
		return x.Oldest
	}
	return x
}

// handleSignal handles a signal of another rank. A signal that cannot be decoded is dropped:
// signals only help to find the cause of a stall, and the sender asks again.
func (w *watchdog) handleSignal(s transport.Signal) {
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
	w.handleTell(s.From, ops, &m, now)
}

// handleTell records an answer of rank from, revokes if that rank can never complete the call, and
// sends the news to the ranks that have asked this rank.
func (w *watchdog) handleTell(from int, ops callList, m *stall.Signal, now time.Duration) {
	o := ops.find(m.Envelope)
	if o == nil || o.peer >= 0 && o.peer != from {
		w.chase.RecordTell(from, m, nil, now)
		return
	}
	w.chase.RecordTell(from, m, &o.watch.wait, now)
	if m.At > 0 {
		w.revokeIfHopeless(o, from, m, now)
	}
	w.chase.SendNews(&o.watch.wait, func(e transport.Envelope) stall.Position { return w.position(ops, e, now) }, now)
}

// revokeIfHopeless revokes if o can never end because of rank from: that rank has closed the
// communicator, or is in a blocking call that waits for this rank.
func (w *watchdog) revokeIfHopeless(o *operation, from int, m *stall.Signal, now time.Duration) {
	rival := o.peer >= 0 && o.blocking && now-o.watch.wait.Since >= stall.AskAfter && m.Rival.Call.Kind != 0 && !w.hasBegun(m.Rival)
	if !rival && m.State != stall.Closed {
		return
	}
	o.watch.hopelessAnswers++
	switch {
	case m.State == stall.Closed && o.watch.hopelessAnswers >= closedAnswers:
		w.revoke(&AbortError{Rank: from, Cause: fmt.Sprintf("closed the communicator of %v, in which rank %d waits", o.env.Call, w.self)})
	case rival && o.watch.hopelessAnswers >= rivalAnswers:
		w.revoke(&MismatchError{RankA: w.self, A: o.env.Call, RankB: from, B: m.Rival.Call, Detail: "each waits for the other"})
	}
}

// queued returns the queued call with the communicator and the sequence number of e.
func (ep *endpoint) queued(e transport.Envelope) (c transport.Call, ok bool) {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	if s := ep.sequences[e.Comm]; s != nil {
		return s.queue.find(e.Seq)
	}
	return transport.Call{}, false
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
	p := w.position(ops, m.Envelope, now)
	if m.Seq&pointBit != 0 && !ops.hasBackgroundPoint(from) {
		p.Rival = ops.blockingCall(m.Comm, now)
	}
	w.chase.Answer(from, m, p, now)
}

// position returns the position of this rank in relation to the call of e.
func (w *watchdog) position(ops callList, e transport.Envelope, now time.Duration) stall.Position {
	o := ops.find(e)
	_, queued := w.queued(e)
	point := e.Seq&pointBit != 0
	p := stall.Position{State: stall.NotYet, Busy: ops.isBusy(now)}
	switch {
	case o == nil && !queued && w.closedBefore(e):
		return stall.Position{State: stall.Closed}
	case !point && (o != nil || queued):
		p.State = stall.Present
	case !point && w.hasBegun(e):
		return stall.Position{State: stall.Past}
	}
	if p.State == stall.Present && o != nil && o.watch.wait.Waits() {
		p.Wait = &o.watch.wait
	} else if blocker := ops.oldestBlocker(now); blocker != nil {
		p.Wait = &blocker.watch.wait
	}
	return p
}

// hasBegun reports whether this rank has begun the collective call of e. If the call is not
// in progress, it has ended.
func (ep *endpoint) hasBegun(e transport.Envelope) bool {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	s := ep.sequences[e.Comm]
	return s != nil && int32((s.lastSeq-e.Seq)<<1) >= 0 // modulo 1<<31
}

// closedBefore reports whether this rank has closed the communicator of e without beginning the
// call, so that it can never begin the call.
func (ep *endpoint) closedBefore(e transport.Envelope) bool {
	if e.Seq&pointBit == 0 && ep.hasBegun(e) {
		return false
	}
	ep.mu.Lock()
	defer ep.mu.Unlock()
	return ep.sequences[e.Comm].isClosed()
}
