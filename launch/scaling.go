package launch

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"
)

// scale brings the number of peers, or of those on a host, to what a user asked for, and
// answers. A host that is not of the job yet is connected first, while the job goes on.
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
			return // arrived answers
		}
	}
	r.answerScale(from, o.Seq, text, err)
}

// answerScale answers a request of the peer with that index.
func (r *runner) answerScale(to, seq int, text string, err error) {
	result := scaleResult{Seq: seq, Text: text}
	if err != nil {
		result.Error = err.Error()
	}
	r.deliver([]letter{{to, message{Scaled: &result}}})
}

// scalable reports why the number of peers cannot be changed now.
func (r *runner) scalable() error {
	switch {
	case r.out.signal != 0:
		return fmt.Errorf("elrun was interrupted: the job is ending")
	case r.changes.done:
		return fmt.Errorf("the job has finished")
	case !r.meet.started:
		return fmt.Errorf("not all peers have joined yet")
	}
	return nil
}

// arrived handles that a host which was added is connected, or is not.
func (r *runner) arrived(a addition) {
	waits := r.hosts.came(a)
	text, err := "", a.err
	if err == nil {
		a.host.run(r.console.say)
		err = r.scalable()
	}
	if err == nil {
		text, err = r.rescaleHost(a.host, a.order.Peers)
	}
	if err != nil {
		r.say("scale: %v", err)
	}
	if waits {
		r.answerScale(a.from, a.order.Seq, text, err)
	}
}

// answerLate answers orders for hosts that take long to connect.
func (r *runner) answerLate(now time.Time) {
	for _, a := range r.hosts.late(now) {
		r.answerScale(a.from, a.order.Seq, fmt.Sprintf("host %s is still being connected; the elrun that runs the job will say how that ends", a.order.Host), nil)
	}
}

// rescale brings all peers of this launcher to n and says what happens.
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
	r.comebacks = nil // a peer that is to come back is counted anew
	return r.follow(plan, n, plural(before, "local peer becomes", "local peers become"), n)
}

// rescaleHost brings the peers on a host to n and says what happens.
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
	all := len(r.children) - len(leaving) - before + n
	if all < 1 || all > maxPeers {
		return "", fmt.Errorf("%d peers on all hosts: want 1 to %d; elrun stop ends the job", all, maxPeers)
	}
	plan, err := planScale(here, leaving, r.waiting(), r.running(), n)
	if err != nil {
		return "", err
	}
	h.Slots = max(1, n)
	r.comebacks = slices.DeleteFunc(r.comebacks, func(b comeback) bool { return r.hosts.seatOf(b.index) == h })
	for _, i := range plan.start {
		r.hosts.take(i, h)
	}
	return r.follow(plan, all, "host "+h.Name+": "+plural(before, "peer becomes", "peers become"), n)
}

// follow does what a plan says, after which there are so many peers in all. It returns the
// line about that, which begins with what becomes n.
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
	r.say("scale: %s", text)
	return text, nil
}

// leaving returns the indices of peers that have been asked to leave.
func (r *runner) leaving() []int {
	var out []int
	for i, c := range r.children {
		if !c.asked.IsZero() {
			out = append(out, i)
		}
	}
	return out
}

// waiting returns the indices of peers that run and are in no view yet.
func (r *runner) waiting() []int {
	return slices.DeleteFunc(r.running(), func(i int) bool {
		_, waits := r.lobby.waiting[i]
		return !waits && r.meet.shortID(i) != ""
	})
}

// scalePlan says which local peers are started, and which are asked to leave.
type scalePlan struct{ start, leave []int }

// planScale brings the number of peers that run and stay to n. New peers take the lowest free
// indices. Peers that still wait to join (waiting) are the first to leave, as the state of the job is
// with the members; of the others the highest indices leave. Some of the running have been asked to leave
// already (leaving), and peers that run elsewhere have indices, too (taken). It is pure.
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
		return cmp.Compare(rank(waiting, a), rank(waiting, b))
	})
	var p scalePlan
	for i := 0; len(stay)+len(p.start) < n; i++ {
		if !slices.Contains(running, i) && !slices.Contains(taken, i) {
			p.start = append(p.start, i)
		}
	}
	for len(stay) > n {
		last := len(stay) - 1
		p.leave = append(p.leave, stay[last])
		stay = stay[:last]
	}
	return p, nil
}

// rank orders peers by when they leave: 1 for those that wait to join, which leave first.
func rank(waiting []int, index int) int {
	if slices.Contains(waiting, index) {
		return 1
	}
	return 0
}

// String says what happens, as in "starting peers 2, 3".
func (p scalePlan) String() string {
	switch {
	case len(p.start) > 0:
		return "starting " + listPeers(p.start)
	case len(p.leave) > 0:
		return "asking " + listPeers(p.leave) + " to leave"
	}
	return "nothing to do"
}

// listPeers words local indices.
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
