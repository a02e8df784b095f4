package trainer

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"runtime"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/loadbal"
	"github.com/elrun/elrun/trainer/compress"
	"github.com/elrun/elrun/trainer/exact"
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
	// Growth lets the batch grow from GlobalBatch on; the zero value keeps it.
	Growth Growth
	// Microbatch is the unit of assignment in samples, and the largest call of the model unless its
	// MaxSamples is larger; 0 means 16. Shares of many small microbatches follow the peers' speeds
	// closely. Gradients are sent while the last call of the model runs. So if calls have one
	// microbatch, and communication takes about as long as computing, few large microbatches make
	// short steps.
	Microbatch int
	// Passes over the data, or else Steps, defines the end of the training. With Growth a job takes as
	// many samples as Steps steps without growth, up to the end of a step.
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

// DefaultBucketBytes is large enough that bytes, not messages, make up the cost, and small enough
// that the first buckets are complete soon.
const DefaultBucketBytes = 256 << 10

// Gradients has the settings by which peers sum gradients and apply the mean. The zero value sums
// in float32 and applies the whole mean at once. All peers must have equal settings.
type Gradients struct {
	// Clip limits the Euclidean norm of the mean gradient; 0 means no limit.
	Clip float64
	// Delay applies the mean gradient of a step at the commit of the next step, and the gradient of
	// the last step at the end of the training (a staleness of one). So a peer computes its part of
	// a step while the sums of the previous step are being reduced. Between hosts a step then takes
	// about the time of its computation or of its reduction, whichever is longer, provided that the
	// share is one call of the model (Model.MaxSamples).
	//
	// The outstanding gradient is part of the state that joining peers and checkpoints get.
	// Points (Training) see the parameters without it. If a step fails with its session, the
	// computed part of the next step is lost with it. Delay takes as much memory as Model.Waits.
	Delay bool
	// BucketBytes is the number of bytes of gradients that are reduced together; 0 means 256 KiB.
	// Models of more than 16 buckets begin with larger buckets. Between hosts buckets shrink towards
	// the end of a backward pass; between two hosts they have half the size, between three hosts
	// three quarters.
	BucketBytes int
	// Compression sends gradients in a lossy coding of package compress: "fp16", "bf16", "int8",
	// "topk", "topk:F" or "topk:F:2bit". The coding error is added to the gradients of the next
	// step (error feedback). All peers still have the same bits. Empty or "none" sends float32.
	Compression string
	// Exact sums gradients as integers (package exact). The result then has the same bits for any
	// number of peers, and through every join and loss.
	Exact bool
	// Audit is the probability, from 0 to 1, with which each peer recomputes another peer's part
	// of a step and compares the bits. A peer with bad memory, or a cheating one, is named and
	// put out (ErrAudit). Audit needs Exact. It costs this fraction of the computing; in each step
	// a copy of all parameters and fingerprints of the gradient sums, which are cheap in relation to
	// a large batch; and memory for three times the parameters and one gradient. The weights stay
	// the same.
	Audit     float64
	auditSeed uint64 // for tests; 0 means a random seed
}

// withDefaults returns the settings with defaults in place of zeros, or an error that names the
// first invalid field.
func (g Gradients) withDefaults() (Gradients, error) {
	if g.BucketBytes == 0 {
		g.BucketBytes = DefaultBucketBytes
	}
	if g.Compression == "" {
		g.Compression = compress.None
	}
	switch {
	// The negated comparison also refuses NaN.
	case !(g.Clip >= 0):
		return g, fmt.Errorf("trainer: Gradients.Clip is %v, want 0 or more", g.Clip)
	case g.BucketBytes < 1:
		return g, fmt.Errorf("trainer: Gradients.BucketBytes is %d, want at least 1", g.BucketBytes)
	case !(g.Audit >= 0 && g.Audit <= 1):
		return g, fmt.Errorf("trainer: Gradients.Audit is %v, want 0 to 1", g.Audit)
	case g.Audit > 0 && !g.Exact:
		return g, fmt.Errorf("trainer: Gradients.Audit is %v without Exact: set Exact, with which a recomputed part has the same bits", g.Audit)
	case g.Exact && g.Compression != compress.None:
		return g, fmt.Errorf("trainer: Gradients has Exact and Compression %q, want one of them: the compressed bits depend on the shares of the peers", g.Compression)
	}
	coding, err := compress.Parse(g.Compression)
	if err != nil {
		return g, fmt.Errorf("trainer: Gradients.Compression: %w", err)
	}
	g.Compression = compress.Name(coding) // canonical spelling, because peers compare it
	return g, nil
}

// DefaultBalance is the default policy of package loadbal.
const DefaultBalance = "auto"

// Values of Balancing.Admit, the policy of admission.
const (
	// AdmitIfItHelps parks a candidate that would not shorten the steps, for example because it is
	// slow or far away.
	AdmitIfItHelps = "helps"
	// AdmitAlways admits every candidate that may join.
	AdmitAlways = "always"
)

