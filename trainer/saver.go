package trainer

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/trainer/checkpoint"
)

// saver writes checkpoints, and loads the checkpoint that a job resumes from. The state of a stable
// step is copied, and one goroutine at a time writes the copy, so that training continues during
// the write.
type saver struct {
	cfg    Checkpoint // settings of the user
	plan   plan
	agreed []elastic.Setting // settings of the job in which members agree
	base   checkpoint.Header // common part of all headers of the job
	emit   func(epoch uint64, step int64, body event.Body)
	log    func(format string, args ...any)
	busy   func(what string) (done func()) // reports to the members why this peer makes no progress
	wishes elastic.Sessions                // has the wishes for checkpoints
	// store is checkpoint.Write; tests replace it.
	store func(dir string, h checkpoint.Header, tensors []checkpoint.Tensor) (path string, err error)

	// claim is the right to write to the folder; nil before the first session, and without a folder.
	claim *checkpoint.Claim
	// runs are the IDs of runs, besides this one, whose checkpoints may be in the folder.
	runs []string
	// pending are lines about the state with which this peer begins if no member is left.
	pending []string

	step  int64     // last saved step, here or at the saving rank
	saved time.Time // time of the last checkpoint
	// copied is the copy of the state that is being written. The writer owns it while it runs.
	copied  []checkpoint.Tensor
	writing sync.WaitGroup
	idle    chan struct{} // holds an element while nothing is being written
}

// newSaver returns a saver for a job; agreed are the settings in which its members agree.
func newSaver(cfg Config, p plan, agreed []elastic.Setting) *saver {
	s := &saver{cfg: cfg.Checkpoint, plan: p, agreed: agreed, log: cfg.Hooks.log, saved: time.Now(),
		store: checkpoint.Write, idle: make(chan struct{}, 1)}
	s.base = checkpoint.Header{Seed: cfg.Seed, Samples: cfg.Samples, GlobalBatch: cfg.GlobalBatch, Microbatch: cfg.Microbatch,
		Optimizer: fmt.Sprintf("%T%+v", cfg.Optimizer, cfg.Optimizer), DataHash: cfg.DataHash, Settings: make(map[string]string), Program: make(map[string]string)}
	for _, setting := range agreed {
		s.base.Settings[setting.Name] = setting.Value
	}
	for _, setting := range cfg.Settings {
		s.base.Program[setting.Name] = setting.Value
	}
	s.idle <- struct{}{}
	return s
}

// due reports whether a stable step is to be saved. It stays true until a step is saved. So if a
// step is due while the previous checkpoint is still being written, a later step is saved in its
// place.
func (s *saver) due(step int64, now time.Time) bool {
	if s.cfg.Dir == "" {
		return false
	}
	every := s.cfg.EverySteps
	return every > 0 && step/every > s.step/every || s.cfg.Every > 0 && now.Sub(s.saved) >= s.cfg.Every
}

// stable saves the state after its last step, which has become stable, if a checkpoint is due or wished. mine
// is true if this peer writes the checkpoint; otherwise stable only records that the step is saved.
// final is true if no step follows. stable blocks for the copy, which is one pass over the state,
// and with final also for the previous write. The write to disk goes on afterwards. If the previous
// write takes longer than the interval, stable saves nothing and tries again after the next step.
func (s *saver) stable(of *state, mine, final bool) {
	now := time.Now()
	if wished := s.wishes.SaveDue(of.committed(), mine); !s.due(of.committed(), now) && (!wished || s.cfg.Dir == "") {
		return
	}
	if !mine {
		s.step, s.saved = of.committed(), now
		return
	}
	if final {
		s.wait() // no later step can be saved in place of the last step
	}
	select {
	case <-s.idle:
	default:
		return
	}
	s.step, s.saved = of.committed(), now
	ended := s.wishes.Saving(of.committed())
	o := of.last
	o.Shares = nil // all contributions have been reported
	h, err := s.copy(of, o)
	if err != nil {
		s.idle <- struct{}{}
		s.log("checkpoint of step %d: %v", of.committed(), err)
		ended("", err)
		return
	}
	s.writing.Go(func() {
		defer func() { s.idle <- struct{}{} }()
		ended(s.write(h, o.Epoch))
	})
}

