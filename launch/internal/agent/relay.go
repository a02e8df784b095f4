package agent

import (
	"github.com/elrun/elrun/collective/flight"
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/launch/internal/proc"
	"github.com/elrun/elrun/launch/internal/wire"
	"github.com/elrun/elrun/launch/spec"
)

// relay is the receiver of a peer in an agent: it writes messages to the launcher. It ignores write
// errors, because a write error means that the launcher is gone.
type relay struct {
	a     *hostAgent
	index int
	p     *proc.Local // set before watch is called
}

// Output implements proc.Receiver.
func (r *relay) Output(t wire.Target, part []byte) {
	if len(part) > 0 {
		_ = r.a.out.Write(wire.Message{To: r.index, Report: wire.Report{Output: &wire.OutputPart{To: t, Data: part}}})
	}
}

// OutputEnd implements proc.Receiver.
func (r *relay) OutputEnd(t wire.Target) {
	_ = r.a.out.Write(wire.Message{To: r.index, Report: wire.Report{Output: &wire.OutputPart{To: t, End: true}}})
}

// Message implements proc.Receiver.
func (r *relay) Message(m wire.Message, pid int) {
	if m.Hello != nil {
		r.a.mu.Lock()
		r.p.SetPID(pid)
		r.a.mu.Unlock()
	}
	m.To, m.PID = r.index, pid
	_ = r.a.out.Write(m)
}

// ProtocolError implements proc.Receiver.
func (r *relay) ProtocolError(err error) {
	_ = r.a.out.Write(wire.Message{To: r.index, Report: wire.Report{Mistake: err.Error()}})
}

// Halted implements proc.Receiver. It does nothing: a local process reports this in the result of look.
func (r *relay) Halted(wire.HaltReport) {}

// Ended implements proc.Receiver.
func (r *relay) Ended(e spec.Exit) {
	r.a.mu.Lock()
	if r.a.peers[r.index] == r.p {
		delete(r.a.peers, r.index) // no more signals: its process group ID may be reused
	}
	e.PID, e.By = r.p.PID(), r.a.asked
	r.a.mu.Unlock()
	_ = r.a.out.Write(wire.Message{To: r.index, Report: wire.Report{Exit: wire.ReportOf(e)}})
}

// Dying implements proc.Receiver: the agent passes the end of the program on.
func (r *relay) Dying(id elastic.ID) {
	_ = r.a.out.Write(wire.Message{To: r.index, Report: wire.Report{Dying: id}})
}

// Remains implements proc.Receiver.
func (r *relay) Remains(record flight.Record) {
	_ = r.a.out.Write(wire.Message{To: r.index, Report: wire.Report{Remains: &record}})
}
