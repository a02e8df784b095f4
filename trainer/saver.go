package trainer

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
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
	cfg  Checkpoint // settings of the user
	plan plan
	held []elastic.Setting // settings of the job in which members agree
	base checkpoint.Header // common part of all headers of the job
	emit func(epoch uint64, step int64, body event.Body)
	log  func(format string, args ...any)

	step  int64     // last saved step, here or at the saving rank
	saved time.Time // time of the last checkpoint
	// copied is the copy of the state that is being written. The writer owns it while it runs.
	copied  []checkpoint.Tensor
	writing sync.WaitGroup
	idle    chan struct{} // holds an element while nothing is being written
}

// newSaver returns a saver for a job; held are the settings in which its members agree.
func newSaver(cfg Config, p plan, held []elastic.Setting) *saver {
	v := &saver{cfg: cfg.Checkpoint, plan: p, held: held, log: cfg.Hooks.log, saved: time.Now(), idle: make(chan struct{}, 1)}
	v.base = checkpoint.Header{Seed: cfg.Seed, Samples: cfg.Samples, GlobalBatch: cfg.GlobalBatch, Microbatch: cfg.Microbatch,
		Optimizer: fmt.Sprintf("%T%+v", cfg.Optimizer, cfg.Optimizer), DataHash: cfg.DataHash, Settings: make(map[string]string)}
	for _, s := range held {
		v.base.Settings[s.Name] = s.Value
	}
	v.idle <- struct{}{}
	return v
}

// due reports whether a stable step is to be saved. It stays true until a step is saved. So if a
// step is due while the previous checkpoint is still being written, a later step is saved in its
// place.
func (v *saver) due(step int64, now time.Time) bool {
	if v.cfg.Dir == "" {
		return false
	}
	every := v.cfg.EverySteps
	return every > 0 && step/every > v.step/every || v.cfg.Every > 0 && now.Sub(v.saved) >= v.cfg.Every
}

// stable saves the state after its last step, which has become stable, if a checkpoint is due. mine
// is true if this peer writes the checkpoint; otherwise stable only records that the step is saved.
// final is true if no step follows. stable blocks for the copy, which is one pass over the state,
// and with final also for the previous write. The write to disk goes on afterwards. If the previous
// write takes longer than the interval, stable saves nothing and tries again after the next step.
func (v *saver) stable(s *state, mine, final bool) {
	now := time.Now()
	if !v.due(s.committed(), now) {
		return
	}
	if !mine {
		v.step, v.saved = s.committed(), now
		return
	}
	if final {
		v.writing.Wait() // no later step can be saved in place of the last step
	}
	select {
	case <-v.idle:
	default:
		return
	}
	v.step, v.saved = s.committed(), now
	o := s.last
	o.Shares = nil // all contributions have been reported
	h := v.copy(s, o)
	v.writing.Go(func() {
		defer func() { v.idle <- struct{}{} }()
		v.write(h, o.Epoch)
	})
}

// now saves the state and waits for the write, even if no checkpoint is due. It also saves a step
// that is committed but not stable, because the job may end here, and the state would be lost.
func (v *saver) now(s *state) {
	if v.cfg.Dir == "" || s.committed() == 0 || s.void {
		return
	}
	v.writing.Wait()
	v.write(v.copy(s, s.last), s.last.Epoch)
}

// copy copies the state, with o as the outcome of its last step, into memory that later steps do
// not change, and returns the header of the checkpoint.
func (v *saver) copy(s *state, o outcome) checkpoint.Header {
	tensors := tensorsOf(s)
	if v.copied == nil {
		v.copied = slices.Clone(tensors)
		for i := range v.copied {
			v.copied[i].Data = make([]float32, len(tensors[i].Data))
		}
	}
	for i, t := range tensors {
		copy(v.copied[i].Data, t.Data)
	}
	return v.header(s, o)
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

// write writes the copy to disk. An error is logged and does not end the job.
func (v *saver) write(h checkpoint.Header, epoch uint64) {
	begun := time.Now()
	path, err := checkpoint.Write(v.cfg.Dir, h, v.copied)
	if err == nil {
		v.emit(epoch, h.Step, event.Checkpoint{Path: path, MS: milliseconds(time.Since(begun))})
		err = checkpoint.Keep(v.cfg.Dir, v.cfg.Keep, h.Step)
	}
	if err != nil {
		v.log("checkpoint of step %d: %v", h.Step, err)
	}
}

// header returns the header of a checkpoint of the state, with o as the outcome of its last step.
func (v *saver) header(s *state, o outcome) checkpoint.Header {
	h := v.base
	h.Step, h.Pass = s.committed(), s.committed()/v.plan.perPass
	h.Position = s.committed() % v.plan.perPass * int64(v.plan.global)
	state := s.header(o)
	state.Digest = s.digest()
	h.State, _ = json.Marshal(state) // it cannot fail: all fields are numbers, texts and lists
	return h
}

// resume loads the newest intact checkpoint, if the job is to resume from one. Without a
// checkpoint the job begins at the first step, or this peer gets the state from others. A
// checkpoint of another job is an error. busy marks this peer as busy until the function that it
// returns is called.
func (v *saver) resume(s *state, busy func(what string) (idle func())) error {
	dir := v.cfg.Resume
	if dir == "" {
		return nil
	}
	defer busy("loading a checkpoint")()
	// other is the first reason why a checkpoint belongs to another job; nil if none does.
	var other error
	c, problems, err := checkpoint.Latest(dir, func(h checkpoint.Header) error {
		err := v.fits(h)
		if other == nil {
			other = err
		}
		return err
	})
	for _, p := range problems {
		v.log("skipped a checkpoint: %v", p)
	}
	switch {
	case err == nil:
	case (errors.Is(err, checkpoint.ErrNone) || errors.Is(err, fs.ErrNotExist)) && other == nil:
		v.log("no checkpoint to resume from in %s: starting at step 1", dir)
		return nil
	default:
		return fmt.Errorf("trainer: resume: %w", errors.Join(other, err))
	}
	if err := errors.Join(load(s, c), c.Close()); err != nil {
		return fmt.Errorf("trainer: resume from %s: %w", c.Path, err)
	}
	v.log("resumed after step %d from %s", s.committed(), c.Path)
	v.step = s.committed()
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
	return s.replace(h, func() error { return c.Load(tensorsOf(s)) })
}

// fits returns an error that names the first setting in which a checkpoint differs from this job.
// Settings may differ if they change only the length of the job or the execution of steps.
func (v *saver) fits(h checkpoint.Header) error {
	for _, s := range v.held {
		switch s.Name {
		case settingSteps, settingSchedule, settingBuckets, settingArithmetic, settingBalance, settingCompress, settingAudit:
			continue
		}
		if got := h.Settings[s.Name]; got != s.Value {
			return fmt.Errorf("its %s is %q, this job has %q", s.Name, got, s.Value)
		}
	}
	return nil
}
