package trainer

// callsOf cuts the microbatches that a peer is to compute into as few calls of the model as
// can be, of at most so many each. None has more than one more than another.
func callsOf(micros []int, most int) (calls [][]int) {
	n := ceilDiv(len(micros), most)
	for i := range n {
		calls = append(calls, micros[i*len(micros)/n:(i+1)*len(micros)/n])
	}
	return calls
}

// mostOf returns how many microbatches of such a size a call of the model may have.
func mostOf(m Model, samples int) int {
	if w, ok := m.(Wide); ok {
		return max(1, w.MostSamples()/samples)
	}
	return 1
}

// together returns how many microbatches a call of the model has in the session. Within a host
// there is little to hide, and samples that are computed one by one stay in the cache.
func (r *runner) together() int {
	if r.cfg.Exact || !r.links.between() {
		return 1
	}
	return r.most
}
