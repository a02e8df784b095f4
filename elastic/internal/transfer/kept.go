package transfer

import "bytes"

// Kept returns copies of the updates of all steps after the given one, up to the committed step;
// nil if one of them is not kept.
func (d *Donor) Kept(after int64) [][]byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := d.at.Load() - after
	if n < 1 || after < d.log.base || d.log.last() < d.at.Load() {
		return nil
	}
	out := make([][]byte, 0, n)
	for _, u := range d.log.entries[after-d.log.base:][:n] {
		out = append(out, bytes.Join(u.pieces, nil))
	}
	return out
}

// KeptAfter returns the lowest step after which all updates are kept; the committed step if none
// are.
func (d *Donor) KeptAfter() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	at := d.at.Load()
	if d.log.base < 0 || d.log.last() < at {
		return at
	}
	return min(d.log.base, at)
}
