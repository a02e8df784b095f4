package trace

import (
	"encoding/binary"
	"hash/fnv"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/elrun/elrun/event"
)

// stepped writes a step of a peer.
func (w *Writer) stepped(e event.Event, b event.Step, at int64) {
	length := max(0, int64(milliseconds(b.StepMS)))
	began := nanoseconds(b.Began)
	if began == 0 { // a log of before, which has no begin, or a commit of which the peer has learned from others
		began = max(1, at-length)
	}
	p := w.peer(e, began)
	if p == nil {
		return
	}
	if p.ended > 0 && p.epoch < e.Epoch {
		w.tracks.slice(&p.process, p.ended, began, mark{category: "state", name: "view change", args: []arg{whole("epoch", int64(e.Epoch))}})
	}
	end := began + length
	p.epoch, p.ended = e.Epoch, end
	m := w.stepMark(e, b)
	t := &p.thread
	switch {
	case length == 0:
		w.tracks.instant(&p.process, began, m)
	case end > t.at:
		w.tracks.to.mark(typeBegin, t.id, t.moves(began), m)
		w.parts(t, e, b, began, end)
		w.tracks.to.end(t.id, t.moves(end), nil)
	}
	if b.ShareSamples != p.share || p.counters["share"] == nil {
		p.share = b.ShareSamples
		w.tracks.count(&p.process, "share", unit{name: "samples"}, began, float64(b.ShareSamples))
	}
	w.figures(e, b, end)
}

// stepMark returns what the slice of a step shows.
func (w *Writer) stepMark(e event.Event, b event.Step) mark {
	microbatches := int64(0)
	for _, r := range b.Microbatches {
		microbatches += max(0, int64(r[1])-int64(r[0]))
	}
	return mark{category: "step", name: "step", number: e.Step, linked: true, args: []arg{
		whole("epoch", int64(e.Epoch)), whole("attempt", int64(b.Attempt)), whole("samples", int64(b.ShareSamples)), whole("samples of all", int64(b.Samples)),
		whole("microbatches", microbatches), whole("computed_again", int64(b.Recomputed)), whole("stolen", int64(b.Stolen)),
		number("loss", b.Loss), number("lr", b.LR), number("step_ms", b.StepMS), number("predicted_ms", b.PredictedMS), whole("sent_bytes", b.SentBytes)}}
}

// parts writes the parts of a step, which follow each other. Parts that are longer than the step together are shortened in
// proportion.
func (w *Writer) parts(t *track, e event.Event, b event.Step, began, end int64) {
	ends, awaits := w.flows(e, b)
	parts := []struct {
		name  string
		ms    float64
		flows []uint64
		args  []arg
	}{
		{"lost", b.LostMS, nil, nil},
		{"point", b.PointMS, nil, nil},
		{"data", b.DataMS, nil, nil},
		{"compute", b.ComputeMS, ends, []arg{whole("samples", int64(b.ShareSamples))}},
		{"wait", b.WaitMS, awaits, []arg{text("wait_for", w.title(b.WaitFor))}},
		{"communicate", b.ReduceMS, nil, nil},
		{"apply", b.ApplyMS, nil, nil},
		{"commit", b.CommitMS, nil, nil},
	}
	sum := time.Duration(0)
	for _, p := range parts {
		sum += max(0, milliseconds(p.ms))
	}
	scale := 1.0
	if length := time.Duration(end - began); sum > length {
		scale = float64(length) / float64(sum)
	}
	from := time.Duration(0)
	for _, p := range parts {
		to := from + max(0, milliseconds(p.ms))
		begin := max(t.at, began+int64(scale*float64(from)))
		if stop := min(end, began+int64(scale*float64(to))); stop > begin {
			w.tracks.to.mark(typeBegin, t.id, t.moves(begin), mark{category: "part", name: p.name, args: p.args})
			w.tracks.to.end(t.id, t.moves(stop), p.flows)
		}
		from = to
	}
}

// flows returns the flows of the end of a peer's computing, and of the end of its wait. Each wait is a flow: from the computing of the
// peer that was last. This one knows only that nobody was later, and so ends the waits of all other members.
func (w *Writer) flows(e event.Event, b event.Step) (ends, awaits []uint64) {
	switch {
	case b.WaitFor != "":
		return nil, []uint64{flowOf(e.Peer, e.Step)}
	case e.Epoch == w.epoch.number:
		for _, id := range w.epoch.members {
			if id != e.Peer {
				ends = append(ends, flowOf(id, e.Step))
			}
		}
	}
	return ends, nil
}

