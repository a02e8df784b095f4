package nn_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/elrun/elrun/trainer"
	"github.com/elrun/elrun/trainer/nn"
)

// randomTable returns samples that resemble images: half of the inputs are zero.
func randomTable(samples int, in nn.Shape, classes int) nn.Table {
	rng := rand.New(rand.NewPCG(1, 2))
	var t nn.Table
	for range samples {
		x := make([]float32, in.Size())
		for i := range x {
			x[i] = max(0, float32(rng.NormFloat64()))
		}
		t.Inputs, t.Classes = append(t.Inputs, x), append(t.Classes, rng.IntN(classes))
	}
	return t
}

// network describes a network under test. twin has the same layers for the twin; it may be nil.
type network struct {
	name   string
	in     nn.Shape
	layers []nn.Layer
	twin   []twinLayer
}

// networks returns networks that the twin can compute. They have each layer in every position that
// has its own code: as the first layer or a later one, with odd sides, with several channels.
func networks() []network {
	return []network{
		{"softmax", nn.Shape{C: 7, H: 1, W: 1},
			[]nn.Layer{nn.Dense(3)}, []twinLayer{twinDense(3)}},
		{"mlp", nn.Shape{C: 5, H: 1, W: 1},
			[]nn.Layer{nn.Dense(8), nn.ReLU(), nn.Dense(6), nn.ReLU(), nn.Dense(3)},
			[]twinLayer{twinDense(8), twinReLU(), twinDense(6), twinReLU(), twinDense(3)}},
		{"relu first", nn.Shape{C: 5, H: 1, W: 1},
			[]nn.Layer{nn.ReLU(), nn.Dense(3)}, []twinLayer{twinReLU(), twinDense(3)}},
		{"cnn", nn.Shape{C: 1, H: 11, W: 12},
			[]nn.Layer{nn.Conv(3, 3), nn.Pool(), nn.ReLU(), nn.Conv(4, 2), nn.Pool(), nn.ReLU(), nn.Dense(3)},
			[]twinLayer{twinConv(3, 3), twinPool(), twinReLU(), twinConv(4, 2), twinPool(), twinReLU(), twinDense(3)}},
		{"channels", nn.Shape{C: 2, H: 5, W: 4},
			[]nn.Layer{nn.Pool(), nn.Conv(3, 2), nn.ReLU(), nn.Conv(3, 1), nn.Dense(4), nn.Dense(2)},
			[]twinLayer{twinPool(), twinConv(3, 2), twinReLU(), twinConv(3, 1), twinDense(4), twinDense(2)}},
		// The second convolution has outputs of whole lines (product.Lanes), the first one has not.
		{"lines", nn.Shape{C: 1, H: 6, W: 12},
			[]nn.Layer{nn.Conv(5, 3), nn.ReLU(), nn.Conv(3, 3), nn.Dense(2)},
			[]twinLayer{twinConv(5, 3), twinReLU(), twinConv(3, 3), twinDense(2)}},
	}
}

func newNetwork(t testing.TB, n network, data nn.Data) (*nn.Network, [][]float32) {
	t.Helper()
	m, err := nn.New(data, n.in, 42, n.layers...)
	if err != nil {
		t.Fatal(err)
	}
	// Nonzero biases keep units without inputs away from the point where ReLU has no derivative.
	for i, p := range m.Params() {
		for j := 0; strings.HasSuffix(p.Name, "bias") && j < len(p.Data); j++ {
			p.Data[j] = 0.1*float32(i) - 0.07*float32(j) + 0.03
		}
	}
	m.Model().Order(true) // defers some gradients
	return m, zeros(m)
}

func zeros(m *nn.Network) [][]float32 {
	var grad [][]float32
	for _, p := range m.Params() {
		grad = append(grad, make([]float32, len(p.Data)))
	}
	return grad
}

// The loss agrees with the loss of the twin. Each gradient agrees with the central difference of
// the twin's loss, which is smooth at the scale of eps.
func TestGradientsAgainstCentralDifferences(t *testing.T) {
	for _, n := range networks() {
		t.Run(n.name, func(t *testing.T) {
			data := randomTable(6, n.in, 2)
			m, grad := newNetwork(t, n, data)
			samples := []int{4, 1, 5, 2}
			loss, err := m.Model().Accumulate(grad, samples, nil)
			if err != nil {
				t.Fatal(err)
			}
			slow, params := twin{n.twin, n.in}, wideParams(m.Params())
			if want := slow.loss(params, data, samples); math.Abs(loss-want) > 1e-5*want {
				t.Errorf("loss %v, twin %v", loss, want)
			}
			checkGradient(t, m, grad, params, func() float64 { return slow.loss(params, data, samples) })
		})
	}
}

