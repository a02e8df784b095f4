package transfer

import (
	"fmt"
	"io"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// Config bounds the memory and the bandwidth of a donor. The zero value is usable.
type Config struct {
	// Chunk is the size of the chunks in which a snapshot is hashed and sent, in bytes; 0 means 1
	// MiB, the maximum is 64 MiB. The size must be the same at all donors.
	Chunk int
	// LogBytes bounds the memory for updates, in bytes; 0 means 32 times the size of the state, but
	// at least 16 MiB and at most 256 MiB. The memory should hold the updates of several steps;
	// otherwise no newcomer can catch up.
	LogBytes int64
	// Rate bounds the sent bytes per second; 0 means no limit.
	Rate int64
	// Lease is the time for which a donor keeps memory for a newcomer that sends no request; 0
	// means 15 s.
	Lease time.Duration
	// Snapshots bounds the number of snapshots held at once; 0 means 2, the maximum is 16.
	Snapshots int
	// Replays means that the owner calls Update when Logging returns true.
	Replays bool
}

// withDefaults returns c with defaults in place of zeros, and within the limits.
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

// The default bounds of the memory for updates. If a newcomer lacks more updates than fit into this
// memory, it catches up sooner by another copy of the state.
const (
	logStates = 32        // multiple of the state's size
	logLeast  = 16 << 20  // lower bound, in bytes
	logMost   = 256 << 20 // upper bound, in bytes
)

// logBytes returns the bound for a state of the given number of bytes.
func (c Config) logBytes(state int64) int64 {
	if c.LogBytes > 0 {
		return c.LogBytes
	}
	return min(max(logLeast, logStates*min(state, logMost)), logMost)
}

// never is a step that no job reaches.
const never = math.MaxInt64

// Donor is the member's side of transfers: it holds the data for newcomers. Wanted, Snapshot,
// Logging, Update, Rest and Reset belong to the goroutine that owns the state. Serve, Release,
// Close and the other methods are safe for concurrent use.
type Donor struct {
	cfg    Config
	bucket *bucket       // limits the rate
	asked  chan struct{} // the channel of Asked

	// The fields that the owner uses after each step, without mu. The owner writes at and then
	// reads next; a request writes next and then reads at. So at least one of the two sees the
	// other's change (as in Dekker's algorithm).
	at      atomic.Int64 // committed step
	next    atomic.Int64 // lowest step at which a snapshot is wanted
	logging atomic.Bool

	mu sync.Mutex
	// changes reports changes of all fields below.
	changes   cond
	leases    leases
	snapshots snapshots
	log       updateLog // updates of recent steps
	resting   bool      // set by Rest
	closed    bool
	stateSize int64 // bytes of the newest snapshot; 0 before the first
	logSize   int   // bytes of the newest update
}

// NewDonor returns a donor whose committed step is step, 0 at the start of a job. The donor holds
// no bytes of the state until a newcomer asks for a snapshot. The caller closes the donor.
func NewDonor(step int64, cfg Config) *Donor {
	cfg = cfg.withDefaults()
	d := &Donor{
		cfg: cfg, bucket: &bucket{rate: cfg.Rate}, asked: make(chan struct{}, 1),
		snapshots: newSnapshots(cfg.Snapshots, cfg.Chunk), log: newUpdateLog(cfg.logBytes(0)),
	}
	d.leases = newLeases(cfg.Lease, d.expire)
	d.changes.mu = &d.mu
	d.at.Store(step)
	d.next.Store(never)
	return d
}

// Wanted tells the donor that a step is committed, and returns whether the owner must call Snapshot
// before the state changes. It costs two atomic operations, unless a newcomer has requested this
// step or an earlier one.
func (d *Donor) Wanted(step int64) bool {
	d.at.Store(step)
	if step < d.next.Load() {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.refreshLocked() // drops requests whose step has passed
	return d.snapshots.wanted(step) != nil
}

// Snapshot calls save, which writes the state after a step, if a snapshot of that step is still
// wanted. The written bytes are copied; another goroutine hashes the copy. Snapshot returns the
// error of save.
func (d *Donor) Snapshot(step int64, save func(io.Writer) error) error {
	d.mu.Lock()
	s := d.snapshots.wanted(step)
	if s == nil {
		d.mu.Unlock()
		return nil
	}
	s.phase = writing
	d.refreshLocked()
	d.mu.Unlock()

	// The lock is not held while the state is written, so that requests for other data are
	// answered.
	err := save(&s.data)

	s.data.fit()
	d.mu.Lock()
	defer d.mu.Unlock()
	s.phase = ready
	if err != nil || d.snapshots.by[step] != s {
		s.phase = void
	}
	if s.phase == ready {
		d.stateSize = s.data.bytes
		go d.hash(s)
	}
	d.refreshLocked()
	d.changes.wakeLocked()
	if err != nil {
		return fmt.Errorf("transfer: snapshot of step %d: %w", step, err)
	}
	return nil
}

// hash computes the manifest of a complete snapshot. A newcomer waits for the manifest with one
// request after the other, so hashing may take longer than a newcomer's patience.
func (d *Donor) hash(s *snapshot) {
	m := newManifest(s.step, s.data.bytes, s.data.size, s.data.hashes())
	d.mu.Lock()
	defer d.mu.Unlock()
	s.manifest = m
	d.changes.wakeLocked()
}

// Logging reports whether the updates of future steps are wanted. It costs one atomic operation.
func (d *Donor) Logging() bool { return d.logging.Load() }

// Update calls the function write, which writes the difference between the state after step-1 and
// the state after step, if a newcomer may need it. The owner calls Update in the order of steps. A
// gap clears the log; an update that is in the log already is not written again. Update is called
// after Wanted for the same step, or while the state rests. It returns the error of write.
func (d *Donor) Update(step int64, write func(io.Writer) error) error {
	d.mu.Lock()
	// The first piece has the size of the last update, so small updates take little memory.
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
	d.log.max = d.cfg.logBytes(max(d.stateSize, u.bytes)) // stateSize is 0 before the first snapshot
	d.log.append(step, u)
	d.refreshLocked()
	d.changes.wakeLocked()
	return nil
}

// Rest tells the donor whether the state stays unchanged until the next call of Rest, as between
// two sessions. While the state rests newcomers may get a snapshot of the committed step itself:
// whenever Asked has a value, the owner calls Wanted again. The donor also keeps updates for
// members that lag behind, even before any of them has sent a request.
func (d *Donor) Rest(resting bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.resting = resting
	d.refreshLocked()
	d.signalLocked()
}

// Asked returns a channel that has a value when a snapshot of the committed step is wanted while
// the state rests.
func (d *Donor) Asked() <-chan struct{} { return d.asked }

// signalLocked sends to the channel of Asked if a snapshot is wanted now.
func (d *Donor) signalLocked() {
	if d.resting && d.snapshots.wanted(d.at.Load()) != nil {
		select {
		case d.asked <- struct{}{}:
		default: // the channel has a value already
		}
	}
}

// Reset drops all snapshots and updates, because the state was replaced by a state of another
// history, and sets the present step.
func (d *Donor) Reset(step int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.at.Store(step)
	d.clearLocked()
}

// Close drops all data and refuses further requests. It does not wait for requests in progress,
// which end with their contexts.
func (d *Donor) Close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	d.clearLocked()
	d.leases.stop()
}

// clearLocked ends all leases and drops their data.
func (d *Donor) clearLocked() {
	clear(d.leases.by)
	clear(d.snapshots.by) // Snapshot drops a snapshot that is no longer in this map
	d.log = newUpdateLog(d.cfg.logBytes(d.stateSize))
	d.refreshLocked()
	d.changes.wakeLocked()
}

// expire ends the leases whose time is over. It runs in the timer's goroutine and does not block.
func (d *Donor) expire() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.leases.end(time.Now())
	d.refreshLocked()
	d.changes.wakeLocked()
}

