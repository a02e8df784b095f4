package nn_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/cespare/xxhash/v2"
	"github.com/elrun/elrun/internal/kernel"
	"github.com/elrun/elrun/trainer/exact"
	"github.com/elrun/elrun/trainer/nn"
)

// exactNetworks returns networks for tests of exact mode, in which all peers must compute the same
// bits for the same microbatch. The networks have sizes at which vector kernels treat the first and
// the last elements separately. Some parameters are so small that the allocator may place them at
// any alignment.
func exactNetworks() []network {
	in := nn.Shape{C: 1, H: 13, W: 13}
	return []network{
		{"softmax", nn.Shape{C: 37, H: 1, W: 1}, []nn.Layer{nn.Dense(3)}, nil},
		{"mlp", nn.Shape{C: 37, H: 1, W: 1}, []nn.Layer{nn.Dense(19), nn.ReLU(), nn.Dense(7), nn.ReLU(), nn.Dense(3)}, nil},
		{"cnn", in, []nn.Layer{nn.Conv(3, 4), nn.Pool(), nn.ReLU(), nn.Conv(5, 3), nn.ReLU(), nn.Dense(11), nn.ReLU(), nn.Dense(3)}, nil},
		{"tiny", nn.Shape{C: 37, H: 1, W: 1}, []nn.Layer{nn.Dense(1), nn.Dense(5), nn.Dense(1), nn.Dense(6)}, nil},
		{"narrow", nn.Shape{C: 1, H: 9, W: 9}, []nn.Layer{nn.Conv(1, 1), nn.Conv(1, 3), nn.Dense(1), nn.Dense(2)}, nil},
	}
}

// gradientHash computes the gradient of one microbatch into slices that are aligned as in package
// trainer. It returns a hash of all bits of the gradient and the loss.
func gradientHash(t *testing.T, m *nn.Network, samples []int) uint64 {
	t.Helper()
	_, views := exact.Views(sizesOf(m))
	return hashInto(t, m, views, samples)
}

func sizesOf(m *nn.Network) []int {
	var sizes []int
	for _, p := range m.Params() {
		sizes = append(sizes, len(p.Data))
	}
	return sizes
}

func hashInto(t *testing.T, m *nn.Network, grad [][]float32, samples []int) uint64 {
	t.Helper()
	loss, err := m.Model().Accumulate(grad, samples, nil)
	if err != nil {
		t.Fatal(err)
	}
	h := xxhash.New()
	h.Write(kernel.Bytes([]float64{loss})) // never fails
	for _, g := range grad {
		h.Write(kernel.Bytes(g))
	}
	return h.Sum64()
}

// microbatch lists the samples whose gradient is compared.
func microbatch() []int { return []int{5, 0, 17, 3, 8, 12, 4, 11, 2, 1, 9} }

// A gradient depends only on the microbatch and the parameters. It does not depend on earlier computations of the model, or on
// addresses.
func TestGradientDependsOnTheMicrobatchAlone(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	for _, n := range exactNetworks() {
		data := randomTable(20, n.in, 2)
		m, _ := newNetwork(t, n, data)
		want := gradientHash(t, m, microbatch())
		var litter [][]float32 // changes the addresses of later allocations
		for range 40 {
			other, _ := newNetwork(t, n, data)
			for range rng.IntN(4) {
				gradientHash(t, other, rng.Perm(20)[:1+rng.IntN(19)])
				litter = append(litter, make([]float32, rng.IntN(40)))
				if _, err := other.Evaluate(t.Context(), data, 0, rng.IntN(20)); err != nil {
					t.Fatal(err)
				}
			}
			if got := gradientHash(t, other, microbatch()); got != want {
				t.Fatalf("%s: another model, after other microbatches and %d allocations, has another gradient", n.name, len(litter))
			}
			if got := gradientHash(t, m, microbatch()); got != want {
				t.Fatalf("%s: the same model has another gradient now", n.name)
			}
		}
	}
}

