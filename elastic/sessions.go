package elastic

import (
	"fmt"
	"sync"
	"time"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/event"
)

// Sessions is the side of a Group for those who write the loop over sessions themselves, such as
// package trainer, or who need a fixed set of members. A program with Group.Steps does not need it.
// Emit and Stable are safe for concurrent use. The other methods belong to the goroutine that owns
// the State.
type Sessions struct{ g *Group }

// Sessions returns the group's side for a loop over sessions.
func (g *Group) Sessions() Sessions { return Sessions{g} }

// Hold registers the state that all members hold in common, and the settings on which they must
// agree. Hold must be called before the first Next, at every member or at none.
func (l Sessions) Hold(s State, settings []Setting) {
	if !l.g.made() {
		return
	}
	l.g.register(func(t *terms) {
		if t.state, t.settings = s, settings; s != nil {
			t.donor = newDonor(s, l.g.cfg.StateRate)
		}
	})
}

// OnQuorumLost sets a function that Next calls when it begins to wait because too few members are
// left, unless a failed Load has left the State undefined. OnQuorumLost must be called before the
// first Next.
func (s Sessions) OnQuorumLost(f func()) {
	if s.g.made() {
		s.g.onShort = f
	}
}

// Committed records that the state has committed a step. The program calls it after every step, in
// the goroutine that calls Next. While a newcomer copies the state, Committed saves the state or
// the update of the step for it; errors of State are returned. Without a State (see Hold) it
// returns an error.
func (s Sessions) Committed(step int64) error {
	if !s.g.made() {
		return fmt.Errorf("elastic: step %d: %w", step, errNoGroup)
	}
	if s.g.state == nil {
		return fmt.Errorf("elastic: step %d: no state is held; call Hold before the first Next", step)
	}
	s.g.broke = 0
	if err := s.g.commit(step); err != nil {
		return fmt.Errorf("elastic: step %d: %w", step, err)
	}
	return nil
}

// Stable records the last step that all members are known to have committed.
func (s Sessions) Stable(step int64) {
	if s.g.made() {
		s.g.current().stable.Store(step)
	}
}

// Emit writes an event of this peer to the job's log. epoch and step are 0 where they do not apply.
func (s Sessions) Emit(epoch uint64, step int64, body event.Body) {
	if !s.g.made() {
		return
	}
	self := s.g.Self()
	s.g.cfg.Sink.Emit(event.Event{Time: time.Now(), Peer: self.ID.Short(), Index: self.Index,
		Epoch: epoch, Step: step, Body: body})
}

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
func (s *sessions) using() *Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
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
func (s *sessions) close() {
	s.mu.Lock()
	s.closed = true
	last := s.last
	s.mu.Unlock()
	s.retire(last, nil)
	s.retiring.Wait()
}