// flowOf returns the ID of the flow to the wait of a peer in a step.
func flowOf(peer string, step int64) uint64 {
	h := fnv.New64a()
	_, _ = h.Write(binary.LittleEndian.AppendUint64([]byte(peer), uint64(step))) // a hash takes all
	return max(1, h.Sum64())                                                     // 0 is none
}

// figures writes the counters of the job after the first report of a step.
func (w *Writer) figures(e event.Event, b event.Step, at int64) {
	if e.Step <= w.step {
		return
	}
	w.step = e.Step
	if b.Loss != 0 {
		w.tracks.count(&w.job, "loss", unit{}, at, b.Loss)
	}
	if at-w.meter.at < int64(meterPeriod) {
		return
	}
	if speed := w.model.Progress().SamplesPerS; speed > 0 {
		w.tracks.count(&w.job, "samples/s", unit{}, at, speed)
	}
	uses := w.model.Uses()
	spent := uses
	for i := range spent {
		spent[i] = max(0, spent[i]-w.meter.before[i])
	}
	if w.meter.at != 0 {
		w.tracks.count(&w.job, "goodput", unit{name: "%"}, at, 100*spent.Goodput())
	}
	w.meter = meter{at, uses}
}

// used writes the counters of the process of a peer.
func (w *Writer) used(e event.Event, b event.Usage, at int64) {
	p := w.peer(e, at)
	if p == nil {
		return
	}
	bytes := unit{code: counterUnitBytes}
	w.tracks.count(&p.process, "rss", bytes, at, float64(b.RSS))
	if s := time.Duration(at - p.metered).Seconds(); p.metered != 0 && s > 0 {
		w.tracks.count(&p.process, "cpu", unit{name: "% of a core"}, at, 100*max(0, b.CPUS-p.usage.CPUS)/s)
		speeds := func(prefix string, before, now map[string]int64) {
			for _, path := range slices.Sorted(maps.Keys(now)) {
				w.tracks.count(&p.process, prefix+path, unit{name: "bytes/s"}, at, float64(max(0, now[path]-before[path]))/s)
			}
		}
		speeds("sent by ", p.usage.Sent, b.Sent)
		speeds("received by ", p.usage.Received, b.Received)
	}
	p.usage, p.metered = b, at
}

// beside writes a slice beside the steps, which ends at the time of its event.
func (w *Writer) beside(e event.Event, m mark, at int64) {
	begin := max(1, at-int64(m.length))
	if p := w.peer(e, begin); p != nil {
		w.tracks.slice(&p.process, begin, at, m)
	}
}

// slice returns what an event shows that reports something which took time, and false for any other event.
func (w *Writer) slice(e event.Event) (mark, bool) {
	m := mark{category: "state"}
	ms := 0.0
	switch b := e.Body.(type) {
	case event.Join:
		if b.Who != e.Peer {
			return m, false
		}
		m.name, ms, m.args = "copy of state", b.MS, []arg{whole("bytes", b.Bytes), text("reason", b.Reason)}
	case event.Resync:
		m.name, ms, m.args = "copy of state", b.MS, []arg{whole("bytes", b.Bytes), text("reason", b.Reason)}
	case event.Checkpoint:
		m.name, ms, m.args = "checkpoint", b.MS, []arg{whole("step", e.Step), text("path", b.Path)}
	case event.Eval:
		m.name, ms, m.args = "evaluation", b.MS, []arg{whole("step", e.Step), text("set", b.Set), whole("samples", int64(b.Samples))}
		if b.Accuracy != nil {
			m.args = append(m.args, number("accuracy", *b.Accuracy))
		}
		if b.Loss != nil {
			m.args = append(m.args, number("loss", *b.Loss))
		}
	case event.Stall:
		if !b.Over {
			return m, false
		}
		m.name, ms, m.args = "stall", b.SinceMS, []arg{text("culprit", w.titles(b.Culprit)), text("phase", b.Phase), text("what", b.What)}
	}
	m.length = max(0, milliseconds(ms))
	return m, m.length > 0
}

// titles returns how the trace names the peers of a list.
func (w *Writer) titles(ids string) string {
	var names []string
	for id := range strings.SplitSeq(ids[:min(len(ids), maxText)], ",") {
		names = append(names, w.title(strings.TrimSpace(id)))
	}
	return strings.Join(names, ", ")
}

