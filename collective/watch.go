package collective

import (
	"encoding/binary"
	"fmt"
	"slices"
	"time"
)

// The watch looks after calls that wait. Nothing of it is in the way of a call that
// moves; a call that does not is treated in three steps:
//
//  1. After rollCallAfter without a message, the rank asks the others of the
//     communicator where they are in its sequence: an ask names the call.
//  2. Every rank answers at once, from its own watch, with a tell: in the same call,
//     not there yet, or past it. A rank that is in another call at the same place has
//     found a mismatch and revokes instead.
//  3. After the stall limit, OnStall is told who is not in the call.
//
// A rank that waits in Send or Recv for one that waits in a collective call for it
// can never be served, because calls come from one goroutine: after two asks in
// that state this is a mismatch, too, unless an ISend or IRecv between them goes on.

const (
	// watchPeriod is how often the watch looks at the calls in progress.
	watchPeriod = 50 * time.Millisecond
	// stoodStill is how far two looks must lie apart for this process to have been stopped.
	stoodStill = 10 * watchPeriod
	// rollCallAfter is how long a call may wait before the first ask; the pause
	// before each further ask doubles, up to rollCallMost.
	rollCallAfter = 200 * time.Millisecond
	rollCallMost  = 2 * time.Second
	// stallAfter is the least time after which a call is reported.
	stallAfter = time.Second
	// stallFactor times the longest wait that ended well is the limit if that is
	// longer, up to stallMost.
	stallFactor = 4
	stallMost   = 30 * time.Second
)

// Stall describes a call that waits unusually long. Ranks are those of the transport.
type Stall struct {
	Call     Call
	Since    time.Duration // without a message
	Waiting  int           // rank from which the caller receives, or -1
	Culprits []int         // ranks that hold up the call, as far as is known
	Phase    string        // what the culprits do: "not in the call", "no answer", "in the call"
}

// String says who is waited for, in one line without ranks' names.
func (s Stall) String() string {
	return fmt.Sprintf("%v waits %.1fs for rank %v (%s)", s.Call, s.Since.Seconds(), s.Culprits, s.Phase)
}

// state is where a rank is in relation to a call that it was asked about.
type state uint8

const (
	unknown state = iota // no answer
	present              // in the call
	absent               // not there yet
	past                 // has ended it, as its messages on the way will show
)

// rollCall is what the watch knows of one call that waits.
type rollCall struct {
	asked    time.Duration // when last, since world.started; 0 for never
	pause    time.Duration
	states   map[int]state // answers by rank of the transport
	strikes  int           // asks of a rank that can never be served
	reported time.Duration // the wait at the last report
}

// watch runs until Close.
func (w *world) watch() {
	ticker := time.NewTicker(watchPeriod)
	defer ticker.Stop()
	last := time.Since(w.started)
	for {
		select {
		case <-w.stop:
			return
		case s := <-w.t.Signals():
			w.hear(s)
		case <-ticker.C:
			now := time.Since(w.started)
			if now-last > stoodStill {
				w.excuse(now)
			}
			last = now
			for _, o := range w.inProgress() {
				w.look(o)
			}
		}
	}
}

// excuse lets all waits begin anew at now. This process did not run for a while, as it
// was stopped or starved: what it has not seen meanwhile is nobody else's fault.
func (w *world) excuse(now time.Duration) {
	for _, o := range w.inProgress() {
		o.progress.Store(int64(now))
	}
}

// look asks and reports if o waits for long.
func (w *world) look(o *operation) {
	now := time.Since(w.started)
	waits := now - time.Duration(o.progress.Load())
	if waits < rollCallAfter {
		o.roll = rollCall{}
		return
	}
	if now-o.roll.asked >= o.roll.pause {
		o.ask(now)
	}
	usual := min(stallFactor*time.Duration(w.longest.Load()), stallMost)
	limit := max(stallAfter, usual, 2*o.roll.reported)
	if waits >= limit && w.opts.OnStall != nil {
		o.roll.reported = waits
		w.opts.OnStall(o.stall(waits))
	}
}

// inProgress returns the calls in progress, the oldest first.
func (w *world) inProgress() []*operation {
	w.mu.Lock()
	defer w.mu.Unlock()
	ops := make([]*operation, 0, len(w.calls))
	for o := range w.calls {
		ops = append(ops, o)
	}
	slices.SortFunc(ops, func(a, b *operation) int { return int(a.begun - b.begun) })
	return ops
}

// ask sends the roll call to all ranks of the communicator, or to the other side
// of a Send or Recv.
func (o *operation) ask(now time.Duration) {
	r := &o.roll
	r.asked = now
	r.pause = min(max(2*r.pause, rollCallAfter), rollCallMost)
	if r.states == nil {
		r.states = make(map[int]state)
	}
	for rank := range o.size {
		peer := o.inWorld(rank)
		if peer == o.self || (o.peer >= 0 && o.peer != peer) {
			continue
		}
		blocking := o.blocking && !o.serves(peer)
		o.t.Signal(peer, signal{kind: signalAsk, env: o.env, blocking: blocking}.append(nil))
	}
}