// now saves the state and waits for the write, even if no checkpoint is due. It also saves a step
// that is committed but not stable, because the job may end here, and the state would be lost.
func (s *saver) now(of *state) {
	if s.cfg.Dir == "" || of.committed() == 0 || of.void {
		return
	}
	defer s.busy(busySaving)()
	s.writing.Wait()
	ended := s.wishes.Saving(of.committed())
	h, err := s.copy(of, of.last)
	if err != nil {
		s.log("checkpoint of step %d: %v", of.committed(), err)
		ended("", err)
		return
	}
	ended(s.write(h, of.last.Epoch))
}

// busySaving is what this peer does while it waits for a disk.
const busySaving = "writing a checkpoint"

// wait waits for the write in progress. The disk may be slow, so this peer is busy meanwhile:
// otherwise the others would put it out.
func (s *saver) wait() {
	defer s.busy(busySaving)()
	s.writing.Wait()
}

// copy copies the state, with o as the outcome of its last step, into memory that later steps do
// not change, and returns the header of the checkpoint.
func (s *saver) copy(of *state, o outcome) (checkpoint.Header, error) {
	tensors := tensorsOf(of)
	if s.copied == nil {
		s.copied = slices.Clone(tensors)
		for i := range s.copied {
			s.copied[i].Data = make([]float32, len(tensors[i].Data))
		}
	}
	for i, t := range tensors {
		copy(s.copied[i].Data, t.Data)
	}
	h := of.header(o)
	own, err := of.saveUpdater(&h)
	if err != nil {
		return checkpoint.Header{}, err
	}
	if h.Updater {
		s.copied = append(s.copied[:len(tensors)], updaterTensor(own))
	}
	return s.header(of, h), nil
}

// tensorsOf returns the vectors of a state with the names that they have in a checkpoint: the names
// of the parameters; optimizer.0.NAME for the optimizer state, by slot; and gradient.NAME for the
// gradient that a delay holds back.
func tensorsOf(s *state) []checkpoint.Tensor {
	var tensors []checkpoint.Tensor
	vectors := s.vectors()
	add := func(name string, shape []int) {
		tensors = append(tensors, checkpoint.Tensor{Name: name, Shape: slices.Clone(shape), Data: vectors[len(tensors)]})
	}
	names := tensorNames(s.params)
	for i, p := range s.params {
		add(names[i], p.Shape)
	}
	for i, p := range s.params {
		for slot := range s.rules.optimizer.Slots() {
			add(fmt.Sprintf("optimizer.%d.%s", slot, names[i]), p.Shape)
		}
	}
	// With a delay the state has one more vector for each parameter.
	for i := len(tensors); i < len(vectors); i++ {
		p := i % len(s.params)
		add("gradient."+names[p], s.params[p].Shape)
	}
	return tensors
}

// tensorNames returns the names of the parameters. A name that is empty, already taken or not valid
// UTF-8 gets the parameter's index as a prefix, as in 3.weight.
func tensorNames(params []Param) []string {
	names := make([]string, len(params))
	for i, p := range params {
		names[i] = strings.ToValidUTF8(p.Name, "")
		if names[i] == "" || names[i] != p.Name || slices.Contains(names[:i], names[i]) {
			names[i] = fmt.Sprintf("%d.%s", i, names[i])
		}
	}
	return names
}

