package timeline

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/elrun/elrun/event"
)

// Snapshot is all that a Job knows at one time. It shares no memory with the Job. Its JSON form has fixed
// names; further fields may be added.
type Snapshot struct {
	// Seq is the number of events so far. Of two snapshots of a Job with one Seq both are equal.
	Seq    uint64    `json:"seq"`
	Begin  time.Time `json:"begin"` // of the first event
	Time   time.Time `json:"time"`  // of the latest event
	Job    event.Job `json:"job"`
	Epoch  uint64    `json:"epoch"` // of the latest view
	Views  int       `json:"views"` // number of views so far
	Recent []View    `json:"recent_views,omitempty"`
	Progress
	Batch       int         `json:"batch,omitempty"`  // samples of a full step, once the batch has grown
	Shares      []int       `json:"shares,omitempty"` // microbatches of a full step, by rank
	Ring        []int       `json:"ring,omitempty"`   // ranks in the order of the ring
	Counts      Counts      `json:"counts"`
	Peers       []Peer      `json:"peers"`
	Former      Former      `json:"former"` // peers that are not in Peers any more, because there were too many
	Goodput     Goodput     `json:"goodput"`
	Stall       *Stall      `json:"stall,omitempty"`  // the present one
	Quorum      *Quorum     `json:"quorum,omitempty"` // set while the job lacks one
	Series      Series      `json:"series"`
	Evals       []Eval      `json:"evals,omitempty"`
	Checkpoints []Saved     `json:"checkpoints,omitempty"` // the latest
	Saved       int         `json:"saved,omitempty"`       // number of checkpoints so far
	SavedMS     float64     `json:"saved_ms,omitempty"`
	Messages    []Message   `json:"messages,omitempty"`
	Done        *event.Done `json:"done,omitempty"`
	Coverage    Coverage    `json:"coverage"`
	Lacks       Lacks       `json:"lacks"`
}

// Progress tells how far a job is and how fast it goes. A field is 0 if its value is unknown.
type Progress struct {
	Step        int64              `json:"step"`
	Of          int64              `json:"of,omitempty"`
	Loss        float64            `json:"loss,omitempty"`
	SamplesPerS float64            `json:"samples_per_s,omitempty"` // over the last ten seconds
	StepsPerS   float64            `json:"steps_per_s,omitempty"`
	LeftMS      float64            `json:"left_ms,omitempty"`
	GradNorm    float64            `json:"grad_norm,omitempty"`
	NoiseScale  float64            `json:"noise_scale,omitempty"`
	LR          float64            `json:"lr,omitempty"`
	Metrics     map[string]float64 `json:"metrics,omitempty"`
}

// Peer is one process of the job.
type Peer struct {
	ID       string   `json:"id"` // short, the latest
	IDs      []string `json:"ids,omitempty"`
	Index    int      `json:"index"` // at its launcher; -1 if unknown
	Launcher string   `json:"launcher,omitempty"`
	Host     string   `json:"host,omitempty"`
	Machine  string   `json:"machine,omitempty"`
	Site     string   `json:"site,omitempty"`
	PID      int      `json:"pid,omitempty"`
	Rank     int      `json:"rank"` // -1 if it is in no view
	State    string   `json:"state"`
	// Heard is set if the log has events of the peer itself. If not, they are in the log of another elrun.
	Heard bool      `json:"heard"`
	Begin time.Time `json:"begin,omitzero"`
	End   time.Time `json:"end,omitzero"` // up to which its time is accounted
	// Uses and ParkedMS add up to the time from Begin to End.
	Uses      Uses    `json:"uses"`
	ParkedMS  float64 `json:"parked_ms,omitempty"`
	WaitedFor Waited  `json:"waited_for"`
	Strip     Strip   `json:"strip"` // its uses by time

	Share       int      `json:"share"`         // microbatches in its last step
	SamplesPerS float64  `json:"samples_per_s"` // in a second of computing
	Steps       int64    `json:"steps"`
	Samples     int64    `json:"samples"`
	Last        LastStep `json:"last_step"`
	// Lengths counts its steps by their times, and LengthMS is the sum of the times.
	Lengths  Histogram `json:"lengths"`
	LengthMS float64   `json:"length_ms"`
	Path     string    `json:"path,omitempty"` // kinds of its paths to other members, as in "direct,shm"

	// Links has the speeds of the measured links to it in MB/s, by the short IDs of the senders.
	Links map[string]float64 `json:"links,omitempty"`

	CPU      float64          `json:"cpu,omitempty"` // processors in use
	CPUS     float64          `json:"cpu_s,omitempty"`
	RSS      int64            `json:"rss,omitempty"`
	Sent     map[string]int64 `json:"sent,omitempty"` // bytes by kind of path
	Received map[string]int64 `json:"received,omitempty"`

	Exit   *event.Exit `json:"exit,omitempty"`
	Cause  string      `json:"cause,omitempty"`  // of its loss, as in event.Lost
	Reason string      `json:"reason,omitempty"` // of its leaving, as in event.Leave
}

