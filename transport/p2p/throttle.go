package p2p

import (
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
)

// Members compute while outsiders connect, ask and send, so the work for outsiders is limited. Each
// outsider, a peer in no view of this host, has a token bucket; all buckets together are refilled
// at one rate. A token stands for the work of reading one byte. A peer whose bucket is in debt is
// not read (backpressure), so that TCP's flow control stops the sender. An honest newcomer needs
// far fewer tokens than a full bucket holds, so it never waits.

const (
	// outsiderRate is the rate of all outsiders together, in tokens per second. All buckets get
	// equal parts.
	outsiderRate = 256 << 10
	// outsiderTokens is the capacity of a bucket, which is full at first.
	outsiderTokens = 512 << 10
	// maxThrottled is the number of outsiders with buckets of their own; all others share one.
	maxThrottled = 1024
)

// Costs in tokens. Each byte that is read costs one more.
const (
	readTokens    = 128     // a read of the connection: a system call and a wake-up
	messageTokens = 1 << 10 // a control message, with its acknowledgement
	streamTokens  = 4 << 10 // a stream with its protocol, and one request
	// answerBytes is the number of bytes sent that earn a token. A piece of an answer earns more
	// than reading its acknowledgement costs, so that a peer that copies the state is not held up.
	answerBytes = 256
)

// throttle limits the work for outsiders by token buckets. All methods are safe for concurrent use.
//
// Work is charged when it is done, as its size is not known before, so a bucket may go into debt by
// the work in progress. The next piece of work waits until the debt is paid:
//
//	spend(n)       pays n, then waits     a message, a stream
//	wait, pay(n)   waits, then pays       a read, whose size is known only afterwards
//
// With m buckets each bucket gets rate/m tokens a second. So m outsiders together cost what one
// outsider costs, and an outsider alone is served at the full rate.
type throttle struct {
	closed <-chan struct{} // closed with the host; ends all waits
	rate   float64         // tokens per second of all outsiders together

	// mu guards the fields below.
	mu      sync.Mutex
	inside  map[peer.ID]bool    // members and their relays; nil before the first view, when nobody is an outsider
	changed chan struct{}       // closed and replaced when inside changes
	buckets map[peer.ID]*bucket // by outsider; "" is the shared one
}

// bucket is the token bucket of an outsider. A full bucket may be removed, as a new bucket is full.
type bucket struct {
	tokens float64   // negative: a debt
	at     time.Time // time of the last refill
}

// newThrottle returns the throttle of a host that is in no view.
func newThrottle(closed <-chan struct{}) *throttle {
	return &throttle{closed: closed, rate: outsiderRate, changed: make(chan struct{}), buckets: make(map[peer.ID]*bucket)}
}

// setInsiders replaces the set of insiders, the peers that are no outsiders. It wakes all waiting
// calls: the calls of a new insider return at once, and its debt is cancelled, because its bucket
// is removed.
func (t *throttle) setInsiders(inside []peer.ID) {
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

// spend charges an outsider n tokens and waits until its bucket is not in debt.
func (t *throttle) spend(id peer.ID, n int) {
	t.pay(id, n)
	t.wait(id, nil)
}

// pay charges an outsider n tokens; a negative n earns tokens, up to a full bucket. It does not
// wait. Before the first view, while members gather, it charges nobody.
func (t *throttle) pay(id peer.ID, n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.inside == nil || t.inside[id] {
		return
	}
	b := t.bucketLocked(id, time.Now())
	b.tokens = min(b.tokens-float64(n), outsiderTokens)
}

// bucketLocked returns the bucket of an outsider, refilled up to now. It removes full buckets when
// it makes a new one, and returns the shared bucket if there are too many.
func (t *throttle) bucketLocked(id peer.ID, now time.Time) *bucket {
	b := t.buckets[id]
	if b == nil {
		// A full bucket has the state of a new bucket, so removing it loses nothing.
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

// refillLocked adds a bucket's part of the rate since its last refill.
func (t *throttle) refillLocked(b *bucket, now time.Time) {
	b.tokens = min(b.tokens+t.partLocked()*now.Sub(b.at).Seconds(), outsiderTokens)
	b.at = now
}

// partLocked returns the rate of each bucket, in tokens per second.
func (t *throttle) partLocked() float64 { return t.rate / float64(max(1, len(t.buckets))) }

// wait returns when the peer's bucket is not in debt, or when stop or the host is closed. stop may
// be nil.
func (t *throttle) wait(id peer.ID, stop <-chan struct{}) {
	for {
		left, changed := t.debt(id)
		if left <= 0 || !t.pause(left, changed, stop) {
			return
		}
	}
}

// pause waits for d or until changed, when the debt is to be computed again. It returns false if
// stop or the host was closed.
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

// debt returns how long the refill takes to cover a peer's debt; 0 if there is no debt. The channel
// is closed when the set of insiders changes. The time is computed with the present number of
// buckets; if there are more buckets afterwards, the caller finds a remaining debt and waits again.
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
	// The nanosecond on top makes up for rounding down.
	return time.Duration(-b.tokens/t.partLocked()*float64(time.Second)) + 1, t.changed
}
