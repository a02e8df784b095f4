package elastic

import (
	"sync"

	"github.com/elrun/elrun/collective"
)

// sessions holds the session in use, and closes the sessions that were left.
type sessions struct {
	// Owned by the goroutine that calls Next.
	pending *Session        // entered by Join, returned by the first Next
	cost    collective.Cost // costs of calls, measured in the last session; zero at first
	broke   int             // number of sessions that broke since the last committed step

	mu       sync.Mutex
	last     *Session // the session that Next returned last; nil after it was left
	closed   bool
	retiring sync.WaitGroup // goroutines that close sessions
}

// using returns the session in use, which Next has returned last, or nil.
func (n *sessions) using() *Session {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.last
}

// use records s as the session in use.
func (n *sessions) use(s *Session) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.last = s
}

// retire closes a session that was left. It works in the background, because Comm.Close waits until
// the other members have received the end of the session. The function ended, if not nil, is called
// afterwards, or at once if the session was retired before.
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
			_ = s.Comm.Close() // the error only names members that were lost before they received the end
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

// close retires the session in use, and waits until all sessions are closed. From then on retire
// closes a session in the goroutine of its caller.
func (n *sessions) close() {
	n.mu.Lock()
	n.closed = true
	last := n.last
	n.mu.Unlock()
	n.retire(last, nil)
	n.retiring.Wait()
}