// Release drops the data for a newcomer that needs no more data: the newcomer was admitted, or is
// known to be dead.
func (d *Donor) Release(who string) { d.end(who) }

// wantLocked returns the snapshot of a step for a newcomer, and orders the snapshot if it does not
// exist yet. If it returns no snapshot the code is the reason.
func (d *Donor) wantLocked(who string, step int64) (*snapshot, code) {
	d.refreshLocked()
	if d.snapshots.by[step] == nil {
		at := d.at.Load()
		// The state is already after the step, or may leave the step at any moment.
		if step < at || step == at && !d.resting {
			return nil, codePast
		}
		if d.snapshots.full() {
			return nil, codeFull
		}
	}
	l := d.leases.renew(who)
	if l == nil {
		return nil, codeFull
	}
	l.snapshot, l.after = step, step
	d.snapshots.order(step)
	// The owner may have committed a step since at was read. Either the owner has seen the order in
	// time, or this refresh finds that the step has passed. If the state is exactly at the step
	// both are possible, and the next call of Wanted decides.
	d.refreshLocked()
	s := d.snapshots.by[step]
	if s == nil {
		return nil, codePast
	}
	d.signalLocked()
	return s, codeOK
}

// refreshLocked derives all other fields from the leases and the committed step. It is called after
// each change of a lease or of the committed step.
func (d *Donor) refreshLocked() {
	d.next.Store(d.snapshots.trim(d.leases.needed()))
	// The committed step is read after next was stored, see Donor.at.
	if d.snapshots.miss(d.at.Load()) {
		d.changes.wakeLocked()
	}
	floor := d.floorLocked()
	on := d.cfg.Replays && !d.closed && floor < never
	if on {
		d.log.trim(floor)
	} else {
		d.log = newUpdateLog(d.cfg.logBytes(d.stateSize))
	}
	d.logging.Store(on)
}

// floorLocked returns the step up to which no updates are needed. The result is the constant never
// if no lease needs updates. It is -1 while the state rests, as a member that lags behind may still
// ask for updates.
func (d *Donor) floorLocked() int64 {
	if d.resting {
		return none
	}
	return d.leases.floor(d.snapshots.begun)
}

// Kept returns copies of the updates of all steps after the given step, up to the committed step;
// nil if one of these updates is not kept.
func (d *Donor) Kept(after int64) [][]byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.log.copies(after, d.at.Load())
}

// KeptAfter returns the lowest step after which all updates are kept; the committed step if no
// updates are kept.
func (d *Donor) KeptAfter() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.log.lowest(d.at.Load())
}