// checkGradient changes each element of params in both directions, and compares the change of the loss with the gradient.
func checkGradient(t *testing.T, m *nn.Network, grad [][]float32, params [][]float64, loss func() float64) {
	t.Helper()
	const eps = 1e-6
	for i, p := range params {
		for j, was := range p {
			p[j] = was + eps
			up := loss()
			p[j] = was - eps
			down := loss()
			p[j] = was
			want := (up - down) / (2 * eps)
			if math.Abs(float64(grad[i][j])-want) > 1e-4*(1+math.Abs(want)) {
				t.Fatalf("%s[%d]: gradient %v, central difference %v", m.Params()[i].Name, j, grad[i][j], want)
			}
		}
	}
}

func TestAccumulateAddsAndReportsEachParameterOnce(t *testing.T) {
	for _, n := range networks() {
		data := randomTable(9, n.in, 2)
		m, whole := newNetwork(t, n, data)
		all := []int{0, 1, 2, 3, 4, 5, 6, 7, 8}
		if _, err := m.Model().Accumulate(whole, all, nil); err != nil {
			t.Fatal(err)
		}
		// The same samples are added to one buffer in batches of different sizes.
		parts, order := zeros(m), []int(nil)
		for _, part := range [][]int{all[:4], all[4:5], all[5:]} {
			order = nil
			if _, err := m.Model().Accumulate(parts, part, func(i, from int) {
				if from == 0 {
					order = append(order, i)
				}
			}); err != nil {
				t.Fatal(err)
			}
		}
		for i := range whole {
			for j := range whole[i] {
				if math.Abs(float64(whole[i][j]-parts[i][j])) > 1e-4 {
					t.Fatalf("%s: %s[%d] is %v at once, %v in parts", n.name, m.Params()[i].Name, j, whole[i][j], parts[i][j])
				}
			}
		}
		var want []int
		for _, p := range m.Model().Order(true) {
			if p.From == 0 {
				want = append(want, p.Param)
			}
		}
		if len(want) != len(m.Params()) || !slices.Equal(order, want) {
			t.Errorf("%s: done called for %v, want %v", n.name, order, want)
		}
	}
}

// After done(i) the model must not change grad[i] any more, because its reduction has begun.
func TestDoneMeansDone(t *testing.T) {
	for _, n := range networks() {
		m, grad := newNetwork(t, n, randomTable(3, n.in, 2))
		at := make([][]float32, len(grad))
		if _, err := m.Model().Accumulate(grad, []int{0, 1, 2}, func(i, _ int) { at[i] = slices.Clone(grad[i]) }); err != nil {
			t.Fatal(err)
		}
		for i := range grad {
			if !slices.Equal(at[i], grad[i]) {
				t.Errorf("%s: %s changed after done", n.name, m.Params()[i].Name)
			}
		}
	}
}

func TestEvaluateAndPredictAgreeWithTheTwin(t *testing.T) {
	for _, n := range networks() {
		data := randomTable(70, n.in, 2)
		m, _ := newNetwork(t, n, data)
		slow, params := twin{n.twin, n.in}, wideParams(m.Params())
		correct, samples := 0, []int(nil)
		for i := 3; i < 68; i++ {
			z := slow.logits(params, data.Inputs[i])
			best := slices.Index(z, slices.Max(z))
			if best == data.Classes[i] {
				correct++
			}
			samples = append(samples, i)
			if got, err := m.Predict(data.Inputs[i]); err != nil || got != best {
				t.Fatalf("%s: sample %d predicted as %d (%v), twin %d", n.name, i, got, err, best)
			}
		}
		score, err := m.Evaluate(t.Context(), data, 3, 68)
		if err != nil {
			t.Fatal(err)
		}
		want := slow.loss(params, data, samples)
		if score.Samples != 65 || score.Correct != correct || math.Abs(score.Loss-want) > 1e-4*want {
			t.Errorf("%s: score %+v, want %d correct, loss %v", n.name, score, correct, want)
		}
	}
}

