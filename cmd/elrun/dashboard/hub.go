package dashboard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/elrun/elrun/event/timeline"
	"github.com/elrun/elrun/launch"
)

const (
	// maxStreams bounds the pages that are open.
	maxStreams = 64
	// writePatience bounds the write of a message: a reader that stops is dropped, and gets a whole snapshot when it returns.
	writePatience = 10 * time.Second
	// retryPeriod is the time between two tries to watch a job whose elrun does not answer.
	retryPeriod = 2 * time.Second
)

// message is an event of a stream. Its kinds are snapshot and delta, which have a snapshot, whole or with the new points of
// series only; trouble, which has a text that says why there is no newer one, "" if there is; and end, which has a text about
// the end of the job.
type message struct {
	kind string
	data []byte
}

// hub watches a job, which is set, while pages are open, and tells each of them what it does not know yet. A page that is slow
// skips snapshots. It is safe for concurrent use.
type hub struct {
	job Job

	mu      sync.Mutex
	readers map[*reader]bool
	latest  timeline.Snapshot
	whole   []byte // latest; nil until a page needs it
	delta   []byte // what is new in latest; nil if a page needs all of it
	version int    // of latest; 0 before the first
	trouble string
	end     *string            // what is to be said of the end of the job; nil while it runs
	stop    context.CancelFunc // of the watch; nil while nobody reads
	empty   chan struct{}      // is closed when no page is open; nil if nobody waits for that
	work    sync.WaitGroup
}

// reader is an open page.
type reader struct {
	wake    chan struct{} // capacity 1: there is something to tell
	version int           // of the snapshot that it has
	trouble string        // that it knows
	ended   bool          // it knows the end
}

// open adds a page, and begins to watch for the first. It returns false if there are too many.
func (h *hub) open() (*reader, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.readers) >= maxStreams {
		return nil, false
	}
	if h.readers == nil {
		h.readers = make(map[*reader]bool)
	}
	r := &reader{wake: make(chan struct{}, 1)}
	h.readers[r] = true
	if h.version > 0 || h.trouble != "" || h.end != nil {
		r.wake <- struct{}{}
	}
	if h.stop == nil && h.end == nil {
		ctx, stop := context.WithCancel(context.Background())
		h.stop = stop
		h.work.Go(func() { h.watch(ctx) })
	}
	return r, true
}

// leave removes a page, and ends the watch after the last.
func (h *hub) leave(r *reader) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.readers, r)
	if len(h.readers) == 0 && h.empty != nil {
		close(h.empty)
		h.empty = nil
	}
	if len(h.readers) == 0 && h.stop != nil {
		h.stop()
		h.stop = nil
	}
}

// close ends the watch, and waits for it.
func (h *hub) close() {
	h.mu.Lock()
	if h.stop != nil {
		h.stop()
		h.stop = nil
	}
	h.mu.Unlock()
	h.work.Wait()
}

// watch takes snapshots until ctx ends, or the job does. A launcher that does not answer is asked again.
func (h *hub) watch(ctx context.Context) {
	for ctx.Err() == nil {
		err := h.follow(ctx)
		if ctx.Err() != nil {
			return
		}
		if errors.Is(err, launch.ErrNoJob) {
			text := h.job.Outcome(ctx)
			h.tell(func() { h.end = &text })
			return
		}
		h.tell(func() { h.trouble = err.Error() })
		select {
		case <-time.After(retryPeriod):
		case <-ctx.Done():
		}
	}
}

// follow takes snapshots until an error.
func (h *hub) follow(ctx context.Context) error {
	for s, err := range h.job.Watch(ctx) {
		if err != nil {
			return err
		}
		h.tell(func() { h.take(s) })
	}
	return ctx.Err()
}

// tell makes a change, and wakes all pages.
func (h *hub) tell(change func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	change()
	for r := range h.readers {
		select {
		case r.wake <- struct{}{}:
		default: // it is awake
		}
	}
}

// finish tells the pages of an end, unless the job has ended.
func (h *hub) finish(text string) {
	h.tell(func() {
		if h.end == nil {
			h.end = &text
		}
	})
}

// told waits, after finish, until each page knows the end. A page that does not read is dropped meanwhile.
func (h *hub) told() {
	h.mu.Lock()
	empty := make(chan struct{})
	if len(h.readers) == 0 {
		close(empty)
	} else {
		h.empty = empty
	}
	h.mu.Unlock()
	select {
	case <-empty:
	case <-time.After(writePatience):
	}
}

// take takes a new snapshot. The caller holds mu.
func (h *hub) take(s timeline.Snapshot) {
	h.whole, h.delta = nil, nil
	short := timeline.Since(s, h.latest.Step)
	if _, fits := timeline.After(short, h.latest); fits && h.version > 0 {
		h.delta, _ = json.Marshal(short) // a Snapshot can be encoded
	}
	h.latest, h.trouble = s, ""
	h.version++
}

// next returns what a page does not know yet.
func (h *hub) next(r *reader) (due []message) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case r.version == h.version:
	case r.version == h.version-1 && h.delta != nil:
		due = append(due, message{"delta", h.delta})
	default:
		if h.whole == nil {
			h.whole, _ = json.Marshal(h.latest) // a Snapshot can be encoded
		}
		due = append(due, message{"snapshot", h.whole})
	}
	if r.trouble != h.trouble {
		due = append(due, textMessage("trouble", h.trouble))
	}
	r.version, r.trouble = h.version, h.trouble
	if h.end != nil && !r.ended {
		r.ended = true
		due = append(due, textMessage("end", *h.end))
	}
	return due
}

// textMessage returns a message with a text.
func textMessage(kind, text string) message {
	data, _ := json.Marshal(text) // a text can be encoded
	return message{kind, data}
}

// events answers with the stream of a page: server-sent events.
func (h *hub) events(w http.ResponseWriter, r *http.Request) {
	page, ok := h.open()
	if !ok {
		w.Header().Set("Retry-After", "10")
		http.Error(w, "too many pages are open: close one", http.StatusServiceUnavailable)
		return
	}
	defer h.leave(page)
	w.Header().Set("Content-Type", "text/event-stream")
	c := http.NewResponseController(w)
	if c.Flush() != nil { // the headers: the page is connected
		return
	}
	for {
		select {
		case <-page.wake:
		case <-r.Context().Done():
			return
		}
		_ = c.SetWriteDeadline(time.Now().Add(writePatience)) // a server of tests may have none
		for _, m := range h.next(page) {
			if _, err := fmt.Fprintf(w, "event: %s\ndata: %s\n\n", m.kind, m.data); err != nil {
				return
			}
		}
		if c.Flush() != nil || page.ended {
			return
		}
	}
}
