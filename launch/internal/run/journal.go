package run

import (
	"runtime"
	"time"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/event/timeline"
	"github.com/elrun/elrun/internal/cores"
	"github.com/elrun/elrun/launch/internal/proc"
	"github.com/elrun/elrun/launch/spec"
)

// journal has what the launcher knows of the job as events: those of its peers, and its own, which it emits to
// the event log: what the job is, which processes its peers are, where the members of other launchers
// are, and how its processes end. The launcher's loop owns it.
type journal struct {
	to       event.Sink
	model    *timeline.Job
	hooks    *hooks
	scalars  *scalarLog
	trace    *traceLog
	records  *recordLog
	tape     tape
	sink     event.Sink      // of the options; nil for none
	launcher string          // name of this launcher
	named    map[string]bool // short IDs of members of other launchers, as of the latest view
}

// start starts what else gets the events: the commands, the files and the sink of o.
func (j *journal) start(o *spec.Options, say func(format string, args ...any), orphans *proc.ChildReaper) (err error) {
	j.sink = o.Output.Sink
	if j.scalars, err = (&scalarLog{say: say}).start(o); err != nil {
		return err
	}
	if j.trace, err = (&traceLog{say: say}).start(o); err != nil {
		j.scalars.finish(consolePatience)
		return err
	}
	j.hooks = (&hooks{say: say, orphans: orphans}).start(o)
	j.records = (&recordLog{say: say}).start(o)
	return nil
}

// emit emits an event about the peer with an index and a short ID.
func (j *journal) emit(index int, id string, b event.Body) {
	e := event.Event{Time: time.Now(), Peer: id, Index: index, Body: b}
	j.to.Emit(e)
	j.add(e)
}

// add adds an event, of this launcher or of a peer.
func (j *journal) add(e event.Event) {
	j.model.Add(e)
	j.hooks.offer(e, time.Now())
	j.records.offer(e, time.Now())
	j.scalars.offer(e, j.model)
	j.trace.offer(e)
	j.tape.add(e)
	if j.sink != nil {
		j.sink.Emit(e)
	}
}

// drain adds the lines for people that wait in notes. They are in the event log already.
func (j *journal) drain(notes <-chan event.Event) {
	for {
		select {
		case e := <-notes:
			j.add(e)
		default:
			return
		}
	}
}

// job emits the event of the start of a job, before any other event.
func (j *journal) job(o *spec.Options) {
	e := event.Job{Job: o.Job, Elrun: spec.Version, Launcher: j.launcher, Program: o.Program, Args: o.Args, Log: o.Output.EventsPath}
	if o.Output.HideArgs {
		e.Args = nil
	}
	j.emit(event.NoPeer, "", e)
}

// hello emits the event of a peer of this launcher that has a new ID; c is its process.
func (j *journal) hello(self elastic.Member, c *child) {
	e := memberEvent(self)
	e.Launcher, e.Elrun = j.launcher, spec.Version
	if c != nil {
		e.PID, e.Began = c.PID(), c.begun
		if c.host == "" {
			e.OS, e.Arch, e.Cores = runtime.GOOS, runtime.GOARCH, cores.Count()
		}
	}
	j.emit(self.Index, self.ID.Short(), e)
}

// learn emits the events of the members of other launchers that the latest view has and the one before has
// not.
func (j *journal) learn(others []elastic.Member) {
	before := j.named
	j.named = make(map[string]bool)
	for _, m := range others {
		id := m.ID.Short()
		j.named[id] = true
		if !before[id] {
			j.emit(event.NoPeer, "", memberEvent(m))
		}
	}
}

// memberEvent returns the event of a member, with what a view has of it.
func memberEvent(m elastic.Member) event.Member {
	return event.Member{Who: m.ID.Short(), WhoIndex: m.Index, Host: m.Host, Machine: m.Machine, Site: m.Site, Launcher: m.Launcher}
}

// exit emits the event of the end of a process. id is the short ID of its peer, "" before its hello.
func (j *journal) exit(e spec.Exit, id string) {
	j.emit(e.Index, id, event.Exit{PID: e.PID, Status: e.Code, Signal: int(e.Signal), Lost: e.Lost, Asked: e.Asked, Says: e.Says,
		RanS: e.Ran.Seconds(), CPUS: e.CPU.Seconds(), MaxRSS: e.MaxRSS})
}

// notice emits the event of a context that has ended.
func (j *journal) notice(cause string) { j.emit(event.NoPeer, "", event.Notice{Cause: cause}) }

// finish waits for the commands and the files of events, as long as the patience each.
func (j *journal) finish(patience time.Duration) {
	j.hooks.finish(patience)
	j.scalars.finish(patience)
	j.trace.finish(patience)
	j.trace = nil // lines for people come after it
}
