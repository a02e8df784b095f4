package trainer

import (
	"encoding/binary"
	"fmt"
	"math"
	"runtime"

	"github.com/cespare/xxhash/v2"
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/trainer/exact"
)

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
)

// settingsOf lists the settings that must be equal at all members of a job, except
// Config.Settings. Members compare names and values, not hashes, so that the error at a differing
// peer shows both values.
func settingsOf(c Config, p plan, l layout) []elastic.Setting {
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
	// Exact mode requires equal bits, so the arithmetic of all peers must agree.
	if c.Gradients.Exact {
		s = append(s, elastic.Setting{Name: settingAudit, Value: fmt.Sprint(c.Gradients.Audit)})
		s = append(s, elastic.Setting{Name: settingArithmetic, Value: fmt.Sprintf("%016x", exact.Probe()), Text: "arithmetic of " + runtime.GOARCH})
	}
	return s
}

// describe formats the number and size of the parameters, and a hash of their names and shapes.
func (l layout) describe() string {
	h := xxhash.New()
	for _, p := range l.params {
		fmt.Fprintf(h, "%q %v\n", p.Name, p.Shape) // never fails
	}
	return fmt.Sprintf("%d of %d elements, shapes %016x", len(l.params), l.size(), h.Sum64())
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
