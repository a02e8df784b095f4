package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/event"
)

// Config has the settings of a State.
type Config struct {
	Dir        string // target folder; empty saves nothing
	EverySteps int64  // interval in steps; 0 saves only the last step
	Keep       int    // number of checkpoints to keep in Dir; 0 means 3
	// Resume, if set, is a folder with checkpoints: the state begins with the newest intact one of the
	// run that wrote last. Without one it begins at the first step.
	Resume string
	// Log gets lines for people: where the state comes from, skipped files, and saves that failed. nil
	// discards them.
	Log func(format string, args ...any)
}

// State is the state of a loop over elastic.Group.Steps, with checkpoints. The peer of rank 0 saves
// the state in the background, every Config.EverySteps steps and after the last step. If too few
// peers are left, each of them saves, because the job may never continue; so does the last peer that
// leaves as asked. A save that fails does not end the loop.
type State struct {
	elastic.State // of the tensors
	group         *elastic.Group
	cfg           Config
	step          *int64
	tensors       []Tensor

	claim *Claim // the right to write to the folder; nil before the first session, and without it
	// runs are the IDs of runs, besides this one, whose checkpoints may be in the folder.
	runs    []string
	pending []string // lines about the state with which this peer begins
	entered bool
	epoch   uint64              // of the latest session
	end     func(finished bool) // of Sessions.Saves
	saved   int64               // last saved step, here or at the saving rank

	// copied is the copy of the tensors that is being written. The writer owns it while it runs.
	copied  []Tensor
	writing sync.WaitGroup
	idle    chan struct{} // holds an element while nothing is being written
}

// NewState returns the state of a loop of a group: the number of committed steps, which the code
// that commits a step increments, and named tensors. A tensor without a shape is a vector. Give a
// slice by its address, or change it only in place, as for elastic.Vectors. NewState resumes: it
// fills step and tensors from a checkpoint, which must have the same tensors. All peers pass the same
// tensors, and call NewState before Steps. The caller closes the state after the loop.
//
//	state, err := checkpoint.NewState(g, checkpoint.Config{Dir: dir, EverySteps: 100, Resume: resume}, &step,
//		checkpoint.Tensor{Name: "weights", Values: &w})
//	if err != nil {
//		return err
//	}
//	defer state.Close()
//	for t := range g.Steps(ctx, state, steps) {
//
// If all peers of the job have died and are started again, they go on from Dir. A job is refused at
// its first session, by an error of the loop that is ErrForeign, if Dir has checkpoints of another
// run or belongs to another job that runs.
func NewState(g *elastic.Group, cfg Config, step *int64, tensors ...Tensor) (*State, error) {
	s := &State{group: g, cfg: cfg, step: step, tensors: slices.Clone(tensors), idle: make(chan struct{}, 1)}
	s.idle <- struct{}{}
	if cfg.EverySteps < 0 || cfg.Keep < 0 || step == nil {
		return nil, fmt.Errorf("checkpoint: state: EverySteps %d, Keep %d, step %v: want 0 or more, and the address of the step", cfg.EverySteps, cfg.Keep, step)
	}
	if s.cfg.Keep == 0 {
		s.cfg.Keep = 3
	}
	var values []any
	for i := range s.tensors {
		t := &s.tensors[i]
		if t.Values == nil {
			t.Values = t.Data
		}
		b, kind, err := t.elements()
		if err != nil {
			return nil, fmt.Errorf("checkpoint: state: %w", err)
		}
		if t.Shape == nil {
			t.Shape = []int{len(b) / sizes()[kind]}
		}
		values = append(values, t.Values)
	}
	if _, err := tensorHeader(s.tensors, nil); err != nil {
		return nil, fmt.Errorf("checkpoint: state: %w", err)
	}
	s.State = elastic.Vectors(step, values...)
	if err := s.resume(); err != nil {
		return nil, fmt.Errorf("checkpoint: state: %w", err)
	}
	g.Sessions().OnQuorumLost(s.now)
	s.end = g.Sessions().Saves(cfg.Dir)
	return s, nil
}

// Unwrap returns the state of the tensors, without the checkpoints.
func (s *State) Unwrap() elastic.State { return s.State }

// logf passes a line to the user's function.
func (s *State) logf(format string, args ...any) {
	if s.cfg.Log != nil {
		s.cfg.Log(format, args...)
	}
}

// source returns the folder to resume from, or "". A job that begins anew, because all its peers
// have died, goes on from its own checkpoints: then own is the ID of its run, and otherwise "".
func (s *State) source() (dir, own string) {
	if s.cfg.Resume != "" || s.cfg.Dir == "" {
		return s.cfg.Resume, ""
	}
	if owner := OwnerOf(s.cfg.Dir); owner.Job == s.group.Sessions().Run().Job && owner.Run != "" {
		return s.cfg.Dir, owner.Run
	}
	return "", ""
}

