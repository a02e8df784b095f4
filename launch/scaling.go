package launch

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// scale changes the number of peers, in the job or on a host, as a user has asked, and answers the
// request. A new host is connected first, while the job goes on.
func (r *runner) scale(from int, o scaleOrder) {
	hosts := r.procs.hosts
	text, err := "", r.scalable()
	switch {
	case err != nil:
	case o.Host == "":
		text, err = r.peers.rescale(o.Peers)
	case hosts == nil:
		err = fmt.Errorf("the job was not started on hosts: start it by elrun -H, or have others join by elrun ticket")
	case hosts.find(o.Host) != nil:
		text, err = r.peers.rescaleHost(hosts.find(o.Host), o.Peers)
	case o.Peers == 0:
		err = fmt.Errorf("host %s has no peers of this job: name a host as -H did", o.Host)
	case r.peers.listen() == listenAuto || r.peers.listen() == listenLocal:
		err = fmt.Errorf("the peers listen on loopback only, where no other host reaches them: open the job by elrun ticket, or start it with --listen all")
	default:
		if err = hosts.add(o, from); err == nil {
			return // hostConnected will answer
		}
	}
	r.answerScale(from, o.Seq, text, err)
}

// answerScale sends the result of a scale request to peer to, which received the request on its
// control socket. seq is the request's sequence number at that peer.
func (r *runner) answerScale(to, seq int, text string, err error) {
	result := scaleResult{Seq: seq, Text: text}
	if err != nil {
		result.Error = err.Error()
	}
	r.procs.deliver([]peerMessage{{to, message{Scaled: &result}}})
}

// scalable returns an error that explains why the number of peers cannot be changed now, or nil.
func (r *runner) scalable() error {
	switch {
	case r.outcome.signal != 0:
		return fmt.Errorf("elrun was interrupted: the job is ending")
	case r.outcome.stopping:
		return fmt.Errorf("the job is being stopped")
	case r.membership.done:
		return fmt.Errorf("the job has finished")
	case !r.rendezvous.started:
		return fmt.Errorf("not all peers have joined yet: try again later")
	}
	return nil
}

// hostConnected handles the result of the connection to an added host. It calls scalable again,
// because the job may have ended or been interrupted meanwhile. If the user has got an answer
// before (answerOverdue), only the launcher's line tells the result.
func (r *runner) hostConnected(a hostConnect) {
	// Add the host even if the user has an answer already.
	waits := r.procs.hosts.addConnected(a)
	text, err := "", a.err
	if err == nil {
		a.host.run(r.report.console.say)
		err = r.scalable()
	}
	if err == nil {
		text, err = r.peers.rescaleHost(a.host, a.order.Peers)
	}
	if err != nil {
		r.report.printf("scale: %v", err)
	}
	if waits {
		r.answerScale(a.from, a.order.Seq, text, err)
	}
}

// answerOverdue answers orders whose hosts take long to connect.
func (r *runner) answerOverdue(now time.Time) {
	for _, a := range r.procs.hosts.overdue(now) {
		r.answerScale(a.from, a.order.Seq, fmt.Sprintf("host %s is still being connected; the elrun that runs the job will say how that ends", a.order.Host), nil)
	}
}

// scalePlan has the local peers to start and the local peers to ask to leave.
type scalePlan struct{ start, leave []int }

// planScale returns the plan that changes the number of remaining peers to n. New peers get the
// lowest free indices. Peers that still wait to join (waiting) are the first to leave, because the
// members have the state of the job; of the members the highest indices leave. leaving lists the
// running peers that have been asked to leave already, and taken lists the indices in use on other
// hosts. planScale changes none of the lists.
func planScale(running, leaving, waiting, taken []int, n int) (scalePlan, error) {
	if n < 0 || n > maxPeers {
		return scalePlan{}, fmt.Errorf("%d peers: want at most %d", n, maxPeers)
	}
	var stay []int
	for _, i := range running {
		if !slices.Contains(leaving, i) {
			stay = append(stay, i)
		}
	}
	slices.Sort(stay)
	slices.SortStableFunc(stay, func(a, b int) int {
		return cmp.Compare(leaveOrder(waiting, a), leaveOrder(waiting, b))
	})
	// The lowest free indices start.
	var p scalePlan
	for i := 0; len(stay)+len(p.start) < n; i++ {
		if !slices.Contains(running, i) && !slices.Contains(taken, i) {
			p.start = append(p.start, i)
		}
	}
	// The last peers of stay leave: waiting peers, then the highest indices.
	for len(stay) > n {
		last := len(stay) - 1
		p.leave = append(p.leave, stay[last])
		stay = stay[:last]
	}
	return p, nil
}

// leaveOrder returns 1 for peers that wait to join, which leave first, and 0 for members.
func leaveOrder(waiting []int, index int) int {
	if slices.Contains(waiting, index) {
		return 1
	}
	return 0
}

// String describes the plan, as in "starting peers 2, 3".
func (p scalePlan) String() string {
	switch {
	case len(p.start) > 0:
		return "starting " + listPeers(p.start)
	case len(p.leave) > 0:
		return "asking " + listPeers(p.leave) + " to leave"
	}
	return "nothing to do"
}

// listPeers describes a list of local indices.
func listPeers(indices []int) string {
	// A line has room for about this number of indices.
	const shown = 8
	if len(indices) == 1 {
		return fmt.Sprintf("peer %d", indices[0])
	}
	var words []string
	for _, i := range indices[:min(shown, len(indices))] {
		words = append(words, fmt.Sprint(i))
	}
	if n := len(indices) - shown; n > 0 {
		words = append(words, fmt.Sprintf("%d more", n))
	}
	return "peers " + strings.Join(words, ", ")
}
