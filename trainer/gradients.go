package trainer

import (
	"fmt"

	"github.com/elrun/elrun/trainer/compress"
)

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