// resume loads the checkpoint from which the job goes on, if there is one.
func (s *State) resume() error {
	dir, own := s.source()
	if dir == "" {
		return nil
	}
	defer s.group.Busy("loading a checkpoint")()
	c, problems, err := Latest(dir, func(h Header) error {
		if own != "" && h.Run != own {
			return errors.New("it belongs to another run")
		}
		return nil
	})
	for _, p := range problems {
		s.logf("skipped a checkpoint: %v", p)
	}
	if errors.Is(err, ErrNone) || errors.Is(err, fs.ErrNotExist) {
		s.pending = append(s.pending, fmt.Sprintf("no checkpoint to resume from in %s: starting at step 1", dir))
		return nil
	}
	if err != nil {
		return err
	}
	if err := errors.Join(c.Load(s.tensors), c.Close()); err != nil {
		return err
	}
	*s.step, s.saved = c.Step, c.Step
	run := "run " + c.Run
	if c.Run == "" {
		s.runs, run = append(s.runs, ""), "a run without an ID"
	} else if err := s.group.Sessions().Resumed(c.Run); err != nil {
		return err
	}
	s.pending = append(s.pending, fmt.Sprintf("resumed after step %d of %s from %s", c.Step, run, c.Path))
	return nil
}

// Inner implements elastic.Watched.
func (s *State) Inner() elastic.State { return s.State }

// Stable implements elastic.Watched: it saves the state if that is due.
func (s *State) Stable(session *elastic.Session, last bool) error {
	s.epoch = session.View.Epoch
	if err := s.enter(); err != nil {
		return err
	}
	every := s.cfg.EverySteps
	due := every > 0 && *s.step/every > s.saved/every || last && *s.step > s.saved
	if wished := s.group.Sessions().SaveDue(*s.step, session.Rank == 0); !due && !wished || s.cfg.Dir == "" {
		return nil
	}
	if session.Rank != 0 {
		s.saved = *s.step
		return nil
	}
	if last {
		s.wait() // no later step can be saved in place of the last step
	}
	select {
	case <-s.idle:
	default: // the previous write goes on: a later step is saved
		return nil
	}
	h, epoch, ended := s.copy(), s.epoch, s.group.Sessions().Saving(*s.step)
	s.writing.Go(func() {
		defer func() { s.idle <- struct{}{} }()
		ended(s.write(h, epoch))
	})
	if last {
		s.wait()
	}
	return nil
}

// enter claims the folder in the first session, when the IDs of the run are known. A folder that
// cannot be used is logged, as a failed write is.
func (s *State) enter() (err error) {
	if s.entered {
		return nil
	}
	s.entered = true
	// The state of a peer that joins a running job comes from the members.
	for _, line := range s.pending {
		if *s.step == s.saved {
			s.logf("%s", line)
		}
	}
	if s.cfg.Dir == "" {
		return nil
	}
	run := s.group.Sessions().Run()
	host, _ := os.Hostname() // for people only
	owner := Owner{Job: run.Job, Run: run.ID, Name: fmt.Sprintf("process %d on %s", os.Getpid(), host)}
	if s.claim, err = Acquire(s.cfg.Dir, owner, s.runs...); errors.Is(err, ErrForeign) {
		return err
	}
	if err != nil {
		s.logf("checkpoints cannot be saved: %v", err)
	}
	return nil
}

// now saves the state and waits for the write, as the job may end here.
func (s *State) now() {
	if s.claim == nil || *s.step <= s.saved {
		return
	}
	s.wait()
	defer s.group.Busy(busySaving)()
	ended := s.group.Sessions().Saving(*s.step)
	ended(s.write(s.copy(), s.epoch))
}

// busySaving is what this peer does while it waits for a disk.
const busySaving = "writing a checkpoint"

// wait waits for the write in progress.
func (s *State) wait() {
	defer s.group.Busy(busySaving)()
	s.writing.Wait()
}

// copy copies the tensors into memory that later steps do not change, and returns the header of the
// checkpoint.
func (s *State) copy() Header {
	s.saved = *s.step
	if s.copied == nil {
		s.copied = slices.Clone(s.tensors)
	}
	for i, t := range s.tensors {
		b, kind, _ := t.elements()            // NewState has checked the type
		before, _ := s.copied[i].Values.(raw) // of the last copy, if there was one
		s.copied[i].Values = raw{kind, append(before.b[:0], b...)}
	}
	return Header{Step: *s.step, Run: s.group.Sessions().Run().ID, Written: time.Now().UnixNano()}
}

// write writes the copy to disk, in a session of the given epoch, and returns the path of the file. An error is logged and does not
// end the job.
func (s *State) write(h Header, epoch uint64) (path string, err error) {
	begun, path := time.Now(), Path(s.cfg.Dir, h.Step)
	s.group.Sessions().Emit(epoch, h.Step, event.Saving{Path: path})
	_, err = Write(s.cfg.Dir, h, s.copied)
	also := err
	if err != nil {
		s.group.Sessions().Emit(epoch, h.Step, event.Saving{Path: path, Failed: err.Error()})
	} else {
		s.group.Sessions().Emit(epoch, h.Step, event.Checkpoint{Path: path, MS: float64(time.Since(begun)) / float64(time.Millisecond)})
		also = Keep(s.cfg.Dir, s.cfg.Keep, h.Step) // the checkpoint is written all the same
	}
	if also != nil {
		s.logf("checkpoint of step %d: %v", h.Step, also)
	}
	return path, err
}

// Close waits for the last write, and gives up the folder. If this peer was the last one and has left
// as asked, it first saves the state. Call it after the loop, before the group is closed.
func (s *State) Close() error {
	if errors.Is(s.group.Err(), elastic.ErrLast) {
		s.now()
	}
	s.wait()
	s.end(s.group.Err() == nil)
	if s.claim == nil {
		return nil
	}
	claim := s.claim
	s.claim = nil
	return claim.Close()
}
