package trace

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/event/timeline"
)

// Options say what a trace has.
type Options struct {
	// Hosts is what a first pass over the logs has told. Without it the events of the trace tell it: then a peer of another host is
	// on the clock of its own host until the offset is measured.
	Hosts *Hosts
	// First and Last are the first and the last step of the trace; 0 for no bound. Of all else the trace then has what
	// happens from the first report of one of these steps to the first one of a later step.
	First, Last int64
}

// Writer writes the trace of a job. It is not safe for concurrent use.
type Writer struct {
	o      Options
	learns bool // the hosts are those of the events
	to     io.Writer
	tracks tracks
	model  *timeline.Job // has the figures of the counters
	job    process
	peers  map[string]*peer // by short ID
	at     int64            // latest time
	begun  bool             // the first packet is written
	within bool             // the steps of the trace have begun
	past   bool             // they have ended
	epoch  epoch
	seen   once[happening]
	step   int64 // latest step of the counters
	meter  meter
}

// epoch is the latest view.
type epoch struct {
	number  uint64
	members []string
	reason  string
	open    bool // its slice has begun
}

// happening is something that several peers may report.
type happening struct {
	kind, who string
	epoch     uint64
	step      int64
}

// meter measures the goodput between two times.
type meter struct {
	at     int64
	before timeline.Uses
}

// meterPeriod is the time between two values of the counter goodput.
const meterPeriod = time.Second

// New returns a Writer to a file, which stays the caller's.
func New(to io.Writer, o Options) *Writer {
	w := &Writer{o: o, learns: o.Hosts == nil, to: to, model: timeline.New(), peers: make(map[string]*peer),
		job: process{name: "job", main: "epochs"}}
	if w.learns {
		w.o.Hosts = &Hosts{}
	}
	return w
}

// Add adds an event of any elrun of the job. Events of one peer come in their order. An event that makes no sense has no
// effect; Add never fails, and Close returns the error of the file.
func (w *Writer) Add(e event.Event) {
	if e.Body == nil {
		return
	}
	if w.learns {
		w.o.Hosts.Add(e)
	}
	at := cmp.Or(w.o.Hosts.convert(e.Peer, e.Time), w.at)
	w.at = max(w.at, at)
	if at == 0 {
		return
	}
	e.Time = time.Unix(0, at)
	if b, ok := e.Body.(event.Step); ok && !b.Began.IsZero() {
		if began := w.o.Hosts.convert(e.Peer, b.Began); began != 0 {
			b.Began = time.Unix(0, began)
			e.Body = b
		}
	}
	w.model.Add(e)
	draws := w.draws(e)
	if b, ok := e.Body.(event.View); ok {
		w.view(e, b, at, draws)
	} else if draws {
		w.draw(e, at)
	}
}

// draws reports whether an event belongs to the steps of the trace.
func (w *Writer) draws(e event.Event) bool {
	if w.o.First == 0 && w.o.Last == 0 {
		return true
	}
	if _, ok := e.Body.(event.Step); !ok {
		return w.within && !w.past
	}
	w.past = w.past || w.o.Last > 0 && e.Step > w.o.Last
	in := e.Step >= w.o.First && (w.o.Last == 0 || e.Step <= w.o.Last)
	w.within = w.within || in
	return in
}

// draw writes what an event shows.
func (w *Writer) draw(e event.Event, at int64) {
	switch b := e.Body.(type) {
	case event.Step:
		w.stepped(e, b, at)
		return
	case event.Usage:
		w.used(e, b, at)
		return
	}
	if m, ok := w.slice(e); ok {
		w.beside(e, m, at)
		return
	}
	w.happened(e, at)
}

// start writes what is before all else.
func (w *Writer) start(at int64) {
	if w.begun {
		return
	}
	w.begun = true
	w.tracks.to.begin(w.to, at)
	w.tracks.root(at)
	w.tracks.open(&w.job, 0, at)
	if w.epoch.number > 0 {
		w.enter(at)
	}
}

