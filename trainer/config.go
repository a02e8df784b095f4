package trainer

import (
	"context"
	"fmt"
	"time"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/trainer/optim"
)

// Defaults of Config.
const (
	// DefaultMicrobatch is large enough for efficient matrix products and small enough for an
	// even division into shares.
	DefaultMicrobatch = 16
	// DefaultKeep keeps older checkpoints in case the newest is damaged.
	DefaultKeep = 3
)

// Config has the settings of a training. It must be equal at all peers, except for Hooks and for
// MaxShare and Admit of Balancing.
type Config struct {
	// Samples is the size of the training set. The model gets the samples 0 to Samples-1, each
	// once per pass.
	Samples int
	// GlobalBatch is the number of samples per step, over all peers. The last step of a pass has
	// the remaining samples.
	GlobalBatch int
	// Microbatch is the unit of assignment in samples, and the largest call of the model unless its
	// MaxSamples is larger; 0 means 16. Shares of many small microbatches follow the peers' speeds
	// closely. Gradients are sent while the last call of the model runs. So if calls have one
	// microbatch, and communication takes about as long as computing, few large microbatches make
	// short steps.
	Microbatch int
	// Passes over the data, or else Steps, defines the end of the training.
	Passes int
	Steps  int64
	// Seed determines the order of the samples.
	Seed uint64
	// Optimizer and Schedule turn the mean gradient of a step into new parameters.
	Optimizer optim.Optimizer
	Schedule  optim.Schedule
	// Gradients says how gradients are summed and how their mean is applied.
	Gradients Gradients
	// Balancing says how much of a step this peer computes, and who may join.
	Balancing Balancing
	// Checkpoint has the folder and the interval of checkpoints, and the folder to resume from.
	Checkpoint Checkpoint
	// Hooks are functions that the training calls, such as for a report of each step.
	Hooks Hooks
	// Evaluate, if set, is called at every peer when the training has ended, and returns the score
	// on one part of the test set: part is the index of that part, and parts is the number of parts.
	// The sum of all parts is the score that every peer reports. If a peer is lost meanwhile,
	// Evaluate is called again, for another part.
	Evaluate func(ctx context.Context, part, parts int) (Score, error)
	// DataHash, if set, identifies the training set: peers and checkpoints with another hash are
	// refused.
	DataHash string
	// Settings are the program's own settings, such as flags, under the names that its users know.
	// A peer with another value is refused. Settings are compared before the fields of Config, so
	// that the error names the flag and not a field that depends on the flag. Checkpoints do not
	// contain Settings.
	Settings []elastic.Setting
}

// Checkpoint has the settings for saving the state of a job. The zero value saves nothing. The peer
// of rank 0 writes, in the background. If the quorum is lost, each remaining peer writes, because
// the job may never continue. Only stable steps are saved, except after the loss of the quorum.
type Checkpoint struct {
	Dir        string        // target folder; empty saves nothing
	EverySteps int64         // interval in steps; 0 for none
	Every      time.Duration // interval in time; 0 for none
	Keep       int           // number of checkpoints to keep in Dir; 0 means 3
	// Resume, if set, is a folder with checkpoints; Run resumes from the newest intact one. The
	// settings of the checkpoint must equal the settings of the job, but these may differ: the
	// number of peers, the steps or passes, the schedule, BucketBytes, Compression and Audit of
	// Gradients, and Balancing. A peer that finds no checkpoint gets the state from the others.
	Resume string
}

