package main_test

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/elrun/elrun/elastic"
	topics "github.com/elrun/elrun/examples/topics"
	"github.com/elrun/elrun/internal/race"
	"github.com/elrun/elrun/testing/cluster"
	"github.com/elrun/elrun/testing/simnet"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// options are the options of the jobs in these tests.
func options(copies int) topics.Options {
	return topics.Options{Topics: 20, Blocks: 16, Chunks: 16, Copies: copies, Rounds: 60, Pace: 10 * time.Millisecond, Check: true}
}

// sampled is what a job has come to.
type sampled struct {
	mu           sync.Mutex
	finished     int
	wrong, lost  int
	least, most  float64 // perplexities
	missedResult int
}

// sample runs a sampler at a member.
func (r *sampled) sample(ctx context.Context, g *elastic.Group, text *topics.Text, o topics.Options) error {
	s := topics.NewSampler(text, o)
	err := s.Train(ctx, g)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wrong, r.lost = max(r.wrong, s.Wrong), max(r.lost, s.Rebuilt)
	if err != nil {
		return err
	}
	r.finished++
	switch p := s.Perplexity(); {
	case p == 0:
		r.missedResult++
	case r.least == 0:
		r.least, r.most = p, p
	default:
		r.least, r.most = min(r.least, p), max(r.most, p)
	}
	return nil
}

// run runs a job of n members. happen, if not nil, lets things happen to it.
func run(t *testing.T, n int, seed uint64, text *topics.Text, o topics.Options, happen func(job *cluster.Job)) *sampled {
	r := new(sampled)
	synctest.Test(t, func(t *testing.T) {
		network := simnet.New(simnet.Config{Seed: seed, Link: simnet.Link{Delay: 100 * time.Microsecond, Lag: 100 * time.Microsecond}})
		job := cluster.Start(t, n, network, func(ctx context.Context, g *elastic.Group) error { return r.sample(ctx, g, text, o) })
		if happen != nil {
			happen(job)
		}
		job.Wait()
	})
	return r
}

// The model is as good with several members as with one, also if two die and one joins. The counts of
// each round are those of the topics of all words.
func TestPerplexity(t *testing.T) {
	text := topics.Generate(600, 500, 10)
	alone := run(t, 1, 1, text, options(0), nil)
	t.Logf("one process: perplexity %.1f", alone.most)
	// The documents are not arbitrary: knowing nothing gives 500.
	if alone.wrong > 0 || alone.most > 300 {
		t.Fatalf("one process: %d counts wrong, perplexity %.1f", alone.wrong, alone.most)
	}
	lost, seeds := 0, uint64(6)
	if race.Enabled {
		seeds = 1 // the goroutines do the same for each seed
	}
	for seed := range seeds {
		for copies := range 2 {
			r := run(t, 4, seed, text, options(copies), func(job *cluster.Job) {
				<-time.After(time.Duration(100+20*seed) * time.Millisecond)
				job.Kill(int(seed % 4))
				<-time.After(100 * time.Millisecond)
				job.Join()
				<-time.After(100 * time.Millisecond)
				job.Kill(int(seed+2) % 4)
			})
			t.Logf("seed %d, copies %d: perplexity %.1f to %.1f, %d pieces lost", seed, copies, r.least, r.most, r.lost)
			if r.finished < 3 || r.missedResult == r.finished || r.least != r.most || math.Abs(r.most/alone.most-1) > 0.02 || r.wrong > 0 || copies > 0 && r.lost > 0 {
				t.Errorf("seed %d, copies %d: %+v, alone %.1f", seed, copies, r, alone.most)
			}
			lost += r.lost
		}
	}
	if lost == 0 {
		t.Error("without copies no piece was lost")
	}
}

// There may be fewer blocks and chunks than members.
func TestFewBlocks(t *testing.T) {
	o := options(1)
	o.Blocks, o.Chunks, o.Rounds = 2, 2, 5
	if r := run(t, 4, 1, topics.Generate(50, 100, 5), o, nil); r.finished != 4 || r.wrong > 0 || r.missedResult > 0 {
		t.Errorf("%+v", r)
	}
}

func TestReadText(t *testing.T) {
	file := filepath.Join(t.TempDir(), "text")
	// 120 frequent words are left out; of the others those that occur at least 5 times stay.
	var b strings.Builder
	name := func(i int) string { return strings.Repeat(string(rune('a'+i%26)), 3+i/26) }
	for range 1500 {
		for i := range 120 {
			b.WriteString(name(i) + " ")
		}
	}
	b.WriteString("seldom\n\n")
	for range 20 {
		for range 60 {
			b.WriteString("Whale, sea; SHIP of ")
		}
		b.WriteString("\n\n")
	}
	if err := os.WriteFile(file, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	text, err := topics.ReadText(file)
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(text.Vocabulary, " "); got != "sea ship whale" || len(text.Documents) != 18 || len(text.Held) != 2 || len(text.Held[0]) != 180 {
		t.Errorf("words %q, %d and %d documents", got, len(text.Documents), len(text.Held))
	}
	if err := os.WriteFile(file, []byte("Call me Ishmael."), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{file: "too short", file + "x": "make data"} {
		if _, err := topics.ReadText(name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
	}
}
