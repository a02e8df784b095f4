package trainer

// callsOf cuts the microbatches that a peer is to compute into as few calls of the model as
// can be, of at most so many each. The last one, which hides most, is as long as can be, and
// the first one if there are others between them.
func callsOf(micros []int, most int) (calls [][]int) {
	for len(micros) > 0 {
		n := min(most, len(micros))
		if rest := len(micros) - most; rest > 0 && rest < most {
			n = rest
		}
		calls, micros = append(calls, micros[:n]), micros[n:]
	}
	return calls
}

// mostOf returns how many microbatches of such a size a call of the model may have.
func mostOf(m Model, samples int, exactly bool) int {
	w, ok := m.(Wide)
	if exactly && ok {
		_, ok = m.(Abreast)
	}
	if !ok {
		return 1
	}
	return max(1, w.MostSamples()/samples)
}

// together returns how many microbatches a call of the model has in the session. Within a host
// there is little to hide, and what is computed one by one stays in the cache.
func (r *runner) together() int {
	if r.links.between() {
		return r.most
	}
	return 1
}
