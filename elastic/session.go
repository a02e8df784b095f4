package elastic

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/internal/pause"
)

// Session is one epoch as its members see it: a fixed membership with a communicator. The
// communicator is revoked at every member on an error, and ends with the group.
type Session struct {
	View View
	Rank int // this peer's rank in View
	Comm *collective.Comm

	group   *Group
	driver  *driver
	entered time.Time // when the session was made
	once    sync.Once // guards retire

	// Owned by Next.
	calibrated bool              // the costs of calls are measured
	paths      map[ID]event.Path // the paths to other members, as last logged

	// For loops of Steps. The loop's goroutine owns division; collective calls read turn.
	division *division            // nil before the members have exchanged their speeds
	turn     atomic.Pointer[Turn] // the turn whose body runs; nil between turns
}

// Stale reports whether this member has received a later view, or is out of the group. Other
// members may get another result at the same time, so members leave a session only by a common
// decision, for example by Boundary.
func (s *Session) Stale() bool {
	if !s.made() {
		return false
	}
	now, _ := s.driver.status.now()
	return now.view.Epoch > s.View.Epoch || now.phase > inside
}

// Boundary decides, with the same result at all ranks, whether to leave the session for a later
// view. All ranks call it at the same place, between two steps. It costs one small AllReduce.
func (s *Session) Boundary(ctx context.Context) (bool, error) {
	if !s.made() {
		return false, fmt.Errorf("elastic: boundary: %w", errNoSession)
	}
	stale := []int32{0}
	if s.Stale() {
		stale[0] = 1
	}
	if err := collective.AllReduce(ctx, s.Comm, stale, stale, collective.Max[int32]); err != nil {
		return false, fmt.Errorf("elastic: boundary: %w", err)
	}
	return stale[0] != 0, nil
}

// Busy reports that this member is busy, see Group.Busy.
func (s *Session) Busy(what string) (done func()) {
	if !s.made() {
		return func() {}
	}
	return s.group.Busy(what)
}

// Retry is a part of a step that members computed who are gone, and that another member is about to
// compute again.
type Retry struct {
	Step    int64
	Samples []int // indices of the samples
	Of      []ID  // the members that are gone
}

// Retry is called before this member computes a part that members computed who are gone. It returns
// an error if the part must not be computed, because it has ended several processes in the same way;
// the text names the part and the cause. Otherwise the caller calls done when it has computed the
// part. Retry waits until it is known how the processes of the members have ended, if their launcher
// is the launcher of this member.
func (s *Session) Retry(ctx context.Context, r Retry) (done func(), err error) {
	if !s.made() || s.group.cfg.OnRetry == nil {
		return func() {}, nil
	}
	return s.group.cfg.OnRetry(ctx, r)
}

// made reports whether Next made s.
func (s *Session) made() bool { return s != nil && s.group != nil }

// names returns a name for each member, by rank.
func (s *Session) names() []string {
	names := make([]string, len(s.View.Members))
	for rank, m := range s.View.Members {
		names[rank] = nameOf(m, s.View.Members[s.Rank])
	}
	return names
}

// nameOf names a member in messages of the peer self: by its local index, or by its ID and host if
// another launcher has started it.
func nameOf(m, self Member) string {
	if m.Launcher == self.Launcher {
		return "peer " + strconv.Itoa(m.Index)
	}
	return m.ID.Short() + "@" + m.Host
}

// speaks reports whether this member logs the events that are equal at all members of its launcher.
// Of these members the one with the lowest rank logs them.
func (s *Session) speaks() bool {
	launcher := s.View.Members[s.Rank].Launcher
	return slices.IndexFunc(s.View.Members, func(m Member) bool { return m.Launcher == launcher }) == s.Rank
}

// mismatch logs how the members of a session differ, and returns it as an ErrSettings.
func (s *Session) mismatch(why string) error {
	s.group.Sessions().Emit(s.View.Epoch, 0, event.Mismatch{Reason: why})
	return fmt.Errorf("%w: %w", ErrSettings, mistakef("%s", why))
}

