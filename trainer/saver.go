package trainer

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync"
	"time"

	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/trainer/checkpoint"
)

// saver writes checkpoints. One goroutine at a time writes what has been copied before,
// so that steps go on meanwhile.
type saver struct {
	cfg     Checkpoint
	step    int64     // last one that was saved, here or by the rank that saves
	saved   time.Time // when
	copied  bytes.Buffer
	writing sync.WaitGroup
	idle    chan struct{} // holds an element while nothing is being written
}

func newSaver(cfg Checkpoint) *saver {
	v := &saver{cfg: cfg, saved: time.Now(), idle: make(chan struct{}, 1)}
	v.idle <- struct{}{}
	return v
}

// due reports whether a stable step is to be saved. It holds until a step has been
// saved, so one that falls into the writing of another is made up for.
func (v *saver) due(step int64, now time.Time) bool {
	if v.cfg.Dir == "" {
		return false
	}
	every := v.cfg.EverySteps
	return every > 0 && step/every > v.step/every || v.cfg.Every > 0 && now.Sub(v.saved) >= v.cfg.Every
}

// stable saves the state of r after its last step, which has become stable, if that is
// due and this peer is the one to do it.
func (v *saver) stable(r *runner, mine bool) {
	now := time.Now()
	if !v.due(r.committed, now) {
		return
	}
	if !mine {
		v.step, v.saved = r.committed, now
		return
	}
	if r.finished() {
		v.writing.Wait() // there is no later step to make up for it
	}
	select {
	case <-v.idle:
	default:
		return
	}
	v.step, v.saved = r.committed, now
	o := r.last
	o.Shares = nil // all have been reported
	if !v.copy(r, o) {
		v.idle <- struct{}{}
		return
	}
	h, epoch := r.checkpointHeader(), o.Epoch
	v.writing.Go(func() {
		defer func() { v.idle <- struct{}{} }()
		v.write(r, h, epoch)
	})
}

// now saves the state of r at once and waits for it, whether it is due or not. What
// has been committed and is not stable goes on from here, or nowhere.
func (v *saver) now(r *runner) {
	if v.cfg.Dir == "" || r.committed == 0 || r.void {
		return
	}
	v.writing.Wait()
	if v.copy(r, r.last) {
		v.write(r, r.checkpointHeader(), r.last.Epoch)
	}
}

// copy takes a copy of the state that steps do not change.
func (v *saver) copy(r *runner, o outcome) bool {
	v.copied.Reset()
	err := r.save(&v.copied, o)
	if err != nil {
		r.log("no checkpoint: %v", err)
	}
	return err == nil
}

// write writes the copy to disk. A checkpoint that cannot be written is told of, and
// does not end the job. Of r it uses nothing that steps change.
func (v *saver) write(r *runner, h checkpoint.Header, epoch uint64) {
	begun := time.Now()
	path, err := checkpoint.Write(v.cfg.Dir, h, func(w io.Writer) error {
		_, err := w.Write(v.copied.Bytes())
		return err
	})
	if err == nil {
		r.group.Emit(epoch, h.Step, event.Checkpoint{Path: path, MS: milliseconds(time.Since(begun))})
		err = checkpoint.Keep(v.cfg.Dir, v.cfg.Keep, h.Step)
	}
	if err != nil {
		r.log("checkpoint of step %d: %v", h.Step, err)
	}
}

// checkpointHeader describes the state for the file.
func (r *runner) checkpointHeader() checkpoint.Header {
	h := checkpoint.Header{Step: r.committed, Pass: r.committed / r.plan.perPass,
		Position: r.committed % r.plan.perPass * int64(r.plan.global),
		Seed:     r.cfg.Seed, Samples: r.cfg.Samples, GlobalBatch: r.cfg.GlobalBatch, Microbatch: r.cfg.Microbatch,
		Optimizer: fmt.Sprintf("%T%+v", r.cfg.Optimizer, r.cfg.Optimizer), DataHash: r.cfg.DataHash,
		Settings: make(map[string]string)}
	if r.cfg.Exact {
		h.Exponents = r.scale.Exponents()
	}
	for _, p := range r.layout.params {
		h.Params = append(h.Params, checkpoint.Param{Name: p.Name, Shape: p.Shape})
	}
	for _, s := range r.held {
		h.Settings[s.Name] = s.Value
	}
	return h
}

// resume loads the newest checkpoint that is whole. Without one the job begins at the
// beginning, or this peer gets the state from others. One of another job is an error.
func (r *runner) resume() error {
	dir := r.cfg.Checkpoint.Resume
	if dir == "" {
		return nil
	}
	defer r.group.Busy("loading a checkpoint")()
	var other error
	c, problems, err := checkpoint.Latest(dir, func(h checkpoint.Header) error {
		err := r.fits(h)
		if other == nil {
			other = err
		}
		return err
	})
	for _, p := range problems {
		r.log("passed over a checkpoint: %v", p)
	}
	switch {
	case err == nil:
	case (errors.Is(err, checkpoint.ErrNone) || errors.Is(err, fs.ErrNotExist)) && other == nil:
		r.log("no checkpoint to go on from in %s", dir)
		return nil
	default:
		return fmt.Errorf("trainer: resume: %w", errors.Join(other, err))
	}
	err = errors.Join(c.Load(r.Load), c.Close())
	if err == nil && r.committed != c.Step {
		err = fmt.Errorf("the state is of step %d, the file of step %d", r.committed, c.Step)
	}
	if err != nil {
		return fmt.Errorf("trainer: resume from %s: %w", c.Path, err)
	}
	r.log("going on after step %d from %s", r.committed, c.Path)
	r.saver.step = r.committed
	return nil
}

// fits returns an error that names the setting in which a checkpoint differs from this
// job. How long the job is and how steps are carried out may differ.
func (r *runner) fits(h checkpoint.Header) error {
	for _, s := range r.held {
		switch s.Name {
		case settingSteps, settingSchedule, settingBuckets, settingArithmetic, settingBalance, settingCompress:
			continue
		}
		if got := h.Settings[s.Name]; got != s.Value {
			return fmt.Errorf("its %s is %q, this job has %q", s.Name, got, s.Value)
		}
	}
	return nil
}
