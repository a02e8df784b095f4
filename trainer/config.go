package trainer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/loadbal"
	"github.com/elrun/elrun/trainer/compress"
	"github.com/elrun/elrun/trainer/optim"
)

// Defaults of Config.
const (
	// DefaultMicrobatch is large enough for matrix products to be efficient and small
	// enough to be shared out evenly.
	DefaultMicrobatch = 16
	// DefaultBucketBytes is so large that bytes and not messages make up the cost, and so
	// small that the first of them are soon complete.
	DefaultBucketBytes = 256 << 10
	// DefaultBalance is the policy that package loadbal finds best.
	DefaultBalance = "auto"
	// DefaultKeep leaves older checkpoints for the case that the newest is damaged.
	DefaultKeep = 3
)

// Config says what to train and how. It must be the same at every peer, but for
// MaxShare, Admit and the functions that only report.
type Config struct {
	// Samples is the size of the training set: the model is asked for the samples
	// 0 to Samples-1, each once in a pass.
	Samples int
	// GlobalBatch is the samples of a step, over all peers. The last step of a pass
	// has what is left.
	GlobalBatch int
	// Microbatch is the unit in which peers share a step, in samples, and the most that the
	// model is given at once, unless its MaxSamples is more; 0 means 16. Shares of many small ones follow
	// the peers' speeds. Gradients travel while the last call of the model is under way:
	// if that has one microbatch, and takes about as long as computing, shares of few large
	// microbatches make short steps.
	Microbatch int
	// Passes over the data, or else Steps, says when training ends.
	Passes int
	Steps  int64
	// Seed selects the order of the samples.
	Seed uint64
	// Optimizer and Schedule turn the mean gradient of a step into new parameters.
	Optimizer optim.Optimizer
	Schedule  optim.Schedule
	// Clip limits the Euclidean norm of the mean gradient; 0 means no limit.
	Clip float64
	// Delay applies the mean gradient of a step when the step after it is committed, and that of
	// the last step when training ends. So a peer computes its part of a step while the sums of
	// the step before are on their way, and between hosts a step takes about as long as the
	// longer of both: as far as its share is one call of the model (Model.MaxSamples). What is
	// outstanding is part of the state, which peers that join and checkpoints get. Points
	// (Training) have parameters without it. A step that fails with its session takes along what
	// was computed of the step after it. It takes as much memory as Model.Waits.
	Delay bool
	// BucketBytes is how many bytes of gradients are reduced together; 0 means 256 KiB. Of
	// a model that is larger than 16 times as much it is more at first. Where there is a
	// network between the peers it is less towards the end of a backward pass, and between
	// two hosts half as much, between three three quarters.
	BucketBytes int
	// Exact sums gradients as integers (package exact), so that the result has the same
	// bits whatever the number of peers, and whoever comes and goes.
	Exact bool
	// Audit is the probability, from 0 to 1, with which each peer computes the part of another
	// peer in a step again, and compares bits: a peer with bad memory, or one that cheats, is
	// named and put out (ErrAudit). It needs Exact, and takes that part of the computing more, a
	// copy and a fingerprint of all parameters a step, which a small model feels more than a
	// large batch does, and the memory of three times the parameters and one gradient. The
	// weights stay the same.
	Audit     float64
	auditSeed uint64 // of tests; 0 draws one
	// Compression makes gradients shorter on their way, by a coding of package compress:
	// "fp16", "bf16", "int8", "topk", "topk:F" or "topk:F:2bit". What a coding loses is sent later, and all
	// peers have the same bits. Empty or "none" means that they travel as they are.
	Compression string
	// Balance names the policy by which the shares of the peers follow their speeds: one
	// of package loadbal; empty or "auto" means its default, "equal" that they do not.
	Balance string
	// MaxShare is the most microbatches that this peer computes in a step, as long as the
	// others can take the rest; 0 means no bound. It may be another at each peer. A model
	// that runs out of memory lowers it.
	MaxShare int
	// Admit says which peers may join a running job: AdmitIfItHelps, which is the default,
	// or AdmitAlways. At a peer that joins AdmitAlways means that it is let in whatever
	// the others think. A peer of which the job has no use is parked: it follows the job,
	// and is let in when that gets shorter by it, or too few others are left.
	Admit string
	// DataHash identifies the training set, if it is set: peers with another one are
	// refused, and so are checkpoints.
	DataHash string
	// Settings are the program's own, by the names that its users know, as flags are. They
	// are compared among the peers before all that follows from them, so that a peer that
	// differs is told the flag. Checkpoints do not hold them.
	Settings []elastic.Setting
	// Checkpoint says where to save the state, how often, and what to go on from.
	Checkpoint Checkpoint

	// Evaluate, if set, is called at every peer when training has ended, and returns the
	// score on one of so many parts of the test set. The parts add up to the score that
	// every peer reports. It is called again, for another part, if a peer is lost
	// meanwhile.
	Evaluate func(ctx context.Context, part, parts int) (Score, error)
	// OnBegin, if set, is called before this peer computes its part of a step, and
	// again when the step is tried again. Gradient may have begun before (Model.Waits).
	OnBegin func(step int64)
	// OnTrial, if set, is called before this peer computes some microbatches of a step
	// for nothing, which it does before it joins to measure how fast it is.
	OnTrial func(step int64)
	// OnStep, if set, is told of every step to which this peer has contributed when the
	// step is stable, in order. The parameters may be those of the step after it by then.
	OnStep func(StepReport)
	// Done, if set, is told the result when the job is finished at this peer.
	Done func(Result)
	// Log, if set, is told, in a plain line each, what a person should know though
	// training goes on: that a damaged checkpoint was passed over, for example. It may be
	// called from several goroutines.
	Log func(line string)
}