// reportPaths logs the path to each other member with which there is a connection, unless the path
// is the same as in the session before. In a large group most paths do not change, and otherwise
// each view would cause an event for each pair. before is nil in the first session of this
// identity.
func (s *Session) reportPaths(before *Session, p Pather) {
	s.paths = make(map[ID]event.Path)
	for rank, m := range s.View.Members {
		if rank == s.Rank {
			continue
		}
		path := p.Path(rank)
		// A pair without a stream yet has no path.
		if path.Kind == "" {
			continue
		}
		path.Who = m.ID.Short()
		s.paths[m.ID] = path
		if before == nil || before.paths[m.ID] != path {
			s.driver.emit(s.View.Epoch, path)
		}
	}
}

// milliseconds returns a duration in milliseconds, as events show it.
func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// Sessions is the side of a Group for those who write the loop over sessions themselves, such as
// package trainer, or who need a fixed set of members. A program with Group.Steps does not need it.
// Emit and Stable are safe for concurrent use. The other methods belong to the goroutine that owns
// the State.
type Sessions struct{ g *Group }

// Hold registers the state that all members hold in common, and the settings on which they must
// agree. Hold must be called before the first Next, at every member or at none.
func (s Sessions) Hold(state State, settings []Setting) {
	if !s.g.made() {
		return
	}
	s.g.held.register(func(t *terms) {
		t.state, t.settings = state, settings
		if state != nil {
			t.donor = newDonor(state, s.g.cfg.StateRate)
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

// Saves records that the loop writes checkpoints into a folder, at the member of rank 0, or that it could if it had a folder: dir is "" then.
// From then on Admin.Save reaches the loop, which calls SaveDue at each boundary between two steps, and Saving for each write. Call end when
// the loop has ended and nothing is being written; finished means that no member goes on.
func (s Sessions) Saves(dir string) (end func(finished bool)) {
	if !s.g.made() {
		return func(bool) {}
	}
	s.g.wishes.Open(dir)
	return s.g.wishes.Close
}

// SaveDue records that all members have committed a step, and reports whether somebody wishes a checkpoint of it. mine is true if this
// member writes the checkpoints. SaveDue stays true until Saving is called.
func (s Sessions) SaveDue(step int64, mine bool) bool {
	return s.g.made() && s.g.wishes.Due(step, mine)
}

// Saving records that this member begins to write a checkpoint of a step. Call ended with the path of its file, or with the error.
func (s Sessions) Saving(step int64) (ended func(path string, err error)) {
	if !s.g.made() {
		return func(string, error) {}
	}
	return s.g.wishes.Begin(step)
}

// Run returns the IDs of the training. A newcomer knows them when its first Next has returned. Call
// it only in the goroutine that calls Next.
func (s Sessions) Run() Run {
	if !s.g.made() {
		return Run{}
	}
	return Run{idText(s.g.held.ids.job), idText(s.g.held.ids.run)}
}

// Resumed records that the state of this peer comes from an earlier run with the given Run.ID. It
// must be called before the first Next. If members have resumed from different runs, the ID of the
// state that all members begin with counts.
func (s Sessions) Resumed(id string) error {
	n, err := strconv.ParseUint(id, 16, 64)
	switch {
	case !s.g.made():
		return fmt.Errorf("elastic: resume run %q: %w", id, errNoGroup)
	case err != nil || n == 0 || id != idText(n):
		return fmt.Errorf("elastic: resume run %q: want 16 hexadecimal digits, as Run.ID has", id)
	}
	s.g.held.ids.run = n
	return nil
}

// Committed records that the state has committed a step. The program calls it after every step, in
// the goroutine that calls Next. While a newcomer copies the state, Committed saves the state or
// the update of the step for it; errors of State are returned. Without a State (see Hold) it
// returns an error.
func (s Sessions) Committed(step int64) error {
	if !s.g.made() {
		return fmt.Errorf("elastic: step %d: %w", step, errNoGroup)
	}
	if s.g.held.state == nil {
		return fmt.Errorf("elastic: step %d: no state is held; call Hold before the first Next", step)
	}
	s.g.sessions.broke = 0
	if err := s.g.held.commit(step); err != nil {
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

// Run identifies the training of a group, for files that outlive the group, such as checkpoints.
// Both IDs are 16 hexadecimal digits, equal at all members.
type Run struct {
	// Job identifies the job: all peers that its launchers start, also those that begin anew after
	// all members have died. A job that is started again has another ID.
	Job string
	// ID identifies the history of the state. It is Job, unless the job has resumed from the state of
	// an earlier run (Sessions.Resumed): then it is the ID of that run.
	ID string
}

// runIDs holds the IDs of a Run as numbers; 0 stands for an ID that is not known yet. The goroutine
// that calls Next owns it.
type runIDs struct{ job, run uint64 }

// idText returns an ID in hexadecimal digits.
func idText(id uint64) string { return fmt.Sprintf("%016x", id) }

// openSessions holds the session in use, and closes the sessions that were left.
type openSessions struct {
	// Owned by the goroutine that calls Next.
	pending *Session        // entered by Join, returned by the first Next
	cost    collective.Cost // costs of calls, measured in the last session; zero at first
	broke   int             // number of sessions that broke since the last committed step

	mu       sync.Mutex
	last     *Session // the session that Next returned last; nil after it was left
	closed   bool
	retiring sync.WaitGroup // goroutines that close sessions
}

// calibrate measures the costs of calls in a new session, unless all members have the costs of the
// same earlier session.
func (o *openSessions) calibrate(ctx context.Context, s *Session) error {
	if s.calibrated {
		return nil
	}
	if err := s.Comm.Calibrate(ctx); err != nil {
		return err
	}
	s.calibrated, o.cost = true, s.Comm.Cost()
	return nil
}

// left retires the session in use. If that session broke, left requests another one from the
// driver, except after a mistake of the program, which would recur in every session.
func (o *openSessions) left(epoch uint64) error {
	s := o.using()
	if s == nil {
		return nil
	}
	o.use(nil)
	cause := s.Comm.Err()
	o.retire(s, nil)
	// A mistake of the program would break every further session in the same way.
	if errors.Is(cause, collective.ErrMistake) {
		return fmt.Errorf("%w: %w", ErrNoView, cause)
	}
	if cause != nil && s.View.Epoch >= epoch {
		o.failed(context.Background(), s.driver, s.View, cause)
	}
	return nil
}

// failed reports to the driver that the session of a view broke or could not be entered, and the
// death of a member that broke it, if that is certain. From the fourth consecutive failure on,
// failed first waits, with exponential backoff up to a second, because a new view at once has not
// helped.
func (o *openSessions) failed(ctx context.Context, d *driver, v View, cause error) {
	blamed := -1
	var p *collective.PeerError
	if errors.As(cause, &p) && p.Rank < len(v.Members) {
		blamed = p.Rank
	}
	if blamed >= 0 && p.Ended {
		d.dead(v.Members[blamed].ID)
	}
	if o.broke++; o.broke > 3 {
		ctx, cancel := d.status.while(ctx, func(s status) bool { return s.view.Epoch == v.Epoch && s.phase == inside })
		_ = pause.For(ctx, min(tickPeriod<<min(o.broke-4, 10), time.Second)) // a new view ends the pause
		cancel()
	}
	d.broken(v, blamed)
}

// using returns the session in use, which Next has returned last, or nil.
func (o *openSessions) using() *Session {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.last
}

// use records s as the session in use.
func (o *openSessions) use(s *Session) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.last = s
}

// retire closes a session that was left. It works in the background, because Comm.Close waits until
// the other members have received the end of the session. The function ended, if not nil, is called
// afterwards, or at once if the session was retired before.
func (o *openSessions) retire(s *Session, ended func()) {
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
		o.mu.Lock()
		background := !o.closed
		if background {
			o.retiring.Go(end)
		}
		o.mu.Unlock()
		if !background {
			end()
		}
	})
}

// close retires the session in use, and waits until all sessions are closed. From then on retire
// closes a session in the goroutine of its caller.
func (o *openSessions) close() {
	o.mu.Lock()
	o.closed = true
	last := o.last
	o.mu.Unlock()
	o.retire(last, nil)
	o.retiring.Wait()
}
