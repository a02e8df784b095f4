package trainer

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync"
	"time"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/trainer/checkpoint"
)

// saver writes checkpoints, and loads the checkpoint that a job resumes from. A stable step's
// state is copied, and one goroutine at a time writes the copy, so that steps go on meanwhile.
type saver struct {
	cfg  Checkpoint // settings of the user
	plan plan
	held []elastic.Setting // settings of the job in which members agree
	base checkpoint.Header // common part of all headers of the job
	emit func(epoch uint64, step int64, body event.Body)
	log  func(format string, args ...any)

	step    int64        // last saved step, here or at the saving rank
	saved   time.Time    // time of the last checkpoint
	copied  bytes.Buffer // encoded state that is being written; owned by the writer while it runs
	writing sync.WaitGroup
	idle    chan struct{} // holds an element while nothing is being written
}

// newSaver returns a saver for a job; held are the settings in which its members agree.
func newSaver(cfg Config, p plan, params []Param, held []elastic.Setting) *saver {
	v := &saver{cfg: cfg.Checkpoint, plan: p, held: held, log: cfg.log, saved: time.Now(), idle: make(chan struct{}, 1)}
	v.base = checkpoint.Header{Seed: cfg.Seed, Samples: cfg.Samples, GlobalBatch: cfg.GlobalBatch, Microbatch: cfg.Microbatch,
		Optimizer: fmt.Sprintf("%T%+v", cfg.Optimizer, cfg.Optimizer), DataHash: cfg.DataHash, Settings: make(map[string]string)}
	for _, p := range params {
		v.base.Params = append(v.base.Params, checkpoint.Param{Name: p.Name, Shape: p.Shape})
	}
	for _, s := range held {
		v.base.Settings[s.Name] = s.Value
	}
	v.idle <- struct{}{}
	return v
}

// due reports whether a stable step is to be saved. It stays true until a step is saved, so a
// step that is due while a checkpoint is being written is made up for.
func (v *saver) due(step int64, now time.Time) bool {
	if v.cfg.Dir == "" {
		return false
	}
	every := v.cfg.EverySteps
	return every > 0 && step/every > v.step/every || v.cfg.Every > 0 && now.Sub(v.saved) >= v.cfg.Every
}

// stable saves the state after its last step, which has become stable, if that is due. mine tells
// whether this peer writes the checkpoint. final means that no later step follows.
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
		v.writing.Wait() // no later step would make up for this one
	}
	select {
	case <-v.idle:
	default:
		return
	}
	v.step, v.saved = s.committed(), now
	o := s.last
	o.Shares = nil // all contributions have been reported
	if !v.copy(s, o) {
		v.idle <- struct{}{}
		return
	}
	h := v.header(s)
	v.writing.Go(func() {
		defer func() { v.idle <- struct{}{} }()
		v.write(h, o.Epoch)
	})
}

// now saves the state and waits for the write, even if no checkpoint is due. It also saves a step
// that is committed but not stable, because the job may end here.
func (v *saver) now(s *state) {
	if v.cfg.Dir == "" || s.committed() == 0 || s.void {
		return
	}
	v.writing.Wait()
	if v.copy(s, s.last) {
		v.write(v.header(s), s.last.Epoch)
	}
}

// copy encodes the state into a buffer that later steps do not change.
func (v *saver) copy(s *state, o outcome) bool {
	v.copied.Reset()
	err := s.save(&v.copied, o)
	if err != nil {
		v.log("no checkpoint: %v", err)
	}
	return err == nil
}

// write writes the copy to disk. An error is logged and does not end the job.
func (v *saver) write(h checkpoint.Header, epoch uint64) {
	begun := time.Now()
	path, err := checkpoint.Write(v.cfg.Dir, h, func(w io.Writer) error {
		_, err := w.Write(v.copied.Bytes())
		return err
	})
	if err == nil {
		v.emit(epoch, h.Step, event.Checkpoint{Path: path, MS: milliseconds(time.Since(begun))})
		err = checkpoint.Keep(v.cfg.Dir, v.cfg.Keep, h.Step)
	}
	if err != nil {
		v.log("checkpoint of step %d: %v", h.Step, err)
	}
}

// header returns the header of a checkpoint of the state.
func (v *saver) header(s *state) checkpoint.Header {
	h := v.base
	h.Step, h.Pass = s.committed(), s.committed()/v.plan.perPass
	h.Position = s.committed() % v.plan.perPass * int64(v.plan.global)
	h.Exponents = s.scale.Exponents()
	return h
}

// resume loads the newest intact checkpoint, if the job is to resume from one. Without a
// checkpoint the job begins at the first step, or this peer gets the state from others. A
// checkpoint of another job is an error. busy marks this peer as busy until its result is called.
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
		v.log("passed over a checkpoint: %v", p)
	}
	switch {
	case err == nil:
	case (errors.Is(err, checkpoint.ErrNone) || errors.Is(err, fs.ErrNotExist)) && other == nil:
		v.log("no checkpoint to go on from in %s", dir)
		return nil
	default:
		return fmt.Errorf("trainer: resume: %w", errors.Join(other, err))
	}
	err = errors.Join(c.Load(s.Load), c.Close())
	if err == nil && s.committed() != c.Step {
		err = fmt.Errorf("the state is of step %d, the file of step %d", s.committed(), c.Step)
	}
	if err != nil {
		return fmt.Errorf("trainer: resume from %s: %w", c.Path, err)
	}
	v.log("going on after step %d from %s", s.committed(), c.Path)
	v.step = s.committed()
	return nil
}

// fits returns an error that names the first setting in which a checkpoint differs from this job.
// The length of the job and the execution of steps may differ.
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
