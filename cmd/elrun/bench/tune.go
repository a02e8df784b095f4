package bench

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/elrun/elrun/collective"
)

// Tuned is a comparison of the algorithms for one size. N is the number of ranks. Bytes is the
// requested length of the vector, not rounded as in Result. Times are in the order of the constants
// of collective.Algorithm, and are equal at all ranks.
type Tuned struct {
	Collective string          `json:"collective"`
	N          int             `json:"n"`
	Bytes      int             `json:"bytes"`
	Times      []AlgorithmTime `json:"times"`
	Auto       string          `json:"auto"`  // the choice of Auto
	Best       string          `json:"best"`  // the fastest algorithm
	Ratio      float64         `json:"ratio"` // time of Auto / time of Best; 1 or more
	Wrong      int64           `json:"wrong"` // wrong elements, over all ranks, calls and algorithms
}

// AlgorithmTime is the time of one algorithm.
type AlgorithmTime struct {
	Algorithm string  `json:"algorithm"`
	P50       float64 `json:"us_p50"` // median of the medians of the rounds, in microseconds
}

// tuneRounds is the number of rounds. Each round measures all algorithms, so that a disturbance of
// the machine affects all of them alike.
const tuneRounds = 5

// Tune measures every algorithm that can do the call, in several rounds. It passes the comparison
// for each size to report, at every rank. cfg.Algorithm is ignored.
func Tune(ctx context.Context, c *collective.Comm, cfg Config, report func(Tuned) error) error {
	for _, bytes := range cfg.Bytes {
		t, err := tune(ctx, c, cfg, bytes)
		if err != nil {
			return err
		}
		if err := report(t); err != nil {
			return fmt.Errorf("bench: report: %w", err)
		}
	}
	return nil
}

// tune compares the algorithms for one size.
func tune(ctx context.Context, c *collective.Comm, cfg Config, bytes int) (Tuned, error) {
	auto, err := chosen(c, cfg, bytes)
	if err != nil {
		return Tuned{}, err
	}
	t := Tuned{Collective: cfg.Collective, N: c.Size(), Bytes: bytes, Auto: auto}
	candidates := candidates(c, cfg, bytes)
	rounds := make([][]float64, len(candidates))
	// All rounds together make as many iterations as a measurement without --tune; a median needs
	// at least three iterations in each round.
	cfg.Bytes, cfg.Iters = []int{bytes}, max(3, Iterations(cfg.Iters, bytes)/tuneRounds)
	for range tuneRounds {
		for i, a := range candidates {
			cfg.Algorithm = a
			err := Run(ctx, c, cfg, func(r Result) error {
				rounds[i] = append(rounds[i], r.P50)
				t.Wrong += r.Wrong
				return nil
			})
			if err != nil {
				return Tuned{}, err
			}
		}
	}
	for i, a := range candidates {
		slices.Sort(rounds[i])
		t.Times = append(t.Times, AlgorithmTime{a.String(), quantile(rounds[i], 0.5)})
	}
	t.compare()
	return t, nil
}

// candidates returns the algorithms that can do the call, the same at all ranks. For an algorithm
// that cannot do the call Comm.Choice returns an error or another algorithm.
func candidates(c *collective.Comm, cfg Config, bytes int) []collective.Algorithm {
	var out []collective.Algorithm
	for a := collective.Ring; a <= collective.TwoLevel; a++ {
		if name, err := chosen(c.With(collective.CallOptions{Algorithm: a}), cfg, bytes); err == nil && name == a.String() {
			out = append(out, a)
		}
	}
	return out
}

// compare sets the fields that follow from the times. The medians of the algorithms are compared,
// as one delayed call on a busy machine would dominate a mean.
func (t *Tuned) compare() {
	best, auto := t.Times[0], t.Times[0]
	for _, taken := range t.Times {
		if taken.P50 < best.P50 {
			best = taken
		}
		if taken.Algorithm == t.Auto {
			auto = taken
		}
	}
	t.Best, t.Ratio = best.Algorithm, 1
	if best.P50 > 0 {
		t.Ratio = auto.P50 / best.P50
	}
}

// WriteRow writes t as a line; the choice of Auto has a star.
func (t Tuned) WriteRow(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%12d", t.Bytes)
	for _, taken := range t.Times {
		star := " "
		if taken.Algorithm == t.Auto {
			star = "*"
		}
		fmt.Fprintf(&b, "  %s %.1f%s", taken.Algorithm, taken.P50, star)
	}
	fmt.Fprintf(&b, "  auto/best %.2f\n", t.Ratio)
	_, err := io.WriteString(w, b.String())
	return err
}

// Crossovers returns a text that says which algorithm Auto chooses from which size on, up to 1 GiB.
// It tries powers of two, so the exact crossover lies between the size in the text and half of this
// size. It makes no collective call.
func Crossovers(c *collective.Comm, name string) (string, error) {
	var out []string
	last := ""
	for bytes := 4; bytes <= 1<<30; bytes *= 2 {
		choice, err := chosen(c, Config{Collective: name}, bytes)
		if err != nil {
			return "", err
		}
		// Only changes are listed: most sizes have the choice of the size before.
		if choice != last {
			out = append(out, fmt.Sprintf("%s from %d bytes", choice, bytes))
			last = choice
		}
	}
	return strings.Join(out, ", "), nil
}