func TestEvaluateEndsWithItsContext(t *testing.T) {
	n := networks()[0]
	m, _ := newNetwork(t, n, randomTable(2, n.in, 2))
	why := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	if _, err := m.Evaluate(ctx, randomTable(2, n.in, 2), 0, 2); !errors.Is(err, why) {
		t.Errorf("error %v, want the cause", err)
	}
}

func TestBadCalls(t *testing.T) {
	n := networks()[0]
	data := randomTable(2, n.in, 3)
	m, grad := newNetwork(t, n, data)
	check := func(err error, want string) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	_, err := m.Model().Accumulate(grad, []int{0, 2}, nil)
	check(err, "sample 2 does not exist: the data have 2 samples")
	_, err = m.Model().Accumulate(grad, []int{-1}, nil)
	check(err, "sample -1 does not exist: the data have 2 samples")
	_, err = m.Model().Accumulate(grad[:1], []int{0}, nil)
	check(err, "1 gradients for 2 parameters")
	_, err = m.Model().Accumulate(grad, nil, nil)
	check(err, "no samples")
	data.Classes[1] = 3
	_, err = m.Model().Accumulate(grad, []int{1}, nil)
	check(err, "class 3, but the model has only the classes below 3")
	_, err = m.Predict(make([]float32, 3))
	check(err, "3 inputs, want 7")
	for _, g := range grad {
		if slices.ContainsFunc(g, func(v float32) bool { return v != 0 }) {
			t.Error("a failed Accumulate changed the gradient")
		}
	}
}

