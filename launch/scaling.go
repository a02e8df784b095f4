package launch

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"
)

// scale changes the number of peers, in the job or on a host, as a user has asked, and answers the
// request. A new host is connected first, while the job goes on.
func (r *runner) scale(from int, o scaleOrder) {
	text, err := "", r.scalable()
	switch {
	case err != nil:
	case o.Host == "":
		text, err = r.rescale(o.Peers)
	case r.hosts == nil:
		err = fmt.Errorf("the job was not started on hosts: start it by elrun -H, or have others join by elrun ticket")
	case r.hosts.find(o.Host) != nil:
		text, err = r.rescaleHost(r.hosts.find(o.Host), o.Peers)
	case o.Peers == 0:
		err = fmt.Errorf("host %s has no peers of this job: name a host as -H did", o.Host)
	case r.listen() == listenAuto || r.listen() == listenLocal:
		err = fmt.Errorf("the peers listen on their own host alone: open the job by elrun ticket, or start it with --listen all")
	default:
		if err = r.hosts.add(o, from); err == nil {
			return // hostConnected will answer
		}
	}
	r.answerScale(from, o.Seq, text, err)
}

// answerScale sends the result of a scale request to the peer with index to.
func (r *runner) answerScale(to, seq int, text string, err error) {
	result := scaleResult{Seq: seq, Text: text}
	if err != nil {
		result.Error = err.Error()
	}
	r.deliver([]peerMessage{{to, message{Scaled: &result}}})
}

// scalable returns an error that explains why the number of peers cannot be changed now, or nil.
func (r *runner) scalable() error {
	switch {
	case r.outcome.signal != 0:
		return fmt.Errorf("elrun was interrupted: the job is ending")
	case r.membership.done:
		return fmt.Errorf("the job has finished")
	case !r.rendezvous.started:
		return fmt.Errorf("not all peers have joined yet")
	}
	return nil
}

// hostConnected handles the result of the connection to an added host.
func (r *runner) hostConnected(a hostConnect) {
	waits := r.hosts.addConnected(a)
	text, err := "", a.err
	if err == nil {
		a.host.run(r.console.say)
		err = r.scalable()
	}
	if err == nil {
		text, err = r.rescaleHost(a.host, a.order.Peers)
	}
	if err != nil {
		r.printf("scale: %v", err)
	}
	if waits {
		r.answerScale(a.from, a.order.Seq, text, err)
	}
}

// answerOverdue answers orders whose hosts take long to connect.
func (r *runner) answerOverdue(now time.Time) {
	for _, a := range r.hosts.overdue(now) {
		r.answerScale(a.from, a.order.Seq, fmt.Sprintf("host %s is still being connected; the elrun that runs the job will say how that ends", a.order.Host), nil)
	}
}

// rescale changes the number of this launcher's peers to n and returns a description.
func (r *runner) rescale(n int) (string, error) {
	if n < 1 {
		return "", fmt.Errorf("%d peers: want 1 to %d", n, maxPeers)
	}
	leaving := r.leaving()
	before := len(r.children) - len(leaving)
	plan, err := planScale(r.running(), leaving, r.waiting(), nil, n)
	if err != nil {
		return "", err
	}
	r.pendingRestarts = nil // pending restarts are dropped: the plan counts them as new peers
	return r.follow(plan, n, plural(before, "local peer becomes", "local peers become"), n)
}

// rescaleHost changes the number of peers on a host to n and returns a description.
func (r *runner) rescaleHost(h *remoteHost, n int) (string, error) {
	var here []int
	for _, i := range r.running() {
		if r.children[i].host == h.Name {
			here = append(here, i)
		}
	}
	leaving := r.leaving()
	before := 0
	for _, i := range here {
		if !slices.Contains(leaving, i) {
			before++
		}
	}
	// Peers on the other hosts stay as they are.
	all := len(r.children) - len(leaving) - before + n
	if all < 1 || all > maxPeers {
		return "", fmt.Errorf("%d peers on all hosts: want 1 to %d; elrun stop ends the job", all, maxPeers)
	}
	plan, err := planScale(here, leaving, r.waiting(), r.running(), n)
	if err != nil {
		return "", err
	}
	// Set the slots to the requested number, so that later peers are placed accordingly. Pending
	// restarts on this host are part of the new number.
	h.Slots = max(1, n)
	r.pendingRestarts = slices.DeleteFunc(r.pendingRestarts, func(b pendingRestart) bool { return r.hosts.assignedHost(b.index) == h })
	for _, i := range plan.start {
		r.hosts.assignTo(i, h)
	}
	return r.follow(plan, all, "host "+h.Name+": "+plural(before, "peer becomes", "peers become"), n)
}

// follow carries out a plan. all is the number of peers after it. It returns a line about the plan,
// made of begin and n.
func (r *runner) follow(plan scalePlan, all int, begin string, n int) (string, error) {
	for _, i := range plan.start {
		if err := r.startLate(i, all, nil); err != nil {
			return "", fmt.Errorf("start peer %d: %w", i, err)
		}
	}
	for _, i := range plan.leave {
		r.children[i].asked = time.Now()
		r.children[i].ask(syscall.SIGTERM)
	}
	r.o.Peers = all
	text := fmt.Sprintf("%s %d: %v", begin, n, plan)
	r.printf("scale: %s", text)
	return text, nil
}

// leaving returns the indices of the peers that have been asked to leave.
func (r *runner) leaving() []int {
	var out []int
	for i, c := range r.children {
		if !c.asked.IsZero() {
			out = append(out, i)
		}
	}
	return out
}

// waiting returns the indices of the running peers that are in no view yet.
func (r *runner) waiting() []int {
	return slices.DeleteFunc(r.running(), func(i int) bool {
		_, waits := r.joinQueue.waiting[i]
		return !waits && r.rendezvous.shortID(i) != ""
	})
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

// leaveOrder returns 1 for peers that wait to join, which leave first, and 0 for the others.
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
