package transfer

import (
	"context"
	"errors"
	"fmt"
	"io"
)

// batchBytes bounds the updates in one answer, approximately, in bytes.
const batchBytes = 64 << 20

// errClosed is the error of a request to a closed donor.
var errClosed = errors.New("donor is closed")

// Serve answers one request of a newcomer. It returns when the answer is written completely. After
// an error the answer is incomplete, and the caller must abort the stream, so that the newcomer
// does not read a regular end. Serve returns an error when ctx ends.
func (d *Donor) Serve(ctx context.Context, req []byte, w io.Writer) error {
	r, err := decodeRequest(req)
	if err != nil {
		return fmt.Errorf("transfer: serve: %w", err)
	}
	d.mu.Lock()
	closed := d.closed
	d.mu.Unlock()
	if closed {
		return fmt.Errorf("transfer: serve %s to %s: %w", r.Do, r.Who, errClosed)
	}
	// Each written piece renews the lease, so that the lease does not expire during a long answer.
	p := &pacedWriter{ctx: ctx, w: w, bucket: d.bucket, sent: func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.leases.touch(r.Who)
	}}
	if err := d.answer(ctx, r, p); err != nil {
		return fmt.Errorf("transfer: serve %s to %s: %w", r.Do, r.Who, err)
	}
	return nil
}

// answer dispatches a request.
func (d *Donor) answer(ctx context.Context, r request, w io.Writer) error {
	switch r.Do {
	case opWhere:
		return writeLine(w, d.where())
	case opTake:
		return d.serveTake(r, w)
	case opManifest:
		return d.serveManifest(ctx, r, w)
	case opChunks:
		return d.serveChunks(r, w)
	case opKeep:
		return writeLine(w, d.keep(r))
	case opUpdates:
		return d.serveUpdates(ctx, r, w)
	case opEnd:
		return writeLine(w, d.end(r.Who))
	}
	return fmt.Errorf("%w: no such request", errWire)
}

// headerLocked returns the header of an answer, with the present step of the donor.
func (d *Donor) headerLocked(c code) header {
	return header{Code: c, At: d.at.Load(), Resting: d.resting, Replays: d.cfg.Replays, Bytes: d.stateSize}
}

// where returns the committed step and the snapshots of the donor. With Config.Replays it lists
// only snapshots whose later updates are kept.
func (d *Donor) where() header {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.refreshLocked()
	h := d.headerLocked(codeOK)
	for step, s := range d.snapshots.by {
		if s.phase != void && (!d.cfg.Replays || d.log.covers(step, max(step, h.At))) {
			h.Held = append(h.Held, held{Step: step, Behind: d.log.since(step)})
		}
	}
	return h
}

// serveTake orders a snapshot. It allocates memory for the snapshot after it has sent the answer.
func (d *Donor) serveTake(r request, w io.Writer) error {
	d.mu.Lock()
	s, c := d.wantLocked(r.Who, r.Step)
	if s != nil && s.phase != ready {
		c = codePending
	}
	h := d.headerLocked(c)
	d.mu.Unlock()
	// The answer is sent first, as the allocation takes long.
	if err := writeLine(w, h); err != nil || c != codePending {
		return err
	}
	d.prepare(s, h.Bytes)
	return nil
}

// prepare allocates the given number of bytes for a snapshot that the owner has not begun to write.
func (d *Donor) prepare(s *snapshot, bytes int64) {
	start := func() bool { return s.phase == wanted && s.data.spare == nil }
	d.mu.Lock()
	due := start()
	d.mu.Unlock()
	if !due {
		return
	}
	// The allocation takes long, so it happens without the lock. The snapshot may change meanwhile,
	// so its phase is checked again.
	spare := touched(bytes, d.cfg.Chunk)
	d.mu.Lock()
	defer d.mu.Unlock()
	if start() {
		s.data.spare = spare
	}
}

// serveManifest waits for the snapshot and sends its hashes.
func (d *Donor) serveManifest(ctx context.Context, r request, w io.Writer) error {
	var s *snapshot
	var h header
	err := d.changes.await(ctx, r.wait(), func() (bool, error) {
		if d.closed {
			return false, errClosed
		}
		var c code
		// Each call renews the lease, so the lease does not expire during a long wait.
		if s, c = d.wantLocked(r.Who, r.Step); s != nil && s.manifest == nil {
			c = codePending
		}
		h = d.headerLocked(c)
		return c != codePending, nil
	})
	if err != nil {
		return err
	}
	if h.Code != codeOK {
		return writeLine(w, h)
	}
	m := s.manifest
	h.Bytes, h.Chunk, h.Count, h.Sum = m.bytes, m.chunk, len(m.hashes), m.sum
	if err := writeLine(w, h); err != nil {
		return err
	}
	_, err = w.Write(m.encode())
	return err
}