func TestNewRefusesWhatDoesNotFit(t *testing.T) {
	in := nn.Shape{C: 1, H: 4, W: 4}
	tests := map[string][]nn.Layer{
		"0 layers":                  {},
		"layer0: 0 outputs":         {nn.Dense(0)},
		"3 filters of 5 x 5":        {nn.Conv(3, 5)},
		"0 filters of 1 x 1":        {nn.Conv(0, 1)},
		"are too small":             {nn.Pool(), nn.Pool(), nn.Pool()},
		"layer1: 2 filters":         {nn.Pool(), nn.Conv(2, 3)},
		"1 filters of 0 x 0 ":       {nn.Conv(1, 0)},
		"layer 1 is the zero Layer": {nn.Dense(3), {}},
	}
	for want, layers := range tests {
		if _, err := nn.New(nn.Table{}, in, 1, layers...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	if _, err := nn.New(nn.Table{}, nn.Shape{}, 1, nn.Dense(1)); err == nil {
		t.Error("an empty shape was taken")
	}
}

func TestWeightsDependOnTheSeedAlone(t *testing.T) {
	in := nn.Shape{C: 1, H: 28, W: 28}
	build := func(seed uint64) *nn.Network {
		m, err := nn.CNN(nn.Table{}, in, []int{4, 6}, 20, 10, seed)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	a, b, other := build(1).Params(), build(1).Params(), build(2).Params()
	for i := range a {
		if !slices.Equal(a[i].Data, b[i].Data) {
			t.Errorf("%s differs between two networks of one seed", a[i].Name)
		}
		if strings.HasSuffix(a[i].Name, "weight") && slices.Equal(a[i].Data, other[i].Data) {
			t.Errorf("%s is the same for two seeds", a[i].Name)
		}
	}
	// If these values change, runs with the same seed have other weights, and the release notes
	// must say so.
	want := []float32{0.3607506, -0.055295534, 0.044342622}
	if got := a[0].Data[:3]; !slices.Equal(got, want) {
		t.Errorf("first weights of seed 1 are %v, want %v", got, want)
	}
}

// Weights are initialised as proposed by He: with mean 0 and variance 2/fanIn.
func TestWeightsHaveHesVariance(t *testing.T) {
	m, err := nn.MLP(nn.Table{}, nn.Shape{C: 200, H: 1, W: 1}, []int{300}, 10, 5)
	if err != nil {
		t.Fatal(err)
	}
	mean, square := 0.0, 0.0
	w := m.Params()[0].Data
	for _, v := range w {
		mean += float64(v) / float64(len(w))
		square += float64(v) * float64(v) / float64(len(w))
	}
	if math.Abs(mean) > 0.002 || math.Abs(square*200/2-1) > 0.02 {
		t.Errorf("mean %v, variance %v of 2/fanIn", mean, square*200/2)
	}
}

func TestLossIsStable(t *testing.T) {
	m, err := nn.Softmax(nn.Table{Inputs: [][]float32{{1}}, Classes: []int{1}}, nn.Shape{C: 1, H: 1, W: 1}, 2, 1)
	if err != nil {
		t.Fatal(err)
	}
	copy(m.Params()[0].Data, []float32{2000, -2000}) // logits outside the range of exp
	grad := zeros(m)
	loss, err := m.Model().Accumulate(grad, []int{0}, nil)
	if err != nil || loss != 4000 || !slices.Equal(grad[1], []float32{1, -1}) {
		t.Errorf("loss %v (%v), bias gradient %v; want 4000 and [1 -1]", loss, err, grad[1])
	}
}

// A NaN must reach the loss, where the trainer detects it.
func TestNaNReachesTheLoss(t *testing.T) {
	in := nn.Shape{C: 1, H: 6, W: 6}
	for i := range in.Size() {
		data := randomTable(1, in, 2)
		data.Inputs[0][i] = float32(math.NaN())
		m, err := nn.New(data, in, 1, nn.Conv(2, 3), nn.Pool(), nn.ReLU(), nn.Dense(2))
		if err != nil {
			t.Fatal(err)
		}
		if loss, err := m.Model().Accumulate(zeros(m), []int{0}, nil); err != nil || !math.IsNaN(loss) {
			t.Errorf("NaN at %d: loss %v (%v), want NaN", i, loss, err)
		}
	}
}

func TestSteadyStateAllocatesNothing(t *testing.T) {
	in := nn.Shape{C: 1, H: 28, W: 28}
	data := randomTable(20, in, 10)
	cnn, err := nn.CNN(data, in, []int{8, 16}, 128, 10, 1)
	if err != nil {
		t.Fatal(err)
	}
	mlp, err := nn.MLP(data, in, []int{256}, 10, 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range []*nn.Network{cnn, mlp} {
		grad := zeros(m)
		batch := trainer.NewBatch([][]int{{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}},
			trainer.Gate{Grad: func(i int) []float32 { return grad[i] }, Yield: func() {}})
		run := func() {
			if _, err := m.Gradient(batch); err != nil {
				t.Fatal(err)
			}
		}
		if n := testing.AllocsPerRun(3, run); n != 0 {
			t.Errorf("%v allocations per microbatch, want 0", n)
		}
	}
}

// BenchmarkAccumulate measures the time per sample in calls with different numbers of samples.
func BenchmarkAccumulate(b *testing.B) {
	const pass = 4096 // many samples, because a branch predictor would learn a short sequence
	in := nn.Shape{C: 1, H: 28, W: 28}
	data := randomTable(pass, in, 10)
	models := map[string]func() (*nn.Network, error){
		"mlp": func() (*nn.Network, error) { return nn.MLP(data, in, []int{256}, 10, 1) },
		"cnn": func() (*nn.Network, error) { return nn.CNN(data, in, []int{8, 16}, 128, 10, 1) },
	}
	for name, build := range models {
		for _, call := range []int{16, 64, 256} {
			b.Run(fmt.Sprintf("%s/%d", name, call), func(b *testing.B) {
				m, err := build()
				if err != nil {
					b.Fatal(err)
				}
				grad, samples, next := zeros(m), make([]int, call), 0
				b.ReportAllocs()
				for b.Loop() {
					for i := range samples {
						samples[i], next = next, (next+1)%pass
					}
					if _, err := m.Model().Accumulate(grad, samples, nil); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(call*b.N)/b.Elapsed().Seconds(), "samples/s")
			})
		}
	}
}

// A network yields to communication while it computes a gradient, but not while it evaluates.
func TestYields(t *testing.T) {
	for _, n := range networks() {
		t.Run(n.name, func(t *testing.T) {
			data := randomTable(4, n.in, 2)
			m, grad := newNetwork(t, n, data)
			yields := 0
			_, err := m.Gradient(trainer.NewBatch([][]int{{0, 1, 2}}, trainer.Gate{
				Grad: func(i int) []float32 { return grad[i] }, Yield: func() { yields++ }}))
			if err != nil || yields <= len(n.layers)/2 {
				t.Errorf("%d yields, error %v", yields, err)
			}
			before := yields
			if _, err := m.Evaluate(t.Context(), data, 0, 4); err != nil || yields != before {
				t.Errorf("%d yields of an evaluation, error %v", yields-before, err)
			}
		})
	}
}