// The vectors that receive the gradients may have any address.
func TestGradientAtAnyAddress(t *testing.T) {
	for _, n := range exactNetworks() {
		m, _ := newNetwork(t, n, randomTable(20, n.in, 2))
		want := gradientHash(t, m, microbatch())
		for offset := range exact.Alignment / 4 {
			var grad [][]float32
			for _, size := range sizesOf(m) {
				grad = append(grad, exact.Aligned(offset + size)[offset:])
			}
			if got := hashInto(t, m, grad, microbatch()); got != want {
				t.Errorf("%s: another gradient %d elements off the boundary", n.name, offset)
			}
		}
	}
}

// The gradient is the same in a fresh process, which has another heap.
func TestGradientInAnotherProcess(t *testing.T) {
	const variable, mark = "ELRUN_TEST_GRADIENTS", "gradients: "
	hashes := ""
	for _, n := range exactNetworks() {
		m, _ := newNetwork(t, n, randomTable(20, n.in, 2))
		hashes += fmt.Sprintf("%016x,", gradientHash(t, m, microbatch()))
	}
	if os.Getenv(variable) != "" {
		fmt.Println(mark + hashes)
		return
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), variable+"=1", "GOGC=1")
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), mark+hashes) {
		t.Errorf("here %s, there %s (%v)", hashes, out, err)
	}
}

// With exact sums the parameters do not depend on which peer computes which microbatch. The test
// compares a small training run with one peer and with three peers.
func TestExactTrainingIsTheSameForAnyNumberOfPeers(t *testing.T) {
	for _, n := range exactNetworks() {
		data := randomTable(20, n.in, 2)
		alone, three := trainExactly(t, n, data, 1), trainExactly(t, n, data, 3)
		for i, p := range alone.Params() {
			for j, v := range p.Data {
				if w := three.Params()[i].Data[j]; math.Float32bits(v) != math.Float32bits(w) {
					t.Fatalf("%s: %s[%d] is %v alone and %v with three peers", n.name, p.Name, j, v, w)
				}
			}
		}
	}
}

// trainExactly trains for five steps of four microbatches, which are assigned to the peers in turn.
func trainExactly(t *testing.T, n network, data nn.Table, peers int) *nn.Network {
	t.Helper()
	models := make([]*nn.Network, peers)
	for i := range models {
		models[i], _ = newNetwork(t, n, data)
	}
	scale, err := exact.New(len(sizesOf(models[0])), 4)
	if err != nil {
		t.Fatal(err)
	}
	for step := 0; step < 5; {
		sums, peaks := sumStep(t, scale, models, step)
		next := scale.Next(peaks)
		if scale.Fits(peaks) {
			applyStep(scale, models, sums)
			step++
		}
		scale = next
	}
	return models[peers-1]
}

// sumStep sums the contributions of all peers to a step.
func sumStep(t *testing.T, scale exact.Scale, models []*nn.Network, step int) ([][]int32, []exact.Peak) {
	t.Helper()
	sizes := sizesOf(models[0])
	sums, peaks := make([][]int32, len(sizes)), make([]exact.Peak, len(sizes))
	for i, size := range sizes {
		sums[i] = make([]int32, size)
	}
	flat, views := exact.Views(sizes)
	for k := range 4 {
		clear(flat)
		samples := []int{k * 5, k*5 + step, k*5 + 2, k*5 + 3}
		if _, err := models[(k+step)%len(models)].Model().Accumulate(views, samples, nil); err != nil {
			t.Fatal(err)
		}
		for i, v := range views {
			peaks[i] = max(peaks[i], scale.Add(i, sums[i], v))
		}
	}
	return sums, peaks
}

// applyStep updates all models by the mean gradient.
func applyStep(scale exact.Scale, models []*nn.Network, sums [][]int32) {
	for i := range sums {
		mean := make([]float32, len(sums[i]))
		scale.Mean(i, mean, sums[i], 16)
		for _, m := range models {
			for j, g := range mean {
				m.Params()[i].Data[j] -= float32(0.1 * g)
			}
		}
	}
}