// Checkpoint says what is saved of a job. The zero value saves nothing. The peer with
// rank 0 writes, without holding up the steps; when too many peers are lost to go on,
// each of those that are left does, as the job may end there. Only steps that every
// member has committed are saved, but for this last case.
type Checkpoint struct {
	Dir        string        // where to; empty saves nothing
	EverySteps int64         // after each so many steps; 0 does not count steps
	Every      time.Duration // after such a time; 0 does not look at the clock
	Keep       int           // how many to keep in Dir; 0 means 3
	// Resume, if set, is a folder with checkpoints. Run goes on from the newest one that
	// is whole. Its settings must be those of the job, but for the number of peers, the
	// steps or passes, the schedule, BucketBytes, Balance and Compression. A peer that finds
	// none gets the state from the others.
	Resume string
}

// StepReport describes a stable step as one peer saw it.
type StepReport struct {
	Epoch        uint64   // in which it was committed
	Step, Of     int64    // from 1, and the steps of the whole job
	Attempt      int64    // from 0; exact mode repeats a step that does not fit its scale
	Peers        int      // members that contributed to it
	Microbatches [][2]int // [first, end) of those this peer computed
	ShareSamples int      // samples this peer computed
	Samples      int      // samples of all peers
	Recomputed   int      // microbatches this peer computed more than once
	Loss         float64  // mean over Samples, before the step
	Digest       string   // of the parameters after the step, in hexadecimal; of large models not after every step
	// Compute is the time in the model, Comm the time spent waiting for peers
	// afterwards, Total that from the beginning of the last try to the new parameters.
	// Comm and Total are 0 if this peer learned of the commit from others.
	Compute, Comm, Total time.Duration
	// Predicted is what Compute was expected to be when the share was decided; 0 if that
	// is not known.
	Predicted time.Duration
	// GradNorm is the Euclidean norm of the mean gradient of this peer's own samples.
	// NoiseScale is the batch size in samples at which noise and signal in the gradient
	// are of one size, over about the last ten measurements; from there on larger batches
	// save few steps. Both are 0 where they are not known: with one peer, for models so
	// large that not every step is measured, and if this peer learned of the commit from
	// others.
	GradNorm, NoiseScale float64
	// Sent is how many bytes of gradients this peer sent in the step's last try, without
	// headers, and Raw how many a ring would have sent of them as they are. Both are 0
	// without Config.Compression.
	Sent, Raw int64
}

