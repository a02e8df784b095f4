package run

import (
	"fmt"
	"time"

	"github.com/elrun/elrun/internal/printable"
	"github.com/elrun/elrun/launch/internal/hosts"
	"github.com/elrun/elrun/launch/internal/job"
	"github.com/elrun/elrun/launch/internal/say"
	"github.com/elrun/elrun/launch/internal/wire"
	"github.com/elrun/elrun/launch/spec"
)

// scale changes the number of peers, in the job or on a host, as a user has asked, and answers the
// request. A new host is connected first, while the job goes on.
func (r *runner) scale(from int, o wire.ScaleOrder) {
	hosts := r.procs.hosts
	text, err := "", error(nil)
	switch {
	case o.Host == "":
		text, err = r.peers.rescale(o.Peers)
	case hosts == nil:
		err = fmt.Errorf("the job was not started on hosts: start it by elrun -H, or have others join by elrun ticket")
	case hosts.Find(o.Host) != nil:
		text, err = r.peers.rescaleHost(hosts.Find(o.Host), o.Peers)
	case o.Peers == 0:
		err = fmt.Errorf("host %s has no peers of this job: name a host as -H did", o.Host)
	case r.peers.listen() == spec.ListenAuto || r.peers.listen() == spec.ListenLocal:
		err = fmt.Errorf("the peers listen on loopback only, where no other host reaches them: open the job by elrun ticket, or start it with --listen all")
	default:
		if err = hosts.Add(o, from); err == nil {
			return // hostConnected will answer
		}
	}
	r.answerScale(from, o.Seq, text, err)
}

// answerScale sends the result of a scale request to peer to, which received the request on its
// control socket. seq is the request's sequence number at that peer.
func (r *runner) answerScale(to, seq int, text string, err error) {
	result := wire.ScaleResult{Seq: seq, Text: text}
	if err != nil {
		result.Error = err.Error()
	}
	r.peers.send(to, wire.Message{Scaled: &result})
}

// hostConnected handles the result of the connection to an added host. If the user has got an answer
// before (answerOverdue), only the launcher's line tells the result.
func (r *runner) hostConnected(a hosts.Connect) {
	// Add the host even if the user has an answer already.
	waits := r.procs.hosts.AddConnected(a)
	text, err := "", a.Err
	if err == nil {
		a.Host.Run(r.report.Console.Say)
		text, err = r.peers.rescaleHost(a.Host, a.Order.Peers)
	}
	if err != nil {
		r.report.Printf("scale: %v", err)
	}
	if waits {
		r.answerScale(a.From, a.Order.Seq, text, err)
	}
}

// answerOverdue answers orders whose hosts take long to connect.
func (r *runner) answerOverdue(now time.Time) {
	for _, a := range r.procs.hosts.Overdue(now) {
		r.answerScale(a.From, a.Order.Seq, fmt.Sprintf("host %s is still being connected; the elrun that runs the job will say how that ends", a.Order.Host), nil)
	}
}

// rescale changes the number of peers to n and returns a description.
func (s *supervisor) rescale(n int) (string, error) {
	if n < 1 || n > spec.MaxPeers {
		return "", fmt.Errorf("%d peers: want 1 to %d", n, spec.MaxPeers)
	}
	before := len(s.procs.staying(""))
	return s.scale(job.Scale{N: n}, n, printable.Plural(before, "local peer becomes", "local peers become"))
}

// rescaleHost changes the number of peers on a host to n and returns a description. Peers on the other
// hosts stay as they are.
func (s *supervisor) rescaleHost(h *hosts.Host, n int) (string, error) {
	before := len(s.procs.staying(h.Name))
	all := len(s.procs.staying("")) - before + n
	if n < 0 || all < 1 || all > spec.MaxPeers {
		return "", fmt.Errorf("%d peers on all hosts: want 1 to %d; elrun stop ends the job", all, spec.MaxPeers)
	}
	// Set the slots to the requested number, so that later peers are placed accordingly.
	h.Slots = max(1, n)
	s.placing = h
	defer func() { s.placing = nil }()
	return s.scale(job.Scale{N: n, OnHost: true, Seats: s.procs.seatsOn(h)}, all, "host "+h.Name+": "+printable.Plural(before, "peer becomes", "peers become"))
}

// scale asks the job for another number of peers. all is the number of peers on all hosts after it. It
// returns a line about what follows, which starts with begin.
func (s *supervisor) scale(to job.Scale, all int, begin string) (string, error) {
	before := s.want
	s.want, s.unstarted = all, nil
	var plan scalePlan
	for _, o := range s.record(to) {
		switch o := o.(type) {
		case job.Unscaled:
			s.want = before
			return "", s.unscalable(o.Phase)
		case job.Start:
			plan.start = append(plan.start, o.Seat)
		case job.Ask:
			plan.leave = append(plan.leave, o.Seat)
		}
	}
	if s.unstarted != nil {
		return "", s.unstarted
	}
	text := fmt.Sprintf("%s %d: %v", begin, to.N, plan)
	s.report.Printf("scale: %s", text)
	return text, nil
}

// unscalable explains why the number of peers cannot be changed in a phase of the job.
func (s *supervisor) unscalable(p job.Phase) error {
	switch {
	case s.outcome.signal != 0:
		return fmt.Errorf("elrun was interrupted: the job is ending")
	case s.outcome.stopping:
		return fmt.Errorf("the job is being stopped")
	case p == job.Forming:
		return fmt.Errorf("not all peers have joined yet: try again later")
	case p == job.Finished:
		return fmt.Errorf("the job has finished")
	}
	return fmt.Errorf("the job is ending")
}

// scalePlan has the local peers that start and those that are asked to leave.
type scalePlan struct{ start, leave []int }

// String describes the plan, as in "starting peers 2, 3".
func (s scalePlan) String() string {
	switch {
	case len(s.start) > 0:
		return "starting " + say.ListPeers(s.start)
	case len(s.leave) > 0:
		return "asking " + say.ListPeers(s.leave) + " to leave"
	}
	return "nothing to do"
}
