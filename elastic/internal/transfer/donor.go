package transfer

import (
	"fmt"
	"io"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// Config says how much a donor gives. The zero value is usable.
type Config struct {
	// Chunk is the size of the pieces of a snapshot that are hashed and sent one by one,
	// in bytes; 0 means 1 MiB, and 64 MiB is the most. It must be the same at all donors.
	Chunk int
	// LogBytes bounds the memory for updates; 0 means 32 times that of the state, but at
	// least 16 MiB and at most 256 MiB. It should hold some steps' updates at least, or
	// nobody can be brought up to date by them.
	LogBytes int64
	// Rate is how many bytes a second are handed out at most; 0 means no limit.
	Rate int64
	// Lease is how long memory is kept for a joiner that is not heard of; 0 means 15 s.
	Lease time.Duration
	// Snapshots bounds how many are held at once; 0 means 2, and 16 is the most.
	Snapshots int
	// StateBytes is about how long a snapshot will be, if that is known: its memory is
	// made ready before the step at which it is taken.
	StateBytes int64
	// Replays says that the owner calls Update when Logging returns true.
	Replays bool
}

// withDefaults fills in what is zero.
func (c Config) withDefaults() Config {
	if c.Chunk <= 0 {
		c.Chunk = 1 << 20
	}
	c.Chunk = min(c.Chunk, maxChunk)
	if c.Lease <= 0 {
		c.Lease = 15 * time.Second
	}
	if c.Snapshots <= 0 {
		c.Snapshots = 2
	}
	c.Snapshots = min(c.Snapshots, maxHeld)
	return c
}

// Bounds of the memory for updates where Config does not say it. A joiner that lacks more
// steps than these hold is sooner level by another copy of the state.
const (
	logStates = 32
	logLeast  = 16 << 20
	logMost   = 256 << 20
)

// logBytes returns the bound for a state of so many bytes.
func (c Config) logBytes(state int64) int64 {
	if c.LogBytes > 0 {
		return c.LogBytes
	}
	return min(max(logLeast, logStates*min(state, logMost)), logMost)
}

// never is a step that does not come.
const never = math.MaxInt64

// Donor is a member's side: it holds what joiners are to get. Wanted, Snapshot, Logging,
// Update, Rest and Reset are for the goroutine that owns the state; Serve, Release and
// Close may be called from any.
type Donor struct {
	cfg    Config
	bucket *bucket
	asked  chan struct{}

	// What the owner looks at after each step. Each side writes its own and then reads
	// the other's, so that at least one of them notices.
	at      atomic.Int64 // committed step
	next    atomic.Int64 // lowest step at which a snapshot is wanted
	logging atomic.Bool

	mu        sync.Mutex
	leases    map[string]*lease
	snapshots map[int64]*snapshot
	log       updateLog
	resting   bool
	closed    bool
	stateSize int64
	logSize   int           // bytes of the newest update
	changed   chan struct{} // closed at the next change; nil if nobody waits for one
	expiry    *time.Timer   // runs expire when the first lease may have ended
}

// NewDonor returns a donor whose state is that after a step, 0 at the start of a job.
// The caller closes it.
func NewDonor(step int64, cfg Config) *Donor {
	cfg = cfg.withDefaults()
	d := &Donor{
		cfg: cfg, bucket: &bucket{rate: cfg.Rate}, asked: make(chan struct{}, 1),
		leases: map[string]*lease{}, snapshots: map[int64]*snapshot{},
		log: newUpdateLog(cfg.logBytes(cfg.StateBytes)), stateSize: cfg.StateBytes,
	}
	d.at.Store(step)
	d.next.Store(never)
	return d
}

// Wanted says that a step is committed, and returns whether a snapshot of the state
// after it is to be put in by Snapshot before the state changes. It costs two atomic
// operations unless a joiner has asked for this step or one before.
func (d *Donor) Wanted(step int64) bool {
	d.at.Store(step)
	if step < d.next.Load() {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.refreshLocked() // drops those whose step was passed
	s := d.snapshots[step]
	return s != nil && s.phase == wanted
}

// Snapshot lets save write the state after a step, if it is still wanted. The bytes
// are copied; hashing them is left to the requests. An error is that of save.
func (d *Donor) Snapshot(step int64, save func(io.Writer) error) error {
	d.mu.Lock()
	s := d.snapshots[step]
	if s == nil || s.phase != wanted {
		d.mu.Unlock()
		return nil
	}
	s.phase = writing
	d.refreshLocked()
	d.mu.Unlock()

	err := save(&s.data)

	s.data.fit()
	d.mu.Lock()
	defer d.mu.Unlock()
	if s.phase = ready; err != nil || d.snapshots[step] != s {
		s.phase = void
	}
	if s.phase == ready {
		d.stateSize = s.data.bytes
	}
	d.refreshLocked()
	d.wakeLocked()
	if err != nil {
		return fmt.Errorf("transfer: snapshot of step %d: %w", step, err)
	}
	return nil
}

// Logging reports whether the updates of the steps from now on are wanted. It costs one
// atomic operation.
func (d *Donor) Logging() bool { return d.logging.Load() }

// Update lets write put in what leads from the state after step-1 to that after step,
// if somebody may want it. Steps come in order; one left out voids the log before it,
// and one that was put in before is not written again.
// It follows Wanted of the same step, or comes while the state rests. An error is that
// of write.
func (d *Donor) Update(step int64, write func(io.Writer) error) error {
	d.mu.Lock()
	first := max(d.logSize, 4<<10)
	wanted := d.logging.Load() && !d.closed && step > max(d.floorLocked(), d.log.last())
	d.mu.Unlock()
	if !wanted {
		return nil
	}
	u := &slabs{size: d.cfg.Chunk, first: first}
	if err := write(u); err != nil {
		return fmt.Errorf("transfer: update of step %d: %w", step, err)
	}
	u.fit()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.logSize = int(min(u.bytes, int64(d.cfg.Chunk)))
	d.log.max = d.cfg.logBytes(max(d.stateSize, u.bytes)) // nobody may have asked for the state yet
	d.log.append(step, u)
	d.refreshLocked()
	d.wakeLocked()
	return nil
}

// Rest says whether the state stays as it is until further notice, as between two
// sessions. While it rests joiners may have a snapshot of the committed step itself:
// whenever Asked has a value, the owner looks at Wanted again; and updates are kept for
// members that are behind, though none has asked yet.
func (d *Donor) Rest(resting bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.resting = resting
	d.refreshLocked()
	d.signalLocked()
}

// Asked has a value when a snapshot of the committed step is wanted while the state
// rests.
func (d *Donor) Asked() <-chan struct{} { return d.asked }

// signalLocked fills Asked where it is due.
func (d *Donor) signalLocked() {
	if s := d.snapshots[d.at.Load()]; d.resting && s != nil && s.phase == wanted {
		select {
		case d.asked <- struct{}{}:
		default: // it is full
		}
	}
}

// Reset drops all snapshots and updates, because the state was replaced by one of
// another history, and says which step it is at now.
func (d *Donor) Reset(step int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.at.Store(step)
	d.clearLocked()
}

// Close drops everything and refuses all further requests. It does not wait for those
// that are being answered: their contexts end them.
func (d *Donor) Close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	d.clearLocked()
	if d.expiry != nil {
		d.expiry.Stop()
	}
}

// clearLocked ends all leases, and what was kept for them.
func (d *Donor) clearLocked() {
	clear(d.leases)
	d.snapshots = map[int64]*snapshot{} // one that is being written finds itself missing
	d.log = newUpdateLog(d.cfg.logBytes(d.stateSize))
	d.refreshLocked()
	d.wakeLocked()
}

// Memory returns how many bytes are kept for joiners at present.
func (d *Donor) Memory() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	total := d.log.bytes
	for _, s := range d.snapshots {
		if s.phase == ready { // until then it is the owner's
			total += s.data.memory()
		}
	}
	return total
}

// wakeLocked wakes the requests that wait for a change.
func (d *Donor) wakeLocked() {
	if d.changed != nil {
		close(d.changed)
		d.changed = nil
	}
}

// changesLocked returns a channel that is closed at the next change.
func (d *Donor) changesLocked() <-chan struct{} {
	if d.changed == nil {
		d.changed = make(chan struct{})
	}
	return d.changed
}
