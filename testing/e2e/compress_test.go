package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/testing/process"
)

// squeezed has the results of a job on MNIST with four peers.
type squeezed struct {
	accuracy  float64
	digests   [squeezers]map[int64]string // for each peer, by step
	sent, raw int64                       // bytes of gradients, over all peers and steps
}

const squeezers = 4

// squeeze trains on MNIST with a coding of the gradients.
func squeeze(t *testing.T, program, data, coding string, flags ...string) squeezed {
	t.Helper()
	log := filepath.Join(t.TempDir(), "events.jsonl")
	ctx, cancel := context.WithTimeout(t.Context(), 10*limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, process.Elrun(), slices.Concat([]string{"-n", fmt.Sprint(squeezers), "--listen", listen(),
		"--events", log, "--", program, "--data", data, "--compress", coding}, flags)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
	}
	f, err := os.Open(log)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var s squeezed
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var e event.Event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			t.Fatalf("%q: %v", lines.Text(), err)
		}
		s.note(e)
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return s
}

// note adds an event to the results.
func (s *squeezed) note(e event.Event) {
	switch b := e.Body.(type) {
	case event.Step:
		if s.digests[e.Index] == nil {
			s.digests[e.Index] = make(map[int64]string)
		}
		s.digests[e.Index][e.Step] = b.Digest
		s.sent, s.raw = s.sent+b.SentBytes, s.raw+b.RawBytes
	case event.Done:
		if b.Accuracy != nil {
			s.accuracy = *b.Accuracy
		}
	}
}

// checkDigests checks that all peers have reported the digest of each step, and that the digests are equal.
func (s *squeezed) checkDigests(t *testing.T, steps int) {
	t.Helper()
	for peer, digests := range s.digests {
		if len(digests) != steps {
			t.Errorf("peer %d reports %d steps of %d", peer, len(digests), steps)
		}
		for step, d := range digests {
			if d == "" || d != s.digests[0][step] {
				t.Errorf("step %d: digest %q at peer %d, %q at peer 0", step, d, peer, s.digests[0][step])
			}
		}
	}
}

// TestCompression checks that training with every coding is at most half a percentage point less
// accurate than without compression, and that all peers have the same bits after every step. It
// logs how much shorter the coded gradients are:
//
//	go test -count=1 -timeout=1h -v -run TestCompression ./testing/e2e -long
//
// The short form trains a smaller model for a shorter time, with two of the codings.
func TestCompression(t *testing.T) {
	program, data := mnist(t)
	flags := pick([]string{"--hidden", "64", "--passes", "2"}, []string{"--passes", "10"})
	least := pick(map[string]float64{"int8": 3.9, "topk:0.3": 2.1},
		map[string]float64{"fp16": 1.99, "bf16": 1.99, "int8": 3.9, "topk:0.1": 6, "topk:0.01": 35})
	plain := squeeze(t, program, data, "none", flags...)
	if plain.sent != 0 || plain.raw != 0 || plain.accuracy < pick(0.94, 0.97) {
		t.Errorf("none: accuracy %v, %d bytes of %d", plain.accuracy, plain.sent, plain.raw)
	}
	plain.checkDigests(t, len(plain.digests[0]))
	for _, coding := range slices.Sorted(maps.Keys(least)) {
		want := least[coding]
		t.Run(coding, func(t *testing.T) {
			got := squeeze(t, program, data, coding, flags...)
			got.checkDigests(t, len(plain.digests[0]))
			ratio := float64(got.raw) / float64(got.sent)
			t.Logf("%.2f times shorter, accuracy %.4f, without %.4f", ratio, got.accuracy, plain.accuracy)
			if got.accuracy < plain.accuracy-0.005 {
				t.Errorf("accuracy %.4f, %.4f without", got.accuracy, plain.accuracy)
			}
			if !(ratio >= want) {
				t.Errorf("%d bytes sent for %d, want %v times fewer", got.sent, got.raw, want)
			}
		})
	}
}
