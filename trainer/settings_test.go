package trainer

import (
	"strings"
	"testing"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/trainer/optim"
)

// settings returns the settings of a job with two parameters.
func settings(t *testing.T, change func(*Config)) []elastic.Setting {
	t.Helper()
	cfg := Config{Samples: 40, GlobalBatch: 20, Microbatch: 5, Passes: 3, Gradients: Gradients{BucketBytes: 8},
		Optimizer: optim.SGD{Momentum: 0.5}, Schedule: optim.Constant(0.5)}
	if change != nil {
		change(&cfg)
	}
	j, err := newJob(nil, ModelOf(ramp{paramsOf(2, 3)}), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return j.agreed
}

// TestSettingsStay checks the names and values of the settings, which peers send and checkpoints
// contain. If a name or value changed, peers of the previous version would be refused, and a job
// would not resume from its earlier checkpoints.
func TestSettingsStay(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Config)
		want   string
	}{
		"float32": {func(c *Config) {
			c.Gradients = Gradients{Clip: 1.5, Delay: true, BucketBytes: 16, Compression: "topk:0.10"}
			c.Balancing = Balancing{Policy: "equal", Admit: AdmitAlways}
		}, `
samples=40
global batch=20
microbatch=5
seed=0
parameters=2 of 5 elements, shapes ab6bb5c5e3ae5c49
optimizer=optim.SGD{Momentum:0.5 Nesterov:false WeightDecay:0}, a step late
clip=1.5
exact=false
data=
steps=6
schedule=4a4e1b3207b8077b
bucket bytes=16
balance=equal
compression=topk:0.1`},
		"exact": {func(c *Config) {
			c.Gradients.Exact, c.Gradients.Audit, c.Balancing.MaxShare, c.DataHash, c.Seed = true, 0.25, 2, "hash", 7
		}, `
samples=40
global batch=20
microbatch=5
seed=7
parameters=2 of 5 elements, shapes ab6bb5c5e3ae5c49
optimizer=optim.SGD{Momentum:0.5 Nesterov:false WeightDecay:0}
clip=0
exact=true
data=hash
steps=6
schedule=4a4e1b3207b8077b
bucket bytes=8
balance=auto
compression=none
audit=0.25
arithmetic=depends on the processor`},
	} {
		var got strings.Builder
		for _, s := range settings(t, c.change) {
			if s.Name == "arithmetic" {
				s.Value = "depends on the processor"
			}
			got.WriteString("\n" + s.Name + "=" + s.Value)
		}
		if got.String() != c.want {
			t.Errorf("%s: got%s\nwant%s", name, got.String(), c.want)
		}
	}
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
		"clip":         func(c *Config) { c.Gradients.Clip = 1 },
		"exact":        func(c *Config) { c.Gradients.Exact = true },
		"data":         func(c *Config) { c.DataHash = "x" },
		"steps":        func(c *Config) { c.Passes++ },
		"schedule":     func(c *Config) { c.Schedule = optim.Cosine(0.5, 0, 7) },
		"bucket bytes": func(c *Config) { c.Gradients.BucketBytes++ },
		"growth":       func(c *Config) { c.Growth = Growth{Max: 21, Rate: GrowLinear, Efficiency: 0.5, Every: 3} },
	} {
		if got := value(change); got[name] == base[name] {
			t.Errorf("%s: the setting does not differ: %q", name, got[name])
		}
	}
	if got := value(func(c *Config) { c.Gradients.Exact = true }); got["arithmetic"] == "" {
		t.Error("exact mode without a probe")
	}
	if a, b := (layout{params: paramsOf(2, 3)}), (layout{params: paramsOf(2, 3)}); newLayout(a.params, 1).describe() == newLayout(append(b.params[:1:1], Param{"b", []int{3, 1}, make([]float32, 3)}), 1).describe() {
		t.Error("shapes do not count")
	}
}