// StepReport describes a stable step from the point of view of one peer.
type StepReport struct {
	Epoch    uint64 // in which the step was committed
	Step, Of int64  // number of the step, from 1, and steps of the whole job
	// Attempt is the number of the attempt, from 0. Exact mode repeats a step that does not fit its
	// scale.
	Attempt      int64
	Peers        int      // number of members that contributed
	Microbatches [][2]int // [first, end) ranges computed by this peer
	ShareSamples int      // samples computed by this peer
	Samples      int      // samples of all peers
	Recomputed   int      // microbatches that this peer computed more than once
	Loss         float64  // mean over Samples, before the step
	// Digest is the digest of the parameters after the step, in hexadecimal. It is "" after some
	// steps of a large model.
	Digest string
	// Compute is the time in the model, Comm the subsequent waiting for peers, Total the time
	// from the beginning of the last try to the new parameters. Comm and Total are 0 if this peer
	// learned of the commit from others.
	Compute, Comm, Total time.Duration
	// Predicted is the Compute time expected when the share was decided; 0 if unknown.
	Predicted time.Duration
	// GradNorm is the Euclidean norm of the mean gradient over this peer's own samples.
	// NoiseScale is the gradient noise scale (McCandlish et al., 2018), a batch size in samples,
	// over about the last ten measurements; larger batches save few steps. Both are 0 where they
	// are not known: with one peer, for large models after some steps, and if this peer learned
	// of the commit from others.
	GradNorm, NoiseScale float64
	// Sent is the number of bytes of gradients that this peer sent in the step's last try,
	// without headers. Raw is the number of bytes that a ring of float32 would have sent. Both are 0
	// without Gradients.Compression.
	Sent, Raw int64
}

// Result is the outcome of a finished job, equal at every peer.
type Result struct {
	// Steps is the number of steps of the whole job.
	Steps int64
	Peers int    // members at the last step
	Score *Score // nil without Config.Evaluate
	// SHA256 is the hash of the parameters, in declaration order and little-endian, in hexadecimal.
	SHA256 string
}

// String returns the last line that elrun prints for a job.
func (r Result) String() string { return r.done().Line() }

// done converts the result to its event.
func (r Result) done() event.Done {
	d := event.Done{Steps: r.Steps, Peers: r.Peers, SHA256: r.SHA256}
	if r.Score != nil {
		accuracy, loss := r.Score.Accuracy(), r.Score.MeanLoss()
		d.Accuracy, d.Loss = &accuracy, &loss
	}
	return d
}

// TotalSteps returns the steps of the whole job, for schedules that depend on it: Steps, or the
// steps of all passes. It is 0 if sizes are missing.
func (c Config) TotalSteps() int64 {
	if c.Passes < 1 || c.Samples < 1 || c.GlobalBatch < 1 {
		return c.Steps
	}
	return newPlan(c).steps
}

// withDefaults returns the configuration with defaults in place of zeros, or an error that names
// the first invalid field.
func (c Config) withDefaults() (Config, error) {
	if c.Microbatch == 0 {
		c.Microbatch = DefaultMicrobatch
	}
	if c.Checkpoint.Keep == 0 {
		c.Checkpoint.Keep = DefaultKeep
	}
	switch {
	case c.Samples < 1:
		return c, fmt.Errorf("trainer: Samples is %d, want the size of the training set", c.Samples)
	case c.GlobalBatch < 1:
		return c, fmt.Errorf("trainer: GlobalBatch is %d, want at least 1", c.GlobalBatch)
	case c.Microbatch < 1:
		return c, fmt.Errorf("trainer: Microbatch is %d, want at least 1", c.Microbatch)
	case c.Passes < 0 || c.Steps < 0 || (c.Passes == 0) == (c.Steps == 0):
		return c, fmt.Errorf("trainer: Passes is %d and Steps %d, want one of them above 0 and the other 0", c.Passes, c.Steps)
	case c.Optimizer == nil || c.Schedule == nil:
		return c, fmt.Errorf("trainer: Optimizer or Schedule is nil: set both")
	}
	var err error
	if c.Gradients, err = c.Gradients.withDefaults(); err != nil {
		return c, err
	}
	if c.Balancing, err = c.Balancing.withDefaults(); err != nil {
		return c, err
	}
	if err := c.Checkpoint.check(); err != nil {
		return c, err
	}
	return c, c.Optimizer.Check()
}

// check validates the checkpoint settings.
func (c Checkpoint) check() error {
	switch {
	case c.EverySteps < 0 || c.Every < 0 || c.Keep < 0:
		return fmt.Errorf("trainer: Checkpoint has EverySteps %d, Every %v and Keep %d, want none below 0", c.EverySteps, c.Every, c.Keep)
	case c.Dir == "" && (c.EverySteps > 0 || c.Every > 0):
		return fmt.Errorf("trainer: Checkpoint has an interval but no folder: set Dir, or leave Every and EverySteps at 0")
	}
	return nil
}
