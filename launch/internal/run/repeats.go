package run

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/elrun/elrun/launch/internal/proc"
	"github.com/elrun/elrun/launch/internal/wire"
	"github.com/elrun/elrun/launch/spec"
)

// A sample that ends the process of a peer would end all of them, one after the other, because the
// others compute the part of a peer that is gone:
//
//	peer      retry {samples, members that are gone} --> launcher
//	launcher  if one of these members was computing such a part, waits until it knows how their
//	          processes have ended
//	          decision: compute it, or the mistake       --> peer
//
// The second process that ends by itself with the same status while it computes a part of the first
// makes the part a mistake of the program. A signal is no such end: it comes from outside.

const (
	// decisionPatience is how long the launcher waits for the end of a process that is no member any
	// more, but still runs.
	decisionPatience = 2 * time.Second
	// shellSignal is the exit status of a shell whose program was ended by signal 0; signal n has n
	// more.
	shellSignal, maxSignal = 128, 64
)

// repeats finds a part that ends the processes of its peers, from what a launcher knows. It does no
// I/O, reads no clock, and is not safe for concurrent use.
type repeats struct {
	parts   map[int]wire.RetryOrder // by local index: the part that the peer computes again
	deaths  map[string]death        // by short ID: members that have ended by themselves
	open    []openRetry             // without an answer
	mistake string                  // the first part that has ended two processes, with the cause; "" for none
	told    bool                    // the job has been told of the mistake
}

// peerMessage is a message to one peer.
type peerMessage struct {
	to  int
	msg wire.Message
}

// death is the end of a process by itself.
type death struct {
	exit  spec.Exit
	part  wire.RetryOrder // that it computed again; zero for none
	words *lastWords
}

// openRetry is a RetryOrder without an answer.
type openRetry struct {
	from  int // local index
	order wire.RetryOrder
	since time.Time
}

// begin records a RetryOrder of peer from.
func (r *repeats) begin(from int, o wire.RetryOrder, now time.Time) {
	if r.parts == nil {
		r.parts, r.deaths = make(map[int]wire.RetryOrder), make(map[string]death)
	}
	if o.Step == 0 {
		delete(r.parts, from)
		return
	}
	r.parts[from] = o
	r.forget(from) // a peer makes one request at a time
	r.open = append(r.open, openRetry{from, o, now})
}

// forget drops the request of a peer.
func (r *repeats) forget(from int) {
	r.open = slices.DeleteFunc(r.open, func(o openRetry) bool { return o.from == from })
}

// ended records the end of the process of the member with a short ID.
func (r *repeats) ended(short string, e spec.Exit, words *lastWords) {
	part := r.parts[e.Index]
	delete(r.parts, e.Index)
	r.forget(e.Index)
	if short == "" || !endedByItself(e) {
		return
	}
	if r.deaths == nil {
		r.parts, r.deaths = make(map[int]wire.RetryOrder), make(map[string]death)
	}
	r.deaths[short] = death{e, part, words}
}

// judge looks for two deaths in the same part. wait is true if there are such deaths, but what the
// processes text last is not known yet.
func (r *repeats) judge(now time.Time) (wait bool) {
	if r.mistake != "" {
		return false
	}
	for _, second := range r.deaths {
		for _, of := range second.part.Of {
			first, ok := r.deaths[of]
			if !ok || first.exit.Code != second.exit.Code {
				continue
			}
			text, known := first.words.report()
			if more, sure := second.words.report(); !known || sure && text == "" {
				text, known = more, sure
			}
			if !known && now.Sub(second.exit.At) < proc.Leftover {
				return true
			}
			r.mistake = fmt.Sprintf("%v: peers %d and %d %v", second.part, first.exit.Index, second.exit.Index, second.exit)
			if text != "" {
				r.mistake += ": " + text
			}
			return false
		}
	}
	return false
}

// decisions returns the answers that are due at now. running returns the local index of a member of
// this launcher whose process runs.
func (r *repeats) decisions(now time.Time, running func(short string) (index int, ok bool)) (out []peerMessage) {
	if r.judge(now) {
		return nil
	}
	r.open = slices.DeleteFunc(r.open, func(o openRetry) bool {
		if r.mistake == "" && now.Sub(o.since) < decisionPatience && r.mayEndAgain(o.order.Of, running) {
			return false
		}
		out = append(out, peerMessage{o.from, wire.Message{Decision: &wire.Decision{Seq: o.order.Seq, Mistake: r.mistake}}})
		return true
	})
	return out
}

// mayEndAgain reports whether the part of some members may have ended a second process in the way of
// the first, as far as is not known: a process of them runs, and one of them has computed a part
// again. The status of a killed process comes late, when its memory is freed.
func (r *repeats) mayEndAgain(of []string, running func(short string) (index int, ok bool)) bool {
	runs, second := false, false
	for _, id := range of {
		i, ok := running(id)
		runs = runs || ok
		second = second || ok && r.parts[i].Step > 0 || r.deaths[id].part.Step > 0
	}
	return runs && second
}

// judge answers the peers that are about to compute a part again. If the part is a mistake of the
// program, the peer that has asked ends the loops of all members.
func (s *supervisor) judge(now time.Time) {
	for _, a := range s.repeats.decisions(now, func(short string) (index int, ok bool) {
		i := s.roster.index(short)
		return i, s.procs.peers[i] != nil && s.roster.shortID(i) == short
	}) {
		s.send(a.to, a.msg)
	}
	if s.repeats.mistake != "" && !s.repeats.told {
		s.repeats.told = true
		s.mistaken(-1, s.repeats.mistake)
	}
}

// lastWords keeps what a process has text last on its standard error: the message of a Go panic, or
// else the last line. A nil lastWords knows nothing. It is safe for concurrent use.
type lastWords struct {
	mu    sync.Mutex
	part  []byte // the beginning of the line that is not complete
	cause string // message of a panic
	last  string
	ended bool
}

// maxWords bounds the bytes of a line that lastWords keeps.
const maxWords = 200

// add adds a part of the output.
func (l *lastWords) add(part []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(part) > 0 {
		line, rest, whole := bytes.Cut(part, []byte("\n"))
		l.part = append(l.part, line[:min(len(line), max(0, maxWords-len(l.part)))]...)
		if part = rest; whole {
			l.line()
		}
	}
}

// line ends the present line. The caller holds mu.
func (l *lastWords) line() {
	text := strings.ToValidUTF8(strings.TrimSpace(string(l.part)), "")
	l.part = l.part[:0]
	if strings.HasPrefix(text, "panic: ") || strings.HasPrefix(text, "fatal error: ") {
		l.cause = cmp.Or(l.cause, text)
	}
	l.last = cmp.Or(text, l.last)
}

// end records the end of the output.
func (l *lastWords) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.line()
	l.ended = true
}

// report returns the text, and whether the output has ended.
func (l *lastWords) report() (text string, ended bool) {
	if l == nil {
		return "", true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return cmp.Or(l.cause, l.last), l.ended
}

// endedByItself reports whether the process ended with a status that its program chose, and not as asked.
// A shell passes the signal that has ended its program on as a status.
func endedByItself(e spec.Exit) bool {
	return e.Code > 0 && e.Signal == 0 && !e.Asked && !e.Lost && e.Code != spec.StatusQuorum && (e.Code <= shellSignal || e.Code > shellSignal+maxSignal)
}