// happened writes an instant of the job, or of the peer of an event, if the event is one to show. What several peers
// report is shown once.
func (w *Writer) happened(e event.Event, at int64) {
	if m, who := w.ofJob(e); m.name != "" {
		key := happening{kind: m.name, who: who}
		if m.again {
			key.epoch, key.step = e.Epoch, e.Step
		}
		if m.once && !w.seen.first(key) {
			return
		}
		w.start(at)
		if who != "" {
			m.args = append([]arg{text("who", w.titles(who))}, m.args...)
		}
		m.category = "job"
		w.tracks.instant(&w.job, at, m)
		return
	}
	m := ofPeer(e)
	if m.name == "" {
		return
	}
	if p := w.peer(e, at); p != nil {
		m.category = "state"
		w.tracks.instant(&p.process, at, m)
	}
}

// ofJob returns what an event of the job shows, and the short IDs of the peers that it is about.
func (w *Writer) ofJob(e event.Event) (m mark, who string) {
	m.once = true
	switch b := e.Body.(type) {
	case event.Job:
		m.name, m.once = "job", false
		m.args = []arg{text("job", b.Job), text("program", b.Program), text("args", strings.Join(b.Args, " ")), text("elrun", b.Elrun), text("launcher", b.Launcher),
			whole("steps", b.Steps), whole("samples of a pass", int64(b.Samples)), whole("global_batch", int64(b.GlobalBatch)), whole("parameters", int64(b.Params))}
	case event.Lost:
		m.name, who, m.args = "lost", b.Who, []arg{text("cause", b.Cause), number("detect_ms", b.DetectMS)}
	case event.Join:
		m.name, who, m.args = "join", b.Who, []arg{text("reason", b.Reason)}
	case event.Leave:
		m.name, who, m.args = "leave", b.Who, []arg{text("reason", b.Reason)}
	case event.Fenced:
		m.name, who, m.args = "fenced", b.Who, []arg{text("reason", b.Reason)}
	case event.Forged:
		m.name, who, m.args = "forged", b.Who, []arg{text("reason", b.Reason)}
	case event.Audit:
		m.name, m.again, who, m.args = "audit", true, strings.Join(b.Who, ","), []arg{whole("agree", int64(b.For)), whole("of", int64(b.Of)), text("reason", b.Reason)}
	case event.Quorum:
		m.again = true
		m.name, m.args = "quorum "+quorumState(b.State), []arg{whole("present", int64(b.Present)), whole("needed", int64(b.Needed))}
	case event.Mismatch:
		m.name, m.args = "mismatch", []arg{text("reason", b.Reason)}
	case event.Mistake:
		m.name, m.args = "mistake", []arg{text("reason", b.Reason)}
	case event.Growth:
		m.name, m.again, m.args = "growth", true, []arg{whole("before", int64(b.Old)), whole("samples", int64(b.New))}
	case event.Done:
		m.name, m.args = "done", []arg{whole("steps", b.Steps), whole("peers", int64(b.Peers)), text("sha256", b.SHA256)}
	case event.Notice:
		m.name, m.once, m.args = "notice", false, []arg{text("cause", b.Cause)}
	case event.Restart:
		m.name, m.once, m.args = "restart", false, []arg{whole("index", int64(e.Index)), number("ms", b.MS)}
	case event.Exit:
		m.name, m.once, who = "exit", false, e.Peer
		m.args = []arg{whole("index", int64(e.Index)), whole("pid", int64(b.PID)), whole("status", int64(b.Status)), whole("signal", int64(b.Signal)), text("says", b.Says)}
	case event.Dropped:
		m.name, m.once, m.args = "dropped", false, []arg{text("by", e.Peer), whole("events", int64(b.Events))}
	}
	return m, who
}

// quorumState returns a state of a quorum as the trace shows it, so that its names are few.
func quorumState(state string) string {
	switch state {
	case "lost", "waiting", "back", "gave-up":
		return state
	}
	return "unknown"
}

// ofPeer returns what an event about its peer shows.
func ofPeer(e event.Event) (m mark) {
	switch b := e.Body.(type) {
	case event.Parked:
		m.name, m.args = "parked", []arg{text("reason", b.Reason)}
	case event.Refused:
		m.name, m.args = "refused", []arg{text("reason", b.Reason)}
	case event.Complete:
		m.name = "complete"
	case event.Saving:
		m.name, m.args = "saving", []arg{text("path", b.Path), text("failed", b.Failed)}
	case event.Stall:
		m.name, m.args = "stall", []arg{text("culprit", b.Culprit), text("phase", b.Phase), text("what", b.What), number("since_ms", b.SinceMS)}
	case event.Clock:
		m.name, m.args = "clock", []arg{text("of", b.Who), number("offset_ms", b.OffsetMS), number("error_ms", b.ErrorMS)}
	case event.Eval:
		m.name, m.args = "evaluation", []arg{whole("step", e.Step)}
	}
	return m
}
