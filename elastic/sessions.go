package elastic

import (
	"sync"

	"github.com/elrun/elrun/collective"
)

// sessions are the sessions of a group: the session in use, and those that were left and are being
// closed.
type sessions struct {
	// Owned by the goroutine that calls Next.
	pending *Session        // entered by Join, returned by the first Next
	cost    collective.Cost // costs of calls, measured in the last session; zero at first
	broke   int             // number of sessions that broke since the last committed step

	mu       sync.Mutex
	last     *Session // the session that Next handed out last; nil after it was left
	closed   bool
	retiring sync.WaitGroup // goroutines that close sessions
}

// using returns the last session that Next handed out, or nil.
func (n *sessions) using() *Session {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.last
}

// use records the session that Next hands out.
func (n *sessions) use(s *Session) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.last = s
}

// retire closes a session that was left. It works in the background, because closing the
// communicator waits until the other members have noted it. The function ended, if not nil, is
// called afterwards, or at once if the session was retired before.
func (n *sessions) retire(s *Session, ended func()) {
	if s == nil {
		return
	}
	first := false
	defer func() {
		if !first && ended != nil {
			ended()
		}
	}()
	s.once.Do(func() {
		first = true
		end := func() {
			_ = s.Comm.Close() // the error only names members that were lost before they noted the end
			if ended != nil {
				ended()
			}
		}
		n.mu.Lock()
		background := !n.closed
		if background {
			n.retiring.Go(end)
		}
		n.mu.Unlock()
		if !background {
			end()
		}
	})
}

// close retires the session in use, and waits until all sessions are closed. Sessions that are
// retired later are closed in the caller's goroutine.
func (n *sessions) close() {
	n.mu.Lock()
	n.closed = true
	last := n.last
	n.mu.Unlock()
	n.retire(last, nil)
	n.retiring.Wait()
}
