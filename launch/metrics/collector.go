package metrics

import (
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/elrun/elrun/event/timeline"
)

// NewCollector returns a collector of the metrics of a job, for a registry of the program's own. snapshot returns the present
// state of the model, or false if there is none any more; it is called for each collection, from any goroutine. It
// may be a function over launch.Job.Snapshot.
func NewCollector(snapshot func() (timeline.Snapshot, bool)) prometheus.Collector {
	return collector{snapshot}
}

// collector makes metrics of the model of a job. It implements prometheus.Collector.
type collector struct {
	snapshot func() (timeline.Snapshot, bool)
}

// Describe implements prometheus.Collector: which metrics there are depends on the job.
func (c collector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c collector) Collect(to chan<- prometheus.Metric) {
	s, ok := c.snapshot()
	if !ok {
		return
	}
	f := figures{to}
	f.job(s)
	f.counts(s)
	for _, p := range seats(s) {
		f.peer(p)
	}
}

// figures sends metrics.
type figures struct{ to chan<- prometheus.Metric }

// gauge sends a value that may fall. labels has names and values in turn.
func (f figures) gauge(name, help string, value float64, labels ...string) {
	f.send(prometheus.GaugeValue, name, help, value, labels)
}

// counter sends a value that only grows.
func (f figures) counter(name, help string, value float64, labels ...string) {
	f.send(prometheus.CounterValue, name, help, value, labels)
}

// send sends a metric.
func (f figures) send(kind prometheus.ValueType, name, help string, value float64, labels []string) {
	names, values := split(labels)
	f.to <- prometheus.MustNewConstMetric(prometheus.NewDesc("elrun_"+name, help, names, nil), kind, value, values...)
}

// split divides names and values that come in turn.
func split(labels []string) (names, values []string) {
	for i := 0; i < len(labels); i += 2 {
		names, values = append(names, labels[i]), append(values, labels[i+1])
	}
	return names, values
}

// job sends what the job is and how far it is.
func (f figures) job(s timeline.Snapshot) {
	f.gauge("build_info", "The version of elrun.", 1, "version", s.Job.Elrun)
	f.gauge("job_info", "The name and the program of the job, and whether it is in exact mode.", 1, "name", s.Job.Job, "program", s.Job.Program, "exact", strconv.FormatBool(s.Job.Exact))
	if !s.Begin.IsZero() {
		f.gauge("job_start_timestamp_seconds", "When this elrun has begun.", unix(s.Begin))
	}
	f.known("job_steps_planned", "Steps of the whole job.", float64(s.Of))
	f.known("loss", "Mean loss of the last step.", s.Loss)
	f.known("learning_rate", "Learning rate of the last step.", s.LR)
	f.known("gradient_norm", "Norm of the mean gradient of a peer's samples in the last step.", s.GradNorm)
	f.known("noise_scale_samples", "Gradient noise scale.", s.NoiseScale)
	for name, value := range s.Progress.Metrics {
		f.gauge("reported", "Last value that the program has reported under a name.", value, "name", name)
	}
	last := map[string]timeline.Eval{}
	for _, e := range s.Evals {
		last[e.Set] = e
	}
	for set, e := range last {
		if e.Loss != nil {
			f.gauge("evaluation_loss", "Loss in the last evaluation.", *e.Loss, "set", set)
		}
		if e.Accuracy != nil {
			f.gauge("evaluation_accuracy_ratio", "Accuracy in the last evaluation.", *e.Accuracy, "set", set)
		}
	}
	members := 0
	if n := len(s.Recent); n > 0 {
		members = len(s.Recent[n-1].Members)
	}
	f.gauge("members", "Members of the latest view.", float64(members))
	f.gauge("epoch", "Epoch of the latest view.", float64(s.Epoch))
	quorum := 1.0
	if s.Quorum != nil {
		quorum = 0
		f.gauge("members_needed", "Members that the job waits for, while it has too few.", float64(s.Quorum.Needed))
	}
	stalled := 0.0
	if s.Stall != nil {
		stalled = 1
	}
	f.gauge("stalled", "Whether members wait unusually long for others.", stalled)
	f.gauge("quorum", "Whether enough members are present to go on.", quorum)
	f.counter("checkpoints_total", "Checkpoints that are complete.", float64(s.Saved))
	f.counter("checkpoint_seconds_total", "Time in which checkpoints were written.", s.SavedMS/1000)
	if n := len(s.Checkpoints); n > 0 {
		f.gauge("last_checkpoint_timestamp_seconds", "When the last checkpoint was complete.", unix(s.Checkpoints[n-1].Time))
	}
}

// known sends a gauge unless it is 0, which stands for an unknown value.
func (f figures) known(name, help string, value float64) {
	if value != 0 {
		f.gauge(name, help, value)
	}
}

// counts sends what has happened to the job so far.
func (f figures) counts(s timeline.Snapshot) {
	c := s.Counts
	f.counter("steps_total", "Committed steps of the job.", float64(c.Steps))
	f.counter("samples_total", "Samples of the committed steps.", float64(c.Samples))
	f.each("view_changes_total", "Changes of the members, by the reason.", c.Views, "reason")
	f.each("peers_lost_total", "Peers that were lost, by the cause.", c.Lost, "cause")
	f.each("stalls_total", "Waits that were unusually long, by what the culprit did.", c.Stalls, "phase")
	f.counter("stall_seconds_total", "Time of these waits.", c.StallMS/1000)
	f.each("audits_total", "Audits that have found a difference, by the result.", c.Audits, "result")
	f.uses("time_seconds_total", "Time of the peers of this elrun, by its use: the part of useful is the goodput.", s.Goodput.Uses)
}