// write writes the copy to disk, and returns the path of the file. An error is logged and does not end the job.
func (s *saver) write(h checkpoint.Header, epoch uint64) (path string, err error) {
	begun := time.Now()
	s.emit(epoch, h.Step, event.Saving{Path: checkpoint.Path(s.cfg.Dir, h.Step)})
	path, err = s.store(s.cfg.Dir, h, s.copied)
	also := err
	if err != nil {
		s.emit(epoch, h.Step, event.Saving{Path: checkpoint.Path(s.cfg.Dir, h.Step), Failed: err.Error()})
	} else {
		s.emit(epoch, h.Step, event.Checkpoint{Path: path, MS: milliseconds(time.Since(begun))})
		also = checkpoint.Keep(s.cfg.Dir, s.cfg.Keep, h.Step) // the checkpoint is written all the same
	}
	if also != nil {
		s.log("checkpoint of step %d: %v", h.Step, also)
	}
	return path, err
}

// header returns the header of a checkpoint of the state, which h describes.
func (s *saver) header(of *state, state header) checkpoint.Header {
	h := s.base
	h.Written = time.Now().UnixNano()
	next := s.plan.walk().Place(of.committed() + 1)
	h.Step, h.Pass, h.Position = of.committed(), next.Pass, int64(next.First)
	state.Digest = of.digest()
	h.State, _ = json.Marshal(state) // it cannot fail: all fields are numbers, texts and lists
	return h
}

// enter takes the IDs of the run, which are known once this peer is in a session, and claims the
// folder of the checkpoints in the first session. The error wraps checkpoint.ErrForeign. A folder
// that cannot be used is logged, as a failed write is.
func (s *saver) enter(run elastic.Run, session *elastic.Session, committed int64) error {
	s.base.Run = run.ID
	if len(s.pending) > 0 && firstView(session) && committed != s.step {
		s.pending = []string{fmt.Sprintf("begins anew after step %d, with the state of the members before", committed)}
	}
	for _, line := range s.pending {
		if firstView(session) {
			s.log("%s", line)
		}
	}
	s.pending = nil
	if s.cfg.Dir == "" || s.claim != nil {
		return nil
	}
	host, _ := os.Hostname() // for people only
	owner := checkpoint.Owner{Job: run.Job, Run: run.ID, Name: fmt.Sprintf("process %d on %s", os.Getpid(), host)}
	var err error
	if s.claim, err = checkpoint.Acquire(s.cfg.Dir, owner, s.runs...); errors.Is(err, checkpoint.ErrForeign) {
		return err
	}
	if err != nil {
		s.log("checkpoints cannot be saved: %v", err)
	}
	return nil
}

// close waits for the last write and gives up the folder.
func (s *saver) close() {
	s.wait()
	if s.claim != nil {
		_ = s.claim.Close() // only read, so nothing can be lost
	}
}

// source returns the folder to resume from, or "". A job that begins anew, because all its peers
// have died, goes on from its own checkpoints: then own is the ID of its run, and otherwise "".
func (s *saver) source(run elastic.Run) (dir, own string) {
	if s.cfg.Resume != "" || s.cfg.Dir == "" {
		return s.cfg.Resume, ""
	}
	if owner := checkpoint.OwnerOf(s.cfg.Dir); owner.Job == run.Job && owner.Run != "" {
		return s.cfg.Dir, owner.Run
	}
	return "", ""
}

// resume loads the newest intact checkpoint of the run that wrote last, if the job is to resume.
// Without a checkpoint the job begins at the first step, or this peer gets the state from others. A
// checkpoint of a job with other settings is an error. It marks this peer as busy meanwhile.
func (s *saver) resume(of *state, group *elastic.Group) error {
	dir, own := s.source(group.Sessions().Run())
	if dir == "" {
		return nil
	}
	defer group.Busy("loading a checkpoint")()
	// other is the first reason why a checkpoint belongs to another job; nil if none does.
	var other error
	c, problems, err := checkpoint.Latest(dir, func(h checkpoint.Header) error {
		if own != "" && h.Run != own {
			return errors.New("it belongs to another run")
		}
		err := s.fits(h)
		if other == nil {
			other = err
		}
		return err
	})
	for _, p := range problems {
		s.log("skipped a checkpoint: %v", p)
	}
	switch {
	case err == nil:
	case (errors.Is(err, checkpoint.ErrNone) || errors.Is(err, fs.ErrNotExist)) && other == nil:
		s.beginning(group, "no checkpoint to resume from in %s: starting at step 1", dir)
		return nil
	default:
		return fmt.Errorf("trainer: resume: %w", errors.Join(other, err))
	}
	if err := errors.Join(load(of, c), c.Close()); err != nil {
		return fmt.Errorf("trainer: resume from %s: %w", c.Path, err)
	}
	s.step = of.committed()
	return s.follow(c, group)
}