// serves reports whether a Send or Recv with peer goes on beside the calls that block.
func (w *world) serves(peer int) bool {
	return slices.ContainsFunc(w.inProgress(), func(o *operation) bool {
		return o.peer == peer && !o.blocking
	})
}

// stall says who holds up o.
func (o *operation) stall(waits time.Duration) Stall {
	s := Stall{Call: o.env.Call, Since: waits, Waiting: int(o.waiting.Load()) - 1, Phase: "in the call"}
	// A rank that does not answer comes first: one that does may itself wait for it, in
	// an earlier call.
	for _, st := range []state{unknown, absent} {
		for rank := range o.size {
			peer := o.inWorld(rank)
			concerned := peer != o.self && (o.peer < 0 || o.peer == peer)
			if concerned && o.roll.states[peer] == st {
				s.Culprits = append(s.Culprits, peer)
			}
		}
		if len(s.Culprits) > 0 {
			s.Phase = map[state]string{absent: "not in the call", unknown: "no answer"}[st]
			return s
		}
	}
	if s.Waiting >= 0 {
		s.Culprits = []int{s.Waiting}
	}
	return s
}

// hear takes a signal of another rank. What makes no sense is dropped: signals are
// advisory.
func (w *world) hear(s Signal) {
	m, err := decodeSignal(s.Data)
	if err != nil {
		return
	}
	if m.kind == signalAsk {
		w.answer(s.From, m)
		return
	}
	if o := w.find(m.env); o != nil && o.roll.states != nil {
		o.roll.states[s.From] = m.state
	}
}

// find returns the collective call in progress at the place of e, or nil.
func (w *world) find(e Envelope) *operation {
	for _, o := range w.inProgress() {
		if o.env.Comm == e.Comm && o.env.Seq == e.Seq {
			return o
		}
	}
	return nil
}

// answer tells rank from where this rank is, or revokes if the two can never meet.
func (w *world) answer(from int, m signal) {
	mine := w.find(m.env)
	reply := signal{kind: signalTell, env: m.env, state: absent}
	switch {
	case m.env.Seq&pointBit != 0:
		// A tag says nothing about places; the other direction finds the mismatch.
	case mine != nil && mine.env.Call != m.env.Call:
		w.revoke(&MismatchError{RankA: w.self, A: mine.env.Call, RankB: from, B: m.env.Call})
		return
	case mine != nil:
		reply.state = present
	case w.isPast(m.env):
		reply.state = past
	default:
		if o := w.neverServed(from, m); o != nil {
			w.revoke(&MismatchError{RankA: w.self, A: o.env.Call, RankB: from, B: m.env.Call,
				Detail: "each waits for the other"})
			return
		}
	}
	w.t.Signal(from, reply.append(nil))
}

// isPast reports whether this rank has begun, and so ended, the call of e.
func (w *world) isPast(e Envelope) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.seqs[e.Comm]
	return s != nil && int32((s.Load()-e.Seq)<<1) >= 0 // modulo 1<<31
}

// neverServed finds the blocking Send or Recv in which this rank waits for from,
// which itself waits in the blocking collective call m, here not begun, of the same
// communicator.
func (w *world) neverServed(from int, m signal) *operation {
	now := time.Since(w.started)
	for _, o := range w.inProgress() {
		waits := now - time.Duration(o.progress.Load())
		if o.peer != from || !o.blocking || !m.blocking || o.env.Comm != m.env.Comm || waits < rollCallAfter {
			continue
		}
		// A message may have arrived whose receiver has not run yet: once is not enough.
		if o.roll.strikes++; o.roll.strikes >= 2 {
			return o
		}
	}
	return nil
}

// signal is a message between watches.
type signal struct {
	kind     byte
	env      Envelope
	blocking bool  // of an ask: the sender does nothing else with the receiver
	state    state // of a tell
}

const (
	signalAsk  = 1
	signalTell = 2
	signalSize = 1 + 8 + 4 + CallSize + 1
)

func (s signal) append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint64(append(b, s.kind), s.env.Comm)
	b = binary.LittleEndian.AppendUint32(b, s.env.Seq)
	b = s.env.Call.Append(b)
	last := byte(s.state)
	if s.blocking {
		last |= 0x80
	}
	return append(b, last)
}

func decodeSignal(b []byte) (signal, error) {
	if len(b) != signalSize || (b[0] != signalAsk && b[0] != signalTell) {
		return signal{}, fmt.Errorf("collective: decode signal: %d bytes, want %d", len(b), signalSize)
	}
	call, err := DecodeCall(b[13:])
	if err != nil {
		return signal{}, err
	}
	last := b[signalSize-1]
	return signal{
		kind:     b[0],
		env:      Envelope{Comm: binary.LittleEndian.Uint64(b[1:]), Seq: binary.LittleEndian.Uint32(b[9:]), Call: call},
		blocking: last&0x80 != 0,
		state:    state(last &^ 0x80),
	}, nil
}
