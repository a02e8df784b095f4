package trainer

import (
	"errors"
	"fmt"

	"github.com/elrun/elrun/loadbal"
)

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
