package p2p

import (
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/elrun/elrun/elastic"
)

// Members compute while others with a ticket connect, ask and send, so the work for
// outsiders, those in no view of this host, has a bound: a token bucket for each of them, all
// of which together are refilled at one rate. A token is about the work of reading a byte.
// Who has used up its tokens is not read until it has some again (backpressure): TCP stops
// the sender. An honest newcomer needs far less than what its bucket holds at the start, so
// it waits for nobody.

const (
	// outsiderRate is how many tokens a second all outsiders together get, in equal parts
	// for those that have used some.
	outsiderRate = 256 << 10
	// outsiderTokens is how many one of them holds at most, and at the start.
	outsiderTokens = 512 << 10
	// maxThrottled is how many outsiders have buckets of their own; others share one.
	maxThrottled = 1024
)

// What is paid, in tokens. Bytes cost one each.
const (
	readTokens    = 128     // a read of the connection: a system call and a wake-up
	messageTokens = 1 << 10 // a control message, with its acknowledgement
	streamTokens  = 4 << 10 // a stream with its protocol, and one request
	// answerBytes is how many bytes of an answer earn a token. A piece of it earns more
	// than its acknowledgement costs, so that who copies the state is not held up.
	answerBytes = 256
)

// throttle bounds the work for outsiders. All methods are safe for concurrent use.
type throttle struct {
	closed <-chan struct{} // nobody waits any more
	rate   float64         // tokens a second of all outsiders

	mu      sync.Mutex
	inside  map[peer.ID]bool // who is no outsider; nil before the first view, when nobody is one
	changed chan struct{}    // closed, and made anew, when that changes
	buckets map[peer.ID]*bucket
}

// bucket is what an outsider has left. A full one is forgotten.
type bucket struct {
	tokens float64 // below 0: a debt
	at     time.Time
}

// newThrottle returns the throttle of a host that is in no view.
func newThrottle(closed <-chan struct{}) *throttle {
	return &throttle{closed: closed, rate: outsiderRate, changed: make(chan struct{}), buckets: make(map[peer.ID]*bucket)}
}

// insiders returns the members of a view and the relays by which this host is connected with
// them, as what a relay carries is the members'.
func (h *Host) insiders(v elastic.View) []peer.ID {
	var all []peer.ID
	for _, m := range v.Members {
		id, err := idOf(string(m.ID))
		if err != nil {
			continue // no peer has such an ID
		}
		all = append(all, id)
		for _, c := range h.swarm.ConnsToPeer(id) {
			if by, ok := relayOf(c.RemoteMultiaddr()); ok {
				all = append(all, by)
			}
		}
	}
	return all
}

// enter makes all peers but these outsiders.
func (t *throttle) enter(inside []peer.ID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.inside = make(map[peer.ID]bool, len(inside))
	for _, id := range inside {
		t.inside[id] = true
		delete(t.buckets, id)
	}
	close(t.changed)
	t.changed = make(chan struct{})
}

// spend takes n tokens from a peer that is an outsider, and waits until it is in no debt.
func (t *throttle) spend(id peer.ID, n int) {
	t.pay(id, n)
	t.wait(id, nil)
}

// pay takes n tokens from a peer that is an outsider, or gives it some where n is negative.
func (t *throttle) pay(id peer.ID, n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.inside == nil || t.inside[id] {
		return
	}
	b := t.bucketLocked(id, time.Now())
	b.tokens = min(b.tokens-float64(n), outsiderTokens)
}

// bucketLocked returns the bucket of an outsider with what it holds by now.
func (t *throttle) bucketLocked(id peer.ID, now time.Time) *bucket {
	b := t.buckets[id]
	if b == nil {
		for other, b := range t.buckets {
			if t.refillLocked(b, now); b.tokens >= outsiderTokens {
				delete(t.buckets, other)
			}
		}
		if len(t.buckets) >= maxThrottled {
			id = ""
		}
		if b = t.buckets[id]; b == nil {
			b = &bucket{tokens: outsiderTokens, at: now}
			t.buckets[id] = b
		}
	}
	t.refillLocked(b, now)
	return b
}

// refillLocked gives a bucket its part of the rate since the last time.
func (t *throttle) refillLocked(b *bucket, now time.Time) {
	b.tokens = min(b.tokens+t.partLocked()*now.Sub(b.at).Seconds(), outsiderTokens)
	b.at = now
}

// partLocked returns how many tokens a second each bucket gets.
func (t *throttle) partLocked() float64 { return t.rate / float64(max(1, len(t.buckets))) }

// wait returns when a peer is in no debt, or when stop or the host is closed.
func (t *throttle) wait(id peer.ID, stop <-chan struct{}) {
	for {
		left, changed := t.debt(id)
		if left <= 0 || !t.pause(left, changed, stop) {
			return
		}
	}
}

// pause waits until it is worth to look again, and returns false if that is never.
func (t *throttle) pause(d time.Duration, changed, stop <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-changed:
	case <-stop:
		return false
	case <-t.closed:
		return false
	}
	return true
}

// debt returns how long a peer needs to pay what it owes, and a channel that is closed when
// it may be no outsider any more.
func (t *throttle) debt(id peer.ID) (time.Duration, <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.inside[id] {
		return 0, nil
	}
	b := t.buckets[id]
	if b == nil && len(t.buckets) >= maxThrottled {
		b = t.buckets[""]
	}
	if b == nil {
		return 0, nil
	}
	if t.refillLocked(b, time.Now()); b.tokens >= 0 {
		return 0, nil
	}
	return time.Duration(-b.tokens/t.partLocked()*float64(time.Second)) + 1, t.changed
}