// LastStep has the parts of a peer's last step in milliseconds, as in event.Times.
type LastStep struct {
	Step        int64   `json:"step,omitempty"`
	StepMS      float64 `json:"step_ms,omitempty"`
	PredictedMS float64 `json:"predicted_ms,omitempty"`
	DataMS      float64 `json:"data_ms,omitempty"`
	ComputeMS   float64 `json:"compute_ms,omitempty"`
	WaitMS      float64 `json:"wait_ms,omitempty"`
	WaitFor     string  `json:"wait_for,omitempty"`
	ReduceMS    float64 `json:"reduce_ms,omitempty"`
	ApplyMS     float64 `json:"apply_ms,omitempty"`
	CommitMS    float64 `json:"commit_ms,omitempty"`
}

// Stall is a wait that is unusually long.
type Stall struct {
	Time    time.Time `json:"time"`
	Culprit string    `json:"culprit"` // short IDs, separated by commas
	Phase   string    `json:"phase"`
	What    string    `json:"what"`
	SinceMS float64   `json:"since_ms"`
}

// Quorum tells that the job waits for members.
type Quorum struct {
	Time    time.Time `json:"time"`
	State   string    `json:"state"` // lost, waiting or gave-up
	Present int       `json:"present"`
	Needed  int       `json:"needed"`
}

// Eval is an evaluation of the model.
type Eval struct {
	Time     time.Time `json:"time"`
	Step     int64     `json:"step"`
	Set      string    `json:"set,omitempty"`
	Samples  int       `json:"samples,omitempty"`
	Accuracy *float64  `json:"accuracy,omitempty"`
	Loss     *float64  `json:"loss,omitempty"`
	MS       float64   `json:"ms"`
}

// Saved is a checkpoint that is complete.
type Saved struct {
	Time time.Time `json:"time"`
	Step int64     `json:"step"`
	Path string    `json:"path"`
	MS   float64   `json:"ms"`
}

// Message is a line that a launcher has printed for people.
type Message struct {
	Time time.Time `json:"time"`
	Text string    `json:"text"`
}

// Lacks tells what the model does not know of the job, or has not understood.
type Lacks struct {
	Dropped  int64 `json:"dropped,omitempty"`  // events that a launcher could not write
	Unknown  int64 `json:"unknown,omitempty"`  // events of a kind that this version does not know
	Nameless int64 `json:"nameless,omitempty"` // events that do not say of which peer or step they are
	Repeated int64 `json:"repeated,omitempty"` // steps of a peer that were known already
	Late     int64 `json:"late,omitempty"`     // steps that came too late for the series
	Unheard  int   `json:"unheard,omitempty"`  // members whose own events are missing
}

// Snapshot returns what the Job knows. Peers are in the order in which they became known.
func (j *Job) Snapshot() Snapshot {
	unfinished := j.steps.unfinished()
	s := Snapshot{Seq: j.seq, Begin: j.begin.time(), Time: j.latest.time(), Job: j.about, Views: j.views.count, Former: j.peers.former,
		Stall: cloneOf(j.stall), Quorum: cloneOf(j.quorum), Done: cloneOf(j.done),
		Evals: slices.Clone(j.evals), Checkpoints: slices.Clone(j.checkpoints), Messages: slices.Clone(j.notes),
		Saved: j.saved, SavedMS: milliseconds(j.savedTime), Coverage: j.steps.coverage, Lacks: j.lacks,
		Series: j.steps.series.with(unfinished).export()}
	s.Job.Args, s.Job.Settings = slices.Clone(j.about.Args), maps.Clone(j.about.Settings)
	s.Counts, s.Batch, s.Shares, s.Ring = j.counts.clone(), j.batch, slices.Clone(j.pace.shares), slices.Clone(j.order)
	for _, o := range unfinished {
		if twice, missing := o.coverage(); missing && !twice {
			s.Coverage.Open++
		} else {
			s.Coverage.count(o)
		}
	}
	for _, v := range j.views.list {
		v.Members, v.Joined, v.Left, v.Lost = slices.Clone(v.Members), slices.Clone(v.Joined), slices.Clone(v.Left), slices.Clone(v.Lost)
		s.Recent = append(s.Recent, v)
		s.Epoch = v.Epoch
	}
	s.Progress = j.Progress()
	for _, r := range j.peers.rows {
		if r.listed && !r.heard {
			s.Lacks.Unheard++
		}
		s.Peers = append(s.Peers, j.peer(r))
	}
	s.Goodput = s.goodput()
	return s
}

// cloneOf copies what a pointer points to.
func cloneOf[T any](p *T) *T {
	if p == nil {
		return nil
	}
	x := *p
	return &x
}