// Close ends the trace. It returns the first error of the file, of which only a part is written then. The file is not closed.
func (w *Writer) Close() error {
	w.start(max(1, w.at))
	w.leave(w.at)
	return w.tracks.to.close()
}

// peer returns the peer of an event, whose tracks are there from a time on; nil if it has none, or there are too many peers.
func (w *Writer) peer(e event.Event, at int64) *peer {
	if p := w.peers[e.Peer]; p != nil {
		return p
	}
	if e.Peer == "" || len(w.peers) >= maxPeers {
		return nil
	}
	w.start(at)
	p := &peer{process: process{name: w.title(e.Peer), main: "step"}}
	w.peers[e.Peer] = p
	p.rank = int64(slices.Index(w.epoch.members, e.Peer) + 1)
	if p.rank == 0 {
		p.rank = int64(len(w.epoch.members) + len(w.peers)) // after the members
	}
	a := w.o.Hosts.members[e.Peer]
	about := []arg{text("id", e.Peer), whole("index", int64(e.Index)), text("host", a.Host), text("machine", a.Machine), text("site", a.Site),
		text("launcher", a.Launcher), whole("pid", int64(a.PID)), text("system", strings.Trim(a.OS+"/"+a.Arch, "/")), whole("cores", int64(a.Cores)), text("elrun", a.Elrun)}
	if offset, most, known := w.o.Hosts.Offset(e.Peer, e.Time); known {
		clock := fmt.Sprintf("%+.3f ms, error %.3f ms", offset.Seconds()*1000, most.Seconds()*1000)
		p.label = "clock " + clock
		about = append(about, text("clock", clock))
	}
	w.tracks.open(&p.process, int64(a.PID), at)
	w.tracks.instant(&p.process, at, mark{category: "job", name: "peer", args: about})
	return p
}

// title returns how the trace names a peer, as in "2 B7C22n75 @ lab3".
func (w *Writer) title(id string) string {
	m, ok := w.o.Hosts.members[id]
	switch {
	case !ok:
		return id
	case m.Host == "":
		return fmt.Sprintf("%d %s", m.WhoIndex, id)
	}
	return fmt.Sprintf("%d %s @ %s", m.WhoIndex, id, m.Host)
}

// view writes the end of a view and the begin of the next, if the trace has begun.
func (w *Writer) view(e event.Event, b event.View, at int64, draws bool) {
	if e.Epoch <= w.epoch.number {
		return
	}
	if draws {
		w.start(at)
	}
	w.leave(at) // also after the steps of the trace
	w.epoch = epoch{number: e.Epoch, members: slices.Clone(b.Members[:min(len(b.Members), maxPeers)]), reason: b.Reason}
	if draws {
		w.enter(at)
	}
}

// enter begins the slice of the latest view.
func (w *Writer) enter(at int64) {
	v := &w.epoch
	v.open = true
	var names []string
	for _, id := range v.members {
		names = append(names, w.title(id))
	}
	w.tracks.to.mark(typeBegin, w.job.thread.id, w.job.thread.moves(at), mark{category: "job", name: "epoch", number: int64(v.number), args: []arg{
		text("reason", v.reason), whole("members", int64(len(names))), text("names", strings.Join(names, ", "))}})
	w.tracks.count(&w.job, "members", unit{}, at, float64(len(names)))
}

// leave ends the slice of the latest view. What the change has cost is known then.
func (w *Writer) leave(at int64) {
	if !w.epoch.open {
		return
	}
	w.epoch.open = false
	var args []arg
	if v, ok := w.model.View(w.epoch.number); ok {
		args = []arg{number("cost_ms", v.CostMS), whole("computed_again", int64(v.Recomputed))}
	}
	w.tracks.to.end(w.job.thread.id, w.job.thread.moves(at), nil, args...)
}
