package transfer

import "bytes"

// Kept returns the updates that are kept of the steps after one up to the committed
// step, or nil if one of them is missing. They are copies.
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

// KeptAfter returns the lowest step after which all updates are kept; the committed
// step if there are none.
func (d *Donor) KeptAfter() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	at := d.at.Load()
	if d.log.base < 0 || d.log.last() < at {
		return at
	}
	return min(d.log.base, at)
}