// Uses returns what the time of all peers was used for. It costs much less than Snapshot.
func (j *Job) Uses() Uses {
	sum := j.peers.former.Uses
	for _, r := range j.peers.rows {
		sum.add(r.uses)
	}
	return sum
}

// View returns the latest view of an epoch, and false if it is not known any more. It shares memory with the Job.
func (j *Job) View(epoch uint64) (View, bool) {
	v := j.views.at(epoch)
	if v == nil {
		return View{}, false
	}
	return *v, true
}

// Progress returns how far the job is, as Snapshot has it. It shares no memory with the Job.
func (j *Job) Progress() Progress {
	samples, perS, left := j.pace.Speed(j.latest.time())
	p := Progress{Step: j.pace.Step, Of: cmp.Or(j.pace.Of, j.about.Steps), Loss: j.pace.Loss,
		SamplesPerS: finite(samples), StepsPerS: finite(perS), LeftMS: milliseconds(left),
		GradNorm: j.norms.grad, NoiseScale: j.norms.noise, LR: j.norms.rate}
	for name, x := range j.pace.Metrics {
		if p.Metrics == nil {
			p.Metrics = make(map[string]float64)
		}
		p.Metrics[clip(name)] = finite(x)
	}
	return p
}

// peer returns what is known of a process.
func (j *Job) peer(r *row) Peer {
	p := Peer{ID: r.id(), Index: r.index, Launcher: r.launcher, Host: r.about.Host, Machine: r.about.Machine, Site: r.about.Site,
		PID: r.about.PID, Rank: r.rank, State: r.state, Heard: r.heard, Begin: r.begin.time(), End: r.cursor.time(),
		Uses: r.uses, ParkedMS: milliseconds(r.parked), WaitedFor: r.waitedFor,
		Share: r.share, Steps: r.steps, Samples: r.samples, CPU: r.cpu, CPUS: r.usage.CPUS, RSS: r.usage.RSS,
		Sent: r.usage.Sent, Received: r.usage.Received, // Usage events are replaced, never changed
		Exit: cloneOf(r.exit), Cause: r.cause, Reason: r.reason}
	p.Lengths, p.LengthMS = r.lengths, milliseconds(r.length)
	p.Path = strings.Join(slices.Compact(slices.Sorted(maps.Values(r.paths))), ",")
	p.Links, p.Strip = maps.Clone(r.links), r.strip.export()
	if len(r.ids) > 1 {
		p.IDs = slices.Clone(r.ids)
	}
	l := r.last
	p.Last = LastStep{r.lastStep, finiteMS(l.StepMS), finiteMS(l.PredictedMS), finiteMS(l.DataMS), finiteMS(l.ComputeMS), finiteMS(l.WaitMS),
		l.WaitFor, finiteMS(l.ReduceMS), finiteMS(l.ApplyMS), finiteMS(l.CommitMS)}
	if ms := p.Last.ComputeMS; ms > 0 {
		p.SamplesPerS = float64(l.ShareSamples) / ms * 1000
	}
	if r.ended() {
		return p
	}
	if !r.heard && r.rank >= 0 {
		p.State = StateRunning
	}
	j.pending(r, &p)
	return p
}

// pending adds to a peer that has not ended what it does since its last step, if events tell.
func (j *Job) pending(r *row, p *Peer) {
	if r.cursor == 0 || j.latest <= r.cursor {
		return
	}
	since := max(r.cursor, r.open.from)
	d := j.latest.since(since)
	switch {
	case r.open.from != 0 && r.open.kind == holdParked:
		p.ParkedMS += milliseconds(d)
	case r.open.from != 0:
		p.State = StateWaiting
		p.Uses[Stalled] += d
	case !r.stepped && (r.founder || !r.member && r.hello == 0):
		since = r.cursor
		p.Uses[Start] += j.latest.since(since)
	case !r.stepped || r.catching:
		since = r.cursor
		p.Uses[CatchUp] += j.latest.since(since)
	default:
		return // a step is under way, and counts when it is over
	}
	// What lies between the last step and the wait is not known yet.
	p.Uses[Other] += since.since(r.cursor)
	p.End = j.latest.time()
}

// Straggler is a peer for which others have waited.
type Straggler struct {
	ID     string `json:"id"`
	Index  int    `json:"index"`
	Host   string `json:"host,omitempty"`
	Waited Waited `json:"waited"`
}

// Stragglers returns the peers for which others have waited, the longest first.
func (s Snapshot) Stragglers() (list []Straggler) {
	for _, p := range s.Peers {
		if p.WaitedFor.Total() > 0 {
			list = append(list, Straggler{p.ID, p.Index, p.Host, p.WaitedFor})
		}
	}
	slices.SortStableFunc(list, func(a, b Straggler) int {
		return cmp.Or(cmp.Compare(b.Waited.Total(), a.Waited.Total()), strings.Compare(a.ID, b.ID))
	})
	return list
}