// Values of Balancing.Steal.
const (
	// StealAuto lets the ranks of a host take unstarted microbatches from each other within a step.
	StealAuto = "auto"
	// StealFar is StealAuto, and ranks of different hosts take microbatches from each other, too.
	StealFar = "far"
	// StealOff lets each peer compute its share.
	StealOff = "off"
)

// errAdmit lists the values of Balancing.Admit.
var errAdmit = errors.New(`want "helps" or "always"`)

// Balancing has the settings that decide how many microbatches of a step each peer computes. The
// zero value lets shares follow the peers' speeds.
type Balancing struct {
	// Policy names the load balancing policy, by which shares follow the peers' speeds: one of
	// package loadbal. Empty or "auto" means the default of that package, "equal" means equal
	// shares. All peers must have the same policy.
	Policy string
	// MaxShare bounds the microbatches that this peer computes in a step, as long as the others
	// can take the rest; 0 means no bound. It may differ between peers. A model that runs out of
	// memory lowers it.
	MaxShare int
	// Admit is the policy by which the members admit peers to a running job: AdmitIfItHelps, the
	// default, or AdmitAlways. It may differ between peers: a joining peer with AdmitAlways is
	// admitted regardless of the members' setting. A peer that would not shorten steps is parked:
	// it follows the job, and is admitted when it would shorten steps, or when too few others are
	// left.
	Admit string
	// Steal lets a peer that has finished its share early compute microbatches that another peer has
	// not begun: StealAuto, the default, within a host, StealFar also between hosts, or StealOff.
	// Shares follow past steps, and stealing mends the step under way. It costs nothing where nobody is
	// late, so it is on where the peers of a host share memory, except with Model.Whole and with
	// Gradients.Audit. Between hosts it is worth it where steps take many round trips and speeds change
	// from step to step; a model then gets fewer microbatches in a call. All peers must have the same
	// value.
	Steal string
}

// withDefaults returns the settings with defaults in place of zeros, or an error that names the
// first invalid field.
func (b Balancing) withDefaults() (Balancing, error) {
	if b.Policy == "" {
		b.Policy = DefaultBalance
	}
	if b.Admit == "" {
		b.Admit = AdmitIfItHelps
	}
	if b.Steal == "" {
		b.Steal = StealAuto
	}
	if b.Steal != StealAuto && b.Steal != StealFar && b.Steal != StealOff {
		return b, fmt.Errorf("trainer: Balancing.Steal is %q: want %q, %q or %q", b.Steal, StealAuto, StealFar, StealOff)
	}
	if b.MaxShare < 0 {
		return b, fmt.Errorf("trainer: Balancing.MaxShare is %d, want 0 or more", b.MaxShare)
	}
	if b.Admit != AdmitIfItHelps && b.Admit != AdmitAlways {
		return b, fmt.Errorf("trainer: Balancing.Admit is %q: %w", b.Admit, errAdmit)
	}
	if _, err := loadbal.New(b.Policy); err != nil {
		return b, fmt.Errorf("trainer: Balancing.Policy: %w", err)
	}
	return b, nil
}

// Hooks are functions of the program that a training calls. Each may be nil, and may differ between
// peers.
type Hooks struct {
	// OnBegin is called before this peer computes its part of a step, and again for another try at
	// the step. Gradient may have begun earlier (Model.Waits).
	OnBegin func(step int64)
	// OnTrial is called before this peer computes microbatches of a step as a speed trial before it
	// joins. Their results are discarded.
	OnTrial func(step int64)
	// OnStep is called in order for every step that this peer has contributed to, when the step is
	// stable. The parameters may already have changed in the next step.
	OnStep func(StepReport)
	// Done is called with the result when the job is finished at this peer.
	Done func(Result)
	// Log is called with a line of text for each warning: a problem that does not end the training,
	// such as a damaged checkpoint that was skipped. It may be called from several goroutines.
	Log func(line string)
}

// log formats a line for Log.
func (h Hooks) log(format string, args ...any) {
	if h.Log != nil {
		h.Log(fmt.Sprintf(format, args...))
	}
}

