package checkpoint

import (
	"errors"
	"fmt"
)

// Header says what a checkpoint is of. It is stored as JSON; fields that a reader
// does not know are ignored, and those that are missing are zero.
type Header struct {
	// Step is the last committed step, from 1. It is part of the file's name.
	Step int64 `json:"step"`
	// Pass and Position say where the job is in the data: passes completed, and
	// samples consumed of the present one.
	Pass     int64 `json:"pass"`
	Position int64 `json:"position"`
	// Seed selects the order of the samples.
	Seed uint64 `json:"seed"`
	// Samples is the size of the training set, GlobalBatch and Microbatch those of a
	// step and of its parts.
	Samples     int `json:"samples"`
	GlobalBatch int `json:"global_batch"`
	Microbatch  int `json:"microbatch"`
	// Optimizer names the rule with its settings.
	Optimizer string `json:"optimizer"`
	// Exponents is the scale of exact mode, one per parameter; empty without it.
	Exponents []int8 `json:"exponents,omitempty"`
	// DataHash identifies the training set; it may be empty.
	DataHash string `json:"data_hash,omitempty"`
	// Params lists the parameters in declaration order.
	Params []Param `json:"params"`
	// Settings are further settings in which a job that goes on must agree, by name.
	Settings map[string]string `json:"settings,omitempty"`
}

// Param names a parameter and its shape.
type Param struct {
	Name  string `json:"name"`
	Shape []int  `json:"shape"`
}

// check reports a header that no job can have. It is called on writing and on
// reading.
func (h Header) check() error {
	switch {
	case h.Step < 1 || h.Step > maxStep:
		return fmt.Errorf("step %d is not between 1 and %d", h.Step, int64(maxStep))
	case h.Pass < 0 || h.Position < 0:
		return fmt.Errorf("position %d in pass %d is negative", h.Position, h.Pass)
	}
	return nil
}

// maxStep is the largest step that the names of files have room for, so that they
// sort by step.
const maxStep = 1e12 - 1

// Errors that callers tell apart.
var (
	// ErrNone: a folder holds no checkpoint that can be used.
	ErrNone = errors.New("no usable checkpoint")
	// ErrDamaged: a file is torn, corrupted or no checkpoint at all.
	ErrDamaged = errors.New("damaged")
	// ErrVersion: a file has a version of the format that this program does not know.
	ErrVersion = errors.New("unknown version")
)
