package trainer

import (
	"fmt"
	"slices"

	"github.com/elrun/elrun/trainer/internal/growth"
)

// Values of Growth.Rate, the rule by which the learning rate follows the batch.
const (
	// GrowLinear multiplies the rate by the batch in units of the first batch (Goyal and others:
	// Accurate, large minibatch SGD, 2017).
	GrowLinear = growth.Linear
	// GrowAdaScale multiplies the rate by the gain of Johnson and others: AdaScale SGD, 2020. It lies
	// between 1 and the linear factor, and is the larger the larger the noise scale was when the
	// batch grew.
	GrowAdaScale = growth.AdaScale
	// GrowRoot multiplies the rate by the square root of the linear factor, which keeps the variance
	// of the updates.
	GrowRoot = growth.Root
)

// Defaults of Growth.
const (
	DefaultEfficiency  = 0.8
	DefaultGrowthEvery = 20
)

// Growth lets the batch grow from Config.GlobalBatch to Max samples, so that a training takes fewer
// steps. The batch doubles when the gradient noise scale says that the samples of the doubled batch
// are worth nearly as much as those of the first batch. All peers decide alike. Each pass still has
// each sample once.
//
// A schedule counts samples: it is asked for the steps that the job would have without growth, of
// which Config.TotalSteps is the number. The zero value keeps the batch. All peers must have equal
// settings, and so must a job that resumes.
type Growth struct {
	// Max is the largest batch in samples, above GlobalBatch; 0 keeps the batch.
	Max int
	// Rate is the rule by which the learning rate follows the batch: GrowLinear, the default,
	// GrowAdaScale or GrowRoot. The rate of the schedule is multiplied by the rule's factor.
	Rate string
	// Efficiency is the least worth of a sample of the doubled batch beside one of the first batch,
	// above 0 and below 1; 0 means 0.8. The worth is (noise + first) / (noise + doubled), for a noise
	// scale and batches in samples (McCandlish and others: An empirical model of large-batch training,
	// 2018).
	Efficiency float64
	// Every is the least number of steps between two changes of the batch; 0 means 20.
	Every int64
}

// withDefaults returns the settings for a first batch with defaults in place of zeros, or an error
// that names the first invalid field. Without growth it returns the zero value.
func (g Growth) withDefaults(first int) (Growth, error) {
	if g == (Growth{}) {
		return g, nil
	}
	if g.Rate == "" {
		g.Rate = GrowLinear
	}
	if g.Efficiency == 0 {
		g.Efficiency = DefaultEfficiency
	}
	if g.Every == 0 {
		g.Every = DefaultGrowthEvery
	}
	switch {
	case g.Max <= first:
		return g, fmt.Errorf("trainer: Growth.Max is %d, want more than GlobalBatch, which is %d", g.Max, first)
	case !slices.Contains([]string{GrowLinear, GrowAdaScale, GrowRoot}, g.Rate):
		return g, fmt.Errorf("trainer: Growth.Rate is %q: want %q, %q or %q", g.Rate, GrowLinear, GrowAdaScale, GrowRoot)
	// The negated comparison also refuses NaN.
	case !(g.Efficiency > 0 && g.Efficiency < 1):
		return g, fmt.Errorf("trainer: Growth.Efficiency is %v, want above 0 and below 1", g.Efficiency)
	case g.Every < 1:
		return g, fmt.Errorf("trainer: Growth.Every is %d, want at least 1", g.Every)
	}
	return g, nil
}

// setting returns the value of the setting in which members and checkpoints must agree.
func (g Growth) setting() string {
	return fmt.Sprintf("to %d samples, rate %s, efficiency %v, every %d steps", g.Max, g.Rate, g.Efficiency, g.Every)
}