// StepReport describes a stable step from the point of view of one peer.
type StepReport struct {
	Epoch    uint64 // in which the step was committed
	Step, Of int64  // number of the step, from 1, and steps of the whole job, which are fewer when the batch has grown
	// Attempt is the number of the attempt, from 0. Exact mode repeats a step that does not fit its
	// scale.
	Attempt      int64
	Peers        int      // number of members that contributed
	Microbatches [][2]int // [first, end) ranges computed by this peer
	ShareSamples int      // samples computed by this peer
	Samples      int      // samples of all peers
	Stolen       int      // microbatches that this peer took from other peers of its host
	Recomputed   int      // microbatches that this peer computed more than once
	Loss         float64  // mean over Samples, before the step
	// Digest is the digest of the parameters after the step, in hexadecimal. It is "" after some
	// steps of a large model.
	Digest string
	// Compute is the time in the model, Comm the subsequent waiting for peers, Total the time
	// from the end of the previous step, or the entry of the session, to the new parameters. Total has
	// attempts at the step in earlier sessions, too (see event.Times). Comm and Total are 0 if this peer
	// learned of the commit from others.
	Compute, Comm, Total time.Duration
	// Predicted is the Compute time expected when the share was decided; 0 if unknown.
	Predicted time.Duration
	// GradNorm is the Euclidean norm of the mean gradient over this peer's own samples.
	// NoiseScale is the gradient noise scale (McCandlish et al., 2018), a batch size in samples,
	// over about the last twenty measurements, or fifty with Growth, at most a hundred batches; larger batches save few steps.
	// Both are 0 where they are not known: if this peer learned of the commit from others; the norm for
	// large models after some steps; and the noise scale if one peer computes the whole batch in one call of
	// the model.
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
// steps of all passes. With Growth the job takes fewer steps, but TotalSteps and the schedule count
// those of GlobalBatch samples. It is 0 if sizes are missing.
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
	if c.Growth, err = c.Growth.withDefaults(c.GlobalBatch); err != nil {
		return c, err
	}
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

// Names of settings in which a checkpoint may differ from the job that resumes from it. They change
// the length of the job or the execution of steps, but not the meaning of a saved state.
const (
	settingSteps      = "steps"
	settingSchedule   = "schedule"
	settingBuckets    = "bucket bytes"
	settingArithmetic = "arithmetic"
	settingBalance    = "balance"
	settingCompress   = "compression"
	settingAudit      = "audit"
	settingSteal      = "steal"
)

// settingGrowth is the name of the settings of growth, which only a job with growth has.
const settingGrowth = "growth"

// agreed lists the settings that must be equal at all members of a job, except
// Config.Settings. Members compare names and values, not hashes, so that the error at a differing
// peer shows both values.
func (c Config) agreed(p plan, l layout) []elastic.Setting {
	delayed := ""
	if c.Gradients.Delay {
		delayed = ", a step late"
	}
	s := []elastic.Setting{
		{Name: "samples", Value: fmt.Sprint(c.Samples)},
		{Name: "global batch", Value: fmt.Sprint(c.GlobalBatch)},
		{Name: "microbatch", Value: fmt.Sprint(c.Microbatch)},
		{Name: "seed", Value: fmt.Sprint(c.Seed)},
		{Name: "parameters", Value: l.describe(), Text: fmt.Sprintf("%d of %d elements", len(l.params), l.size())},
		{Name: "optimizer", Value: fmt.Sprintf("%T%+v%s", c.Optimizer, c.Optimizer, delayed)},
		{Name: "clip", Value: fmt.Sprint(c.Gradients.Clip)},
		{Name: "exact", Value: fmt.Sprint(c.Gradients.Exact)},
		{Name: "data", Value: c.DataHash, Text: fmt.Sprintf("%d samples", c.Samples)},
		{Name: settingSteps, Value: fmt.Sprint(p.steps)},
		{Name: settingSchedule, Value: scheduleHash(c.Schedule, p.steps), Text: describeSchedule(c.Schedule, p.steps)},
		{Name: settingBuckets, Value: fmt.Sprint(c.Gradients.BucketBytes)},
		{Name: settingBalance, Value: c.Balancing.Policy},
		{Name: settingCompress, Value: c.Gradients.Compression},
	}
	if c.Balancing.Steal != StealAuto {
		s = append(s, elastic.Setting{Name: settingSteal, Value: c.Balancing.Steal})
	}
	if c.Growth.Max > 0 {
		s = append(s, elastic.Setting{Name: settingGrowth, Value: c.Growth.setting()})
	}
	// Exact mode requires equal bits, so the arithmetic of all peers must agree.
	if c.Gradients.Exact {
		s = append(s, elastic.Setting{Name: settingAudit, Value: fmt.Sprint(c.Gradients.Audit)})
		s = append(s, elastic.Setting{Name: settingArithmetic, Value: fmt.Sprintf("%016x", exact.Probe()), Text: "arithmetic of " + runtime.GOARCH})
	}
	return s
}

// scheduleHash returns a hash of a schedule, from its rates at a hundred steps. A schedule is a
// function, so it can be compared only by its values.
func scheduleHash(schedule func(int64) float64, steps int64) string {
	h := xxhash.New()
	for i := range int64(100) {
		step := 1 + int64(float64(i)/99*float64(steps-1))
		h.Write(binary.LittleEndian.AppendUint64(nil, math.Float64bits(schedule(step)))) // never fails
	}
	return fmt.Sprintf("%016x", h.Sum64())
}

// describeSchedule describes a schedule by its rates at the first, the middle and the last step.
func describeSchedule(schedule func(int64) float64, steps int64) string {
	return fmt.Sprintf("%.4g, %.4g, %.4g at steps 1, %d, %d", schedule(1), schedule((1+steps)/2), schedule(steps), (1+steps)/2, steps)
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
