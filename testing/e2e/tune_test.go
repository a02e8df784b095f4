package e2e

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/elrun/elrun/cmd/elrun/bench"
	"github.com/elrun/elrun/testing/process"
	"gonum.org/v1/gonum/stat"
)

// auto takes at most 15 % longer than the best fixed algorithm. The test compares medians over several jobs, each of which
// measures its own costs. Within one job the times of two algorithms that send the same messages may differ by more.
func TestAutoIsNearBest(t *testing.T) {
	jobs, sizes := 1, "4,64K"
	if long() {
		jobs, sizes = 9, "1K,4,16K,64K,256K,1M,4M"
	}
	for _, transport := range []string{"shm", "direct", "p2p"} {
		for _, n := range []int{2, 4} {
			t.Run(fmt.Sprintf("%s/n=%d", transport, n), func(t *testing.T) {
				bySize := make(map[int]*choices)
				for range jobs {
					stdout, stderr, status := process.Command(t, "bench", "allreduce", "-n", strconv.Itoa(n), "--transport", transport,
						"--tune", "--json", "--sizes", sizes)
					if status != 0 {
						t.Fatalf("status %d\n%s", status, stderr)
					}
					for line := range strings.Lines(stdout) {
						var r bench.Result
						if err := json.Unmarshal([]byte(line), &r); err != nil {
							t.Fatalf("%s: %v", line, err)
						}
						if r.Wrong != 0 {
							t.Errorf("%d bytes by %s: %d wrong", r.Bytes, r.Algorithm, r.Wrong)
						}
						if bySize[r.Bytes] == nil {
							bySize[r.Bytes] = &choices{byAlgorithm: make(map[string][]float64)}
						}
						bySize[r.Bytes].add(r)
					}
				}
				for bytes, c := range bySize {
					ratio := c.ratio()
					t.Logf("%d bytes: auto takes %.2f times as long as the best fixed algorithm", bytes, ratio)
					if long() && ratio > 1.15 {
						t.Errorf("%d bytes: %+v", bytes, *c)
					}
				}
			})
		}
	}
}

// choices has the times for one size over several jobs.
type choices struct {
	auto        []float64
	byAlgorithm map[string][]float64
}

// add adds the time of one algorithm.
func (c *choices) add(r bench.Result) {
	c.byAlgorithm[r.Algorithm] = append(c.byAlgorithm[r.Algorithm], r.P50)
	if r.Auto {
		c.auto = append(c.auto, r.P50)
	}
}

// ratio returns the median time of auto divided by the median time of the best algorithm.
func (c *choices) ratio() float64 {
	var medians []float64
	for _, times := range c.byAlgorithm {
		medians = append(medians, median(times))
	}
	return median(c.auto) / slices.Min(medians)
}

// quantile returns the smallest value that is at least as large as a fraction p of the values.
func quantile(values []float64, p float64) float64 {
	return stat.Quantile(p, stat.Empirical, slices.Sorted(slices.Values(values)), nil)
}

// median returns the median, for an even number of values the lower one.
func median(values []float64) float64 { return quantile(values, 0.5) }
