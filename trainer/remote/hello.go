package remote

import (
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/internal/kernel"
	"github.com/elrun/elrun/trainer"
	"github.com/elrun/elrun/trainer/internal/mmap"
)

// Version is the version of the frames. Program and sidecar must have the same.
const Version = 3

// hello is the first frame of a program. Offsets are in bytes from the beginning of the memory.
type hello struct {
	versions
	// Params are the parameters, and Grads has the offset of the gradient of each.
	Params []param
	Grads  []int64
	// GradScale is the factor of the gradients in the memory, 0 for 1 (trainer.Model).
	GradScale float64

	// MaxSamples bounds the samples of a call, and NotFinite lets gradients that are infinite reach the
	// program (trainer.Model).
	MaxSamples int
	NotFinite  bool

	Exact      bool
	Samples    int
	Batch      int
	Microbatch int
	Passes     int
	Steps      int64
	Seed       uint64
	Admit      string
	MaxShare   int
	Compress   string
	Checkpoint string
	EverySteps int64
	Every      float64 // seconds
	Resume     string
	Ahead      bool        // the program loads samples ahead
	Data       string      // identifies the training set
	Settings   [][2]string // name and value
}

// versions says which elrun a program was made for.
type versions struct {
	Version int    // of the frames
	Release string // of the program's package
}

// param is a parameter in the memory.
type param struct {
	Name   string
	Shape  []int
	Offset int64
}

// decode decodes and checks the first frame of a program. release is the version of this elrun.
func (h *hello) decode(f frame, release string) error {
	if f.kind != kindHello {
		return fmt.Errorf("the program began with %v, want HELLO", f.kind)
	}
	// What follows the versions may have other types in another version.
	if err := json.Unmarshal(f.payload, &h.versions); err != nil {
		return fmt.Errorf("HELLO of the program: %w", err)
	}
	if h.Version != Version {
		return fmt.Errorf("the Python package is of elrun %s (frames %d), and the binary elrun is of %s (frames %d): "+
			"install the same version of both; $ELRUN names another binary", h.Release, h.Version, release, Version)
	}
	if err := json.Unmarshal(f.payload, h); err != nil {
		return fmt.Errorf("HELLO of the program: %w", err)
	}
	if len(h.Params) == 0 || len(h.Params) != len(h.Grads) {
		return fmt.Errorf("HELLO of the program has %d parameters and %d gradients, want as many, at least one", len(h.Params), len(h.Grads))
	}
	return nil
}

// Map maps the first size bytes of a file that the program has passed on, until the end of this
// process. The program must not shorten the file.
func Map(file *os.File, size int) ([]byte, error) {
	if size < 1 {
		return nil, fmt.Errorf("remote: memory of %d bytes, want at least 1", size)
	}
	b, err := mmap.Shared(file, size)
	if err != nil {
		return nil, fmt.Errorf("remote: %w", err)
	}
	return b, nil
}

// vector returns n elements of the memory from an offset. Its capacity reaches to the end of the
// memory.
func vector(memory []byte, offset int64, n int) ([]float32, error) {
	const element, alignment = 4, 4
	if offset < 0 || offset%alignment != 0 || offset > int64(len(memory)) || n < 1 || int64(n) > (int64(len(memory))-offset)/element {
		return nil, fmt.Errorf("%d elements at byte %d do not fit the %d bytes of the memory", n, offset, len(memory))
	}
	return kernel.Elements[float32](memory[offset:])[:n], nil
}

// model returns the parameters and the gradients in the memory.
func (h hello) model(memory []byte) (m trainer.Model, err error) {
	for i, p := range h.Params {
		size := 1
		for _, side := range p.Shape {
			if side < 1 || size > len(memory)/side {
				return m, fmt.Errorf("parameter %q has the shape %v, which does not fit the memory", p.Name, p.Shape)
			}
			size *= side
		}
		data, err := vector(memory, p.Offset, size)
		if err != nil {
			return m, fmt.Errorf("parameter %q: %w", p.Name, err)
		}
		grad, err := vector(memory, h.Grads[i], size)
		if err != nil {
			return m, fmt.Errorf("gradient of parameter %q: %w", p.Name, err)
		}
		m.Params = append(m.Params, trainer.Param{Name: p.Name, Shape: p.Shape, Data: data[:size:size]})
		m.Grads = append(m.Grads, grad)
	}
	m.Whole, m.GradScale, m.NotFinite = !h.Exact, h.GradScale, h.NotFinite
	if m.Whole {
		m.MaxSamples = h.MaxSamples
	}
	return m, nil
}

// config returns the settings of the training.
func (h hello) config() trainer.Config {
	c := trainer.Config{Samples: h.Samples, GlobalBatch: h.Batch, Microbatch: h.Microbatch, Passes: h.Passes, Steps: h.Steps, Seed: h.Seed,
		Gradients:  trainer.Gradients{Exact: h.Exact, Compression: h.Compress},
		Balancing:  trainer.Balancing{Admit: h.Admit, MaxShare: h.MaxShare},
		Checkpoint: trainer.Checkpoint{Dir: h.Checkpoint, EverySteps: h.EverySteps, Every: time.Duration(h.Every * float64(time.Second)), Resume: h.Resume},
		DataHash:   h.Data}
	for _, s := range h.Settings {
		c.Settings = append(c.Settings, elastic.Setting{Name: s[0], Value: s[1]})
	}
	return c
}
