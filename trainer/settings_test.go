package trainer

import (
	"testing"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/trainer/optim"
)

// settings returns the settings of a job with two parameters.
func settings(t *testing.T, change func(*Config)) []elastic.Setting {
	t.Helper()
	cfg := Config{Samples: 40, GlobalBatch: 20, Microbatch: 5, Passes: 3, BucketBytes: 8,
		Optimizer: optim.SGD{Momentum: 0.5}, Schedule: optim.Constant(0.5)}
	if change != nil {
		change(&cfg)
	}
	j, err := newJob(nil, ModelOf(ramp{paramsOf(2, 3)}), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return j.held
}

func TestSettingsTellJobsApart(t *testing.T) {
	value := func(change func(*Config)) map[string]string {
		m := make(map[string]string)
		for _, s := range settings(t, change) {
			m[s.Name] = s.Value
		}
		return m
	}
	base := value(nil)
	for name, change := range map[string]func(*Config){
		"samples":      func(c *Config) { c.Samples++ },
		"global batch": func(c *Config) { c.GlobalBatch-- },
		"microbatch":   func(c *Config) { c.Microbatch++ },
		"seed":         func(c *Config) { c.Seed++ },
		"optimizer":    func(c *Config) { c.Optimizer = optim.SGD{Momentum: 0.25} },
		"clip":         func(c *Config) { c.Clip = 1 },
		"exact":        func(c *Config) { c.Exact = true },
		"data":         func(c *Config) { c.DataHash = "x" },
		"steps":        func(c *Config) { c.Passes++ },
		"schedule":     func(c *Config) { c.Schedule = optim.Cosine(0.5, 0, 7) },
		"bucket bytes": func(c *Config) { c.BucketBytes++ },
	} {
		if got := value(change); got[name] == base[name] {
			t.Errorf("%s: the setting does not differ: %q", name, got[name])
		}
	}
	if got := value(func(c *Config) { c.Exact = true }); got["arithmetic"] == "" {
		t.Error("exact mode without a probe")
	}
	if a, b := (layout{params: paramsOf(2, 3)}), (layout{params: paramsOf(2, 3)}); newLayout(a.params, 1).describe() == newLayout(append(b.params[:1:1], Param{"b", []int{3, 1}, make([]float32, 3)}), 1).describe() {
		t.Error("shapes do not count")
	}
}
