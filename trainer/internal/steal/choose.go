package steal

// Rank is what a thief knows of a rank. The fields may be out of date: they only say whether it is
// worth it.
type Rank struct {
	Left    int   // unstarted microbatches that may be stolen
	Kept    int   // unstarted microbatches that the rank has put aside
	Under   int   // microbatches in the call under way
	Running int64 // for how long this call runs
	// Pace is the time of a microbatch in the last call that has ended; 0 if unknown.
	Pace int64
}

// pace returns the time of a microbatch, given that the call under way has not ended.
func (r Rank) pace() int64 {
	if r.Under == 0 {
		return r.Pace
	}
	return max(r.Pace, r.Running/int64(r.Under))
}

// rest returns the time until the rank has computed all but n of its microbatches.
func (r Rank) rest(n int) int64 {
	pace := r.pace()
	return max(0, pace*int64(r.Under)-r.Running) + pace*int64(r.Left+r.Kept-n)
}

// after returns what the rank has probably left when some more time has passed, if it keeps its pace.
func (r Rank) after(d int64) Rank {
	r.Running += d
	call := r.Pace * int64(r.Under)
	if call <= 0 || r.Running-d > call { // unknown, or late already
		return r
	}
	ended := r.Running / call
	r.Running -= ended * call
	r.Left = int(max(0, int64(r.Left)-ended*int64(r.Under)))
	return r
}

// Choose returns the victim of thief, a rank that has begun all microbatches but those that it keeps,
// and the number of microbatches to take, at most the given number; 0 if none is worth it. all are
// the ranks of the host; those with nothing left are no victims. latency is the time of a theft. The
// victim is the rank with the longest rest. Choose lets both end as early as possible, but leaves the
// victim half of its queue for other thieves, and steals only if the earlier end is worth half a
// microbatch: a small difference is noise.
func Choose(thief Rank, all []Rank, latency int64, most int) (victim, n int) {
	longest := int64(0)
	for r, v := range all {
		if rest := v.rest(0); v.Left > 0 && rest > longest {
			victim, longest = r, rest
		}
	}
	own := thief.Pace
	if longest == 0 || own <= 0 {
		return 0, 0
	}
	v := all[victim]
	end := func(n int) int64 { return max(own*int64(thief.Kept+n)+latency, v.rest(n)) }
	n = int((longest - own*int64(thief.Kept) - latency) / (own + v.pace()))
	n = max(0, min(n, (v.Left+1)/2, most))
	if n < min((v.Left+1)/2, most) && end(n+1) < end(n) {
		n++
	}
	if n == 0 || longest-end(n) <= own/2+latency {
		return 0, 0
	}
	return victim, n
}
