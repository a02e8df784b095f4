package trainer

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/cespare/xxhash/v2"

	"github.com/elrun/elrun/trainer/checkpoint"
	"github.com/elrun/elrun/trainer/compress"
	"github.com/elrun/elrun/trainer/optim"
)

// updates returns the configuration for the model's Updater, or as it is without one.
func (m Model) updates(cfg Config) (Config, error) {
	if m.Updater == nil {
		if m.NotFinite {
			return cfg, errors.New("trainer: Model.NotFinite is set without an Updater, which would leave out such steps: set Updater, or leave NotFinite out")
		}
		return cfg, nil
	}
	switch g := cfg.Gradients; {
	case m.NotFinite && (g.Exact || g.Compression != "" && g.Compression != compress.None):
		return cfg, errors.New("trainer: Model.NotFinite is set with Gradients.Exact or Compression, whose sums have no infinite values: leave one of them out")
	case cfg.Optimizer != nil || cfg.Schedule != nil:
		return cfg, errors.New("trainer: Model.Updater and an Optimizer or Schedule of Config are set: leave Optimizer and Schedule nil")
	case m.Waits || g.Delay:
		return cfg, errors.New("trainer: Model.Updater is set with Model.Waits or Gradients.Delay: an Updater applies whole steps; leave both out")
	case g.Clip != 0:
		return cfg, errors.New("trainer: Model.Updater and Gradients.Clip are set: let the Updater clip the mean")
	case cfg.Growth != (Growth{}):
		return cfg, errors.New("trainer: Model.Updater and Config.Growth are set: the rate of an Updater would not follow the batch; leave Growth out")
	case g.Audit != 0:
		return cfg, errors.New("trainer: Model.Updater and Gradients.Audit are set: audits need an optimizer of package optim")
	}
	cfg.Optimizer, cfg.Schedule = optim.External{}, optim.Constant(1)
	return cfg, nil
}

// maxUpdater bounds the saved state of an Updater, in bytes.
const maxUpdater = 1 << 40

// saveUpdater returns the state of the Updater and describes it in h. It returns nil without an
// Updater.
func (s *state) saveUpdater(h *header) ([]byte, error) {
	if s.updater == nil {
		return nil, nil
	}
	own, err := s.updater.Save()
	if err != nil {
		return nil, fmt.Errorf("state of the Updater: %w", err)
	}
	h.UpdaterBytes, h.UpdaterSum = int64(len(own)), xxhash.Sum64(own)
	return own, nil
}

// loadUpdater passes a saved state to the Updater, after a check for damage.
func (s *state) loadUpdater(h header, own []byte) error {
	if s.updater == nil {
		return nil
	}
	if xxhash.Sum64(own) != h.UpdaterSum {
		return errors.New("the state of the Updater is damaged")
	}
	if err := s.updater.Load(own); err != nil {
		return fmt.Errorf("state of the Updater: %w", err)
	}
	return nil
}

// readUpdater reads the state of the Updater that h describes; nil without one. It allocates memory
// only for bytes that have arrived.
func (h header) readUpdater(r io.Reader) ([]byte, error) {
	var b bytes.Buffer
	if _, err := io.CopyN(&b, r, h.UpdaterBytes); err != nil {
		return nil, fmt.Errorf("read the state of the Updater: %w", whole(err))
	}
	return b.Bytes(), nil
}

// updaterTensor returns the tensor that has the state of an Updater in a checkpoint.
func updaterTensor(own []byte) checkpoint.Tensor {
	return checkpoint.Tensor{Name: "updater", Shape: []int{len(own)}, Values: own}
}
