package launch

// relay is the receiver of a peer in an agent: it writes frames to the launcher. It ignores write
// errors, because a write error means that the launcher is gone.
type relay struct {
	a     *hostAgent
	index int
	p     *local // set before watch is called
}

// output implements receiver.
func (r *relay) output(t target, part []byte) {
	if len(part) > 0 {
		_ = r.a.out.write(frame{Index: r.index, report: report{Output: &outputPart{To: t, Data: part}}})
	}
}

// outputEnd implements receiver.
func (r *relay) outputEnd(t target) {
	_ = r.a.out.write(frame{Index: r.index, report: report{Output: &outputPart{To: t, End: true}}})
}

// message implements receiver.
func (r *relay) message(m message, pid int) {
	if m.Hello != nil {
		r.a.mu.Lock()
		r.p.setPID(pid)
		r.a.mu.Unlock()
	}
	_ = r.a.out.write(frame{Index: r.index, Message: &m, PID: pid})
}

// protocolError implements receiver.
func (r *relay) protocolError(err error) {
	_ = r.a.out.write(frame{Index: r.index, report: report{Mistake: err.Error()}})
}

// halted implements receiver. It does nothing: a local process reports this in the result of look.
func (r *relay) halted(haltReport) {}

// ended implements receiver.
func (r *relay) ended(e Exit) {
	r.a.mu.Lock()
	if r.a.peers[r.index] == r.p {
		delete(r.a.peers, r.index) // no more signals: its process group ID may be reused
	}
	e.PID, e.by = r.p.pid(), r.a.asked
	r.a.mu.Unlock()
	_ = r.a.out.write(frame{Index: r.index, report: report{Exit: e.report()}})
}