// serveChunks sends chunks of a complete snapshot.
func (d *Donor) serveChunks(r request, w io.Writer) error {
	d.mu.Lock()
	s, h := d.snapshots.by[r.Step], d.headerLocked(codeOK)
	if s == nil || s.phase != ready || d.leases.renew(r.Who) == nil {
		h.Code = codePast
	}
	d.mu.Unlock()
	if h.Code != codeOK {
		return writeLine(w, h)
	}
	// A ready snapshot is immutable, so it is read without the lock.
	pieces := s.data.pieces
	// decodeRequest could not check this, as it does not know the number of chunks.
	if r.First+r.Count > len(pieces) {
		return fmt.Errorf("%w: a request for the chunks from %d on, %d in all, of a snapshot of %d", errWire, r.First, r.Count, len(pieces))
	}
	h.Count = r.Count
	if err := writeLine(w, h); err != nil {
		return err
	}
	for _, p := range pieces[r.First : r.First+r.Count] {
		if _, err := w.Write(p); err != nil {
			return err
		}
	}
	return nil
}

// keep renews the lease of a newcomer that has its snapshot. A later request for updates may
// overtake this request, which therefore must not move the lease back to an earlier step.
func (d *Donor) keep(r request) header {
	d.mu.Lock()
	defer d.mu.Unlock()
	if l := d.leases.by[r.Who]; l != nil && l.snapshot == none {
		r.Step = max(r.Step, l.after)
	}
	return d.headerLocked(d.keepLocked(r))
}

// keepLocked makes or renews the lease of a newcomer that no longer needs a snapshot. It returns
// whether the updates after r.Step are, or will be, in the log.
func (d *Donor) keepLocked(r request) code {
	if !d.cfg.Replays {
		return codeGone
	}
	l := d.leases.renew(r.Who)
	if l == nil {
		return codeFull
	}
	l.snapshot, l.after = none, r.Step
	// The log is switched on before the committed step is read. So covers detects an update that is
	// neither in the log nor about to be appended.
	d.refreshLocked()
	if d.log.covers(r.Step, d.at.Load()) {
		return codeOK
	}
	delete(d.leases.by, r.Who) // the newcomer cannot use later updates
	d.refreshLocked()
	return codeGone
}

// end ends the lease of a newcomer.
func (d *Donor) end(who string) header {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.leases.by, who)
	d.refreshLocked()
	return d.headerLocked(codeOK)
}

// serveUpdates sends the updates after a step. It waits at most r.WaitMS for the first update.
func (d *Donor) serveUpdates(ctx context.Context, r request, w io.Writer) error {
	var h header
	var list []*slabs
	err := d.changes.await(ctx, r.wait(), func() (bool, error) {
		if d.closed {
			return false, errClosed
		}
		// A request for updates also acknowledges all earlier updates.
		c := d.keepLocked(r)
		h, list = d.headerLocked(c), nil
		if c == codeOK {
			list = d.log.after(r.Step, maxBatch, batchBytes)
		}
		return c != codeOK || len(list) > 0, nil
	})
	if err != nil {
		return err
	}
	h.Count = len(list)
	if err := writeLine(w, h); err != nil {
		return err
	}
	for i, u := range list {
		if err := sendUpdate(w, r.Step+1+int64(i), u); err != nil {
			return err
		}
	}
	return nil
}

// sendUpdate writes one update with its frame.
func sendUpdate(w io.Writer, step int64, u *slabs) error {
	if err := writeLine(w, frame{Step: step, Bytes: u.bytes, Sum: u.sum()}); err != nil {
		return err
	}
	for _, p := range u.pieces {
		if _, err := w.Write(p); err != nil {
			return err
		}
	}
	return nil
}

// touched returns memory for the given number of bytes in which each page has been written once
// (pre-faulted), so that filling it later does not wait for page faults.
func touched(bytes int64, size int) [][]byte {
	const page = 4 << 10
	var out [][]byte
	for ; bytes > 0; bytes -= int64(size) {
		b := make([]byte, size)
		for i := 0; i < len(b); i += page {
			b[i] = 0
		}
		out = append(out, b[:0])
	}
	return out
}
