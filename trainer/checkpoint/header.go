package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
)

// Header describes a checkpoint. It is stored as JSON; unknown fields are ignored on reading, and
// missing ones are zero.
type Header struct {
	// Step is the last committed step, from 1. It is also part of the file name.
	Step int64 `json:"step"`
	// Run identifies the run that wrote the checkpoint; a run keeps its ID when it is resumed. "" if
	// an earlier version wrote it.
	Run string `json:"run,omitempty"`
	// Written is the time of the write, in nanoseconds since 1970; 0 if unknown.
	Written int64 `json:"written,omitempty"`
	// Pass is the number of completed passes over the data, Position the number of samples
	// consumed in the current pass.
	Pass     int64 `json:"pass"`
	Position int64 `json:"position"`
	// Seed determines the order of the samples.
	Seed uint64 `json:"seed"`
	// Samples is the size of the training set, GlobalBatch the size of the batch of a step, and
	// Microbatch the size of the smallest parts of a batch; all in samples.
	Samples     int `json:"samples"`
	GlobalBatch int `json:"global_batch"`
	Microbatch  int `json:"microbatch"`
	// Optimizer is the optimizer with its settings, as text.
	Optimizer string `json:"optimizer"`
	// DataHash identifies the training set; empty if unknown.
	DataHash string `json:"data_hash,omitempty"`
	// Settings are further settings, by name, in which a resuming job must agree.
	Settings map[string]string `json:"settings,omitempty"`
	// Program are settings of the program, by name, which the resuming program may change.
	Program map[string]string `json:"program,omitempty"`
	// State is the part of the state that is not in tensors. The job chooses the form of this JSON.
	State json.RawMessage `json:"state,omitempty"`
}

// check returns an error for an invalid header. Write and the readers call it.
func (h Header) check() error {
	switch {
	case h.Step < 1 || h.Step > maxStep:
		return fmt.Errorf("step %d is not between 1 and %d", h.Step, int64(maxStep))
	case h.Pass < 0 || h.Position < 0:
		return fmt.Errorf("position %d or pass %d is negative", h.Position, h.Pass)
	}
	return nil
}

// maxStep is the largest step that fits the digits of file names, so that names sort by step.
const maxStep = 1e12 - 1

// Errors for errors.Is.
var (
	// ErrNone reports that a folder has no usable checkpoint.
	ErrNone = errors.New("no usable checkpoint")
	// ErrDamaged reports that a file is incomplete, corrupted or not a checkpoint.
	ErrDamaged = errors.New("damaged")
	// ErrForeign reports that a folder belongs to another run or job.
	ErrForeign = errors.New("belongs to another run")
	// ErrVersion reports that this program does not know a file's version of the format.
	ErrVersion = errors.New("unknown version")
)