// each sends a counter for each name.
func (f figures) each(name, help string, counts map[string]int64, label string) {
	for _, value := range slices.Sorted(maps.Keys(counts)) {
		f.counter(name, help, float64(counts[value]), label, value)
	}
}

// uses sends a counter for each use of time.
func (f figures) uses(name, help string, u timeline.Uses, labels ...string) {
	for i, d := range u {
		f.counter(name, help, d.Seconds(), append(slices.Clone(labels), "use", timeline.Use(i).String())...)
	}
}

// seat is a place for a peer at this launcher: the sum over the processes that were there, and the last of
// them.
type seat struct {
	timeline.Peer
	share float64             // part of the batch
	paths map[string][2]int64 // bytes sent and received, by kind of path
}

// seats returns the seats of this launcher, by index. Peers of other launchers are served there.
func seats(s timeline.Snapshot) (all []seat) {
	by := map[int]*seat{}
	for _, p := range s.Peers {
		if p.Index < 0 || !p.Heard && p.PID == 0 { // its launcher knows the process
			continue
		}
		before := by[p.Index]
		now := &seat{Peer: p, paths: map[string][2]int64{}}
		if before != nil {
			now.add(*before)
		}
		for kind, n := range p.Sent {
			now.count(kind, n, p.Received[kind])
		}
		by[p.Index] = now
	}
	batch := 0
	for _, n := range s.Shares {
		batch += n
	}
	for _, index := range slices.Sorted(maps.Keys(by)) {
		p := by[index]
		if p.Rank >= 0 && p.Rank < len(s.Shares) && batch > 0 {
			p.share = float64(s.Shares[p.Rank]) / float64(batch)
		}
		all = append(all, *p)
	}
	return all
}

// add adds the counters of an earlier process in the seat.
func (s *seat) add(before seat) {
	for i, d := range before.Uses {
		s.Uses[i] += d
	}
	for i, n := range before.Lengths {
		s.Lengths[i] += n
	}
	s.WaitedFor.Computing += before.WaitedFor.Computing
	s.WaitedFor.Call += before.WaitedFor.Call
	s.WaitedFor.Absent += before.WaitedFor.Absent
	s.LengthMS += before.LengthMS
	s.Samples += before.Samples
	s.CPUS += before.CPUS
	for kind, n := range before.paths {
		s.count(kind, n[0], n[1])
	}
}

// count adds bytes of a kind of path.
func (s *seat) count(kind string, sent, received int64) {
	n := s.paths[kind]
	s.paths[kind] = [2]int64{n[0] + sent, n[1] + received}
}

// states are the states of a peer.
func states() []string {
	return []string{timeline.StateJoining, timeline.StateRunning, timeline.StateWaiting, timeline.StateParked, timeline.StateLeft,
		timeline.StateLost, timeline.StateDone, timeline.StateExited}
}

// peer sends the metrics of a seat.
func (f figures) peer(p seat) {
	index := strconv.Itoa(p.Index)
	f.gauge("peer_info", "The peer with an index: its ID, rank and host.", 1, "peer", index, "id", p.ID, "rank", strconv.Itoa(p.Rank), "host", p.Host, "site", p.Site)
	for _, state := range states() {
		is := 0.0
		if p.State == state {
			is = 1
		}
		f.gauge("peer_state", "Whether the peer is in a state.", is, "peer", index, "state", state)
	}
	f.uses("peer_time_seconds_total", "Time of the peer by its use.", p.Uses, "peer", index)
	f.counter("peer_waited_for_seconds_total", "Time that the other peers have waited for this one.", p.WaitedFor.Total().Seconds(), "peer", index)
	f.lengths(p, index)
	f.counter("peer_samples_total", "Samples that the peer has computed.", float64(p.Samples), "peer", index)
	f.gauge("peer_share_ratio", "Part of the batch that the peer computes.", p.share, "peer", index)
	f.counter("peer_cpu_seconds_total", "Processor time of the peer.", p.CPUS, "peer", index)
	f.gauge("peer_resident_memory_bytes", "Memory of the peer.", float64(p.RSS), "peer", index)
	for _, kind := range slices.Sorted(maps.Keys(p.paths)) {
		n := p.paths[kind]
		f.counter("peer_sent_bytes_total", "Bytes that the peer has sent to other members over a kind of path.", float64(n[0]), "peer", index, "path", kind)
		f.counter("peer_received_bytes_total", "Bytes that the peer has received from other members over a kind of path.", float64(n[1]), "peer", index, "path", kind)
	}
}

// lengths sends the histogram of the times of a peer's steps.
func (f figures) lengths(p seat, index string) {
	buckets, sum := map[float64]uint64{}, uint64(0)
	bounds := timeline.HistogramBounds()
	for i, n := range p.Lengths {
		sum += uint64(n)
		if i < len(bounds) {
			buckets[bounds[i].Seconds()] = sum
		}
	}
	desc := prometheus.NewDesc("elrun_peer_step_seconds", "Times of the peer's steps.", []string{"peer"}, nil)
	f.to <- prometheus.MustNewConstHistogram(desc, sum, p.LengthMS/1000, buckets, index)
}

// unix returns a time in seconds since 1970.
func unix(t time.Time) float64 { return float64(t.UnixNano()) / float64(time.Second) }