// Result is the outcome of a finished job, the same at every peer.
type Result struct {
	Steps  int64
	Peers  int    // members at the last step
	Score  *Score // nil without Config.Evaluate
	SHA256 string // of the parameters in declaration order, little-endian, in hexadecimal
}

// String returns the job's last line, in the form in which elrun prints it.
func (r Result) String() string { return r.done().Line() }

// done puts the result into the form of the event log.
func (r Result) done() event.Done {
	d := event.Done{Steps: r.Steps, Peers: r.Peers, SHA256: r.SHA256}
	if r.Score != nil {
		accuracy, loss := r.Score.Accuracy(), r.Score.MeanLoss()
		d.Accuracy, d.Loss = &accuracy, &loss
	}
	return d
}

// TotalSteps returns the steps of the whole job, which schedules may need: Steps, or
// those of all passes. It is 0 if sizes are missing.
func (c Config) TotalSteps() int64 {
	if c.Passes < 1 || c.Samples < 1 || c.GlobalBatch < 1 {
		return c.Steps
	}
	return newPlan(c).steps
}

// log tells the user what is worth knowing.
func (c Config) log(format string, args ...any) {
	if c.Log != nil {
		c.Log(fmt.Sprintf(format, args...))
	}
}

// withDefaults returns the configuration with its zeros replaced, or says which
// field makes no sense.
func (c Config) withDefaults() (Config, error) {
	if c.Microbatch == 0 {
		c.Microbatch = DefaultMicrobatch
	}
	if c.BucketBytes == 0 {
		c.BucketBytes = DefaultBucketBytes
	}
	if c.Compression == "" {
		c.Compression = compress.None
	}
	if c.Balance == "" {
		c.Balance = DefaultBalance
	}
	if c.Admit == "" {
		c.Admit = AdmitIfItHelps
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
		return c, fmt.Errorf("trainer: Optimizer and Schedule must be set")
	case !(c.Clip >= 0):
		return c, fmt.Errorf("trainer: Clip is %v, want 0 or more", c.Clip)
	case c.MaxShare < 0:
		return c, fmt.Errorf("trainer: MaxShare is %d, want 0 or more", c.MaxShare)
	case c.BucketBytes < 1:
		return c, fmt.Errorf("trainer: BucketBytes is %d, want at least 1", c.BucketBytes)
	case !(c.Audit >= 0 && c.Audit <= 1):
		return c, fmt.Errorf("trainer: Audit is %v, want 0 to 1", c.Audit)
	case c.Audit > 0 && !c.Exact:
		return c, fmt.Errorf("trainer: Audit %v without Exact: only there a peer's part has the same bits wherever it is computed", c.Audit)
	case c.Exact && c.Compression != compress.None:
		return c, fmt.Errorf("trainer: Exact and Compression %q, want one of them: what is compressed depends on who computed what", c.Compression)
	}
	coding, err := compress.Parse(c.Compression)
	if err != nil {
		return c, fmt.Errorf("trainer: Compression: %w", err)
	}
	c.Compression = compress.Name(coding) // in one spelling, as peers compare it
	if _, err := loadbal.New(c.Balance); err != nil {
		return c, fmt.Errorf("trainer: Balance: %w", err)
	}
	if err := errors.Join(checkAdmit(c.Admit), c.Checkpoint.check()); err != nil {
		return c, err
	}
	return c, c.Optimizer.Check()
}

// check says what is wrong with the settings of checkpoints.
func (c Checkpoint) check() error {
	switch {
	case c.EverySteps < 0 || c.Every < 0 || c.Keep < 0:
		return fmt.Errorf("trainer: Checkpoint has EverySteps %d, Every %v and Keep %d, want none below 0", c.EverySteps, c.Every, c.Keep)
	case c.Dir == "" && (c.EverySteps > 0 || c.Every > 0):
		return fmt.Errorf("trainer: Checkpoint says how often and no Dir")
	}
	return nil
}
