package transfer

import "time"

// maxLeases bounds the number of newcomers of one donor.
const maxLeases = 256

// none is the value of lease.snapshot for a newcomer that needs no snapshot.
const none = -1

// lease is a newcomer's claim to a donor's memory. It expires unless a request renews it.
type lease struct {
	snapshot int64     // step of the needed snapshot, or none
	after    int64     // the updates after this step are needed
	until    time.Time // end, unless renewed
}

// phase is the stage of a snapshot.
type phase uint8

const (
	wanted  phase = iota // its step has not come yet
	writing              // the owner writes the state into it
	ready                // complete
	void                 // saving failed, or it was dropped meanwhile
)

// snapshot is the state after one step. From the phase ready on data is immutable.
type snapshot struct {
	step     int64
	phase    phase
	data     slabs
	manifest func() *manifest // hashes data once, in the goroutine of a request
}

// leaseLocked makes or renews the lease of a newcomer. It returns nil if there are too many.
func (d *Donor) leaseLocked(who string) *lease {
	l := d.leases[who]
	if l == nil {
		if d.closed || len(d.leases) >= maxLeases {
			return nil
		}
		l = &lease{snapshot: none, after: never}
		d.leases[who] = l
	}
	l.until = time.Now().Add(d.cfg.Lease)
	if d.expiry == nil {
		d.expiry = time.AfterFunc(d.cfg.Lease, d.expire)
	} else if len(d.leases) == 1 {
		d.expiry.Reset(d.cfg.Lease)
	}
	return l
}

// touch renews a lease, if it still exists.
func (d *Donor) touch(who string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if l := d.leases[who]; l != nil {
		l.until = time.Now().Add(d.cfg.Lease)
	}
}

// expire ends the leases whose time is over. It runs in the timer's goroutine and does not block.
func (d *Donor) expire() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return
	}
	now := time.Now()
	var first time.Time
	for who, l := range d.leases {
		if !l.until.After(now) {
			delete(d.leases, who)
		} else if first.IsZero() || l.until.Before(first) {
			first = l.until
		}
	}
	if !first.IsZero() {
		d.expiry.Reset(first.Sub(now))
	}
	d.refreshLocked()
	d.wakeLocked()
}

// Release drops the data for a newcomer that needs nothing more: it was admitted, or is known to be
// dead.
func (d *Donor) Release(who string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.leases, who)
	d.refreshLocked()
}

// wantLocked returns the snapshot of a step for a newcomer, and orders it if it does not exist yet.
// Without a snapshot the code is the reason.
func (d *Donor) wantLocked(who string, step int64) (*snapshot, code) {
	d.refreshLocked()
	s := d.snapshots[step]
	if s == nil {
		at := d.at.Load()
		// The state has passed the step, or may leave it at any moment.
		if step < at || step == at && !d.resting {
			return nil, codePast
		}
		if len(d.snapshots) >= d.cfg.Snapshots {
			return nil, codeFull
		}
	}
	l := d.leaseLocked(who)
	if l == nil {
		return nil, codeFull
	}
	l.snapshot, l.after = step, step
	if s == nil {
		s = &snapshot{step: step, data: slabs{size: d.cfg.Chunk}}
		d.snapshots[step] = s
	}
	// The state may have moved on meanwhile. Either the owner has seen the order in time, or this
	// refresh finds the step passed. If the state is exactly at the step both are possible; the
	// next step decides.
	d.refreshLocked()
	if d.snapshots[step] == nil {
		return nil, codePast
	}
	d.signalLocked()
	return s, codeOK
}

// refreshLocked derives all other fields from the leases and the committed step. It is called after
// each change of one of them.
func (d *Donor) refreshLocked() {
	needed := map[int64]bool{}
	for _, l := range d.leases {
		needed[l.snapshot] = true
	}
	next := int64(never)
	for step, s := range d.snapshots {
		if !needed[step] && s.phase != writing || s.phase == void {
			delete(d.snapshots, step)
		} else if s.phase == wanted {
			next = min(next, step)
		}
	}
	d.next.Store(next)
	at := d.at.Load() // after next was stored: see Donor
	for step, s := range d.snapshots {
		if s.phase == wanted && step < at {
			delete(d.snapshots, step)
			d.wakeLocked()
		}
	}
	d.refreshLogLocked()
}

// refreshLogLocked switches the log on or off, and drops updates that no newcomer needs.
func (d *Donor) refreshLogLocked() {
	on := d.cfg.Replays && !d.closed && (d.resting || d.floorLocked() < never)
	if !on {
		d.log = newUpdateLog(d.cfg.logBytes(d.stateSize))
	} else if floor := d.floorLocked(); floor < never {
		d.log.trim(floor)
	}
	d.logging.Store(on)
}

// floorLocked returns the step up to which no updates are needed. It is the constant never if there
// are no leases, and none (-1) while the state rests, as a newcomer may still come.
func (d *Donor) floorLocked() int64 {
	if d.resting {
		return none
	}
	floor := int64(never)
	for _, l := range d.leases {
		s := d.snapshots[l.snapshot]
		if l.snapshot == none || s != nil && s.phase != wanted {
			floor = min(floor, l.after)
		}
	}
	return floor
}