// beginning logs a line about the state with which this peer begins. A peer that joins a running job
// gets the state of the members: it logs the line only if it begins in a first view after all,
// because no member is left (enter).
func (s *saver) beginning(group *elastic.Group, format string, args ...any) {
	if group.View().Epoch == 0 {
		s.pending = append(s.pending, fmt.Sprintf(format, args...))
		return
	}
	s.log(format, args...)
}

// follow goes on with the run of a loaded checkpoint, and logs what the user may not expect of it.
func (s *saver) follow(c *checkpoint.Checkpoint, group *elastic.Group) error {
	if c.Run == "" {
		s.runs = append(s.runs, "")
	} else if err := group.Sessions().Resumed(c.Run); err != nil {
		return fmt.Errorf("trainer: resume from %s: %w", c.Path, err)
	}
	s.base.Run = group.Sessions().Run().ID
	if c.Run == "" {
		s.beginning(group, "resumed after step %d from %s, which has no ID of a run: an earlier version of elrun wrote it", c.Step, c.Path)
	} else {
		s.beginning(group, "resumed after step %d of run %s from %s", c.Step, c.Run, c.Path)
	}
	var changed []string
	for name, value := range s.base.Program {
		if was, ok := c.Program[name]; ok && was != value {
			changed = append(changed, fmt.Sprintf("%s %s (was %s)", name, value, was))
		}
	}
	if slices.Sort(changed); len(changed) > 0 {
		s.beginning(group, "this run has other settings than the checkpoint: %s", strings.Join(changed, ", "))
	}
	if last := s.plan.last(); c.Step >= last {
		s.beginning(group, "the checkpoint is of step %d, and this job has %d steps: nothing is left to train", c.Step, last)
	}
	return nil
}

// load replaces the state with the state in a checkpoint.
func load(s *state, c *checkpoint.Checkpoint) error {
	var h header
	if err := json.Unmarshal(c.State, &h); err != nil {
		return fmt.Errorf("decode its state: %w", err)
	}
	if h.Outcome.Step != c.Step {
		return fmt.Errorf("its state is of step %d but the file is of step %d", h.Outcome.Step, c.Step)
	}
	return s.replace(h, func() ([]byte, error) {
		own, tensors := make([]byte, h.UpdaterBytes), tensorsOf(s)
		if h.Updater {
			tensors = append(tensors, updaterTensor(own))
		}
		return own, c.Load(tensors)
	})
}

// fits returns an error that names the first setting in which a checkpoint differs from this job.
// Settings may differ if they change only the length of the job or the execution of steps.
func (s *saver) fits(h checkpoint.Header) error {
	for _, setting := range s.agreed {
		switch setting.Name {
		case settingSteps, settingSchedule, settingBuckets, settingArithmetic, settingBalance, settingCompress, settingAudit, settingSteal:
			continue
		}
		if got := h.Settings[setting.Name]; got != setting.Value {
			return fmt.Errorf("its %s is %q, this job has %q", setting.Name, got, setting.Value)
		}
	}
	// A job without growth does not have this setting.
	if got, there := h.Settings[settingGrowth]; there && s.plan.grown == nil {
		return fmt.Errorf("its %s is %q, the batch of this job does not grow", settingGrowth, got)
	}
	return nil
}
