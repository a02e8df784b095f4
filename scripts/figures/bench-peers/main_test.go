package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestPlan(t *testing.T) {
	o, err := parseOptions([]string{"--rounds", "3", "--ranks", "2,16", "--sizes", "4,1K:1M", "--only", "Gloo;elrun shm"})
	if err != nil {
		t.Fatal(err)
	}
	p, err := o.plan()
	if err != nil {
		t.Fatal(err)
	}
	if p.rounds != 3 || !slices.Equal(p.ranks, []int{2, 16}) || len(p.groups) != 2 || !slices.Equal(p.groups[0], []int{4, 1024}) {
		t.Errorf("plan %+v", p)
	}
	if len(p.sides) != 2 || p.sides[0].name != elrunHeap || p.sides[1].name != glooTCP {
		t.Errorf("sides %+v", p.sides)
	}
	if o, err = parseOptions(nil); err != nil {
		t.Fatal(err)
	}
	if p, err = o.plan(); err != nil || len(p.sides) != len(sides()) {
		t.Errorf("without options: %d sides, %v", len(p.sides), err)
	}
}

func TestBadOptions(t *testing.T) {
	for _, line := range []string{"x", "--rounds 0", "--iters -1", "--ranks 1", "--ranks 17", "--ranks two", "--sizes 4,,8", "--sizes 1K:x"} {
		o, err := parseOptions(strings.Fields(line))
		if err == nil {
			_, err = o.plan()
		}
		if err == nil {
			t.Errorf("%s: no error", line)
		}
	}
}

// --report writes the report from the stored measurements.
func TestReportOption(t *testing.T) {
	docs := newDocs(t)
	if err := sample().save(filepath.Join(docs, "benchmarks", "figures.json")); err != nil {
		t.Fatal(err)
	}
	if err := run(t.Context(), []string{"--report", "--docs", docs}, &strings.Builder{}); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(docs, "benchmarks", "allreduce.md"))
	if err != nil || string(text) != sample().report() {
		t.Errorf("%v, report:\n%s", err, text)
	}
}

func TestBound(t *testing.T) {
	var out strings.Builder
	if err := run(t.Context(), []string{"bound", "2", "4:3,4096:2"}, &out); err != nil {
		t.Fatal(err)
	}
	got, err := parse(strings.NewReader(out.String()))
	if err != nil || len(got) != 2 || got[0].N != 2 || got[0].Bytes != 4 || got[1].Bytes != 4096 {
		t.Errorf("%+v, %v, of:\n%s", got, err, out.String())
	}
	for _, bad := range [][]string{{"bound", "two", "4:1"}, {"bound", "2", "4"}, {"bound", "2", "4:0"}, {"bound", "2", "x:1"}, {"bound", "2", "3:1"}} {
		if err := run(t.Context(), bad, &out); err == nil {
			t.Errorf("%v: no error", bad)
		}
	}
}

// The workers together copy and add the whole vectors.
func TestMove(t *testing.T) {
	for _, workers := range []int{1, 2, 3, 20} {
		m := newMemory(10, workers)
		m.move()
		for i := range m.a {
			if m.c[i] != m.a[i] || m.d[i] != m.a[i]+m.b[i] {
				t.Errorf("%d workers: element %d is %v and %v", workers, i, m.c[i], m.d[i])
			}
		}
	}
}

// The other programs get the same number of calls as elrun bench.
func TestArguments(t *testing.T) {
	sizes := []int{4, 1 << 20, 64 << 20}
	if got := calls(rig{}, sizes); got != "4:200,1048576:50,67108864:10" {
		t.Errorf("calls %q", got)
	}
	if got := calls(rig{iters: 3}, sizes[:2]); got != "4:3,1048576:3" {
		t.Errorf("three calls: %q", got)
	}
	r := rig{self: "self", elrun: "elrun", openmpi: "prog", gloo: "gloo.py", python: "python"}
	want := map[string]string{
		elrunPlain:  "elrun bench allreduce --json -n 8 --sizes 4 --iters 0 --transport=direct --encrypt=never",
		mpiShared:   "mpirun --oversubscribe -n 8 --mca mpi_yield_when_idle 1 prog 4:200",
		glooTCP:     "python gloo.py 4:200",
		memoryBound: "self bound 8 4:200",
	}
	for _, one := range sides() {
		all, err := one.start(r, t.Context(), 8, sizes[:1])
		if err != nil {
			t.Fatalf("%s: %v", one.name, err)
		}
		if got := strings.Join(all[0].Args, " "); want[one.name] != "" && got != want[one.name] {
			t.Errorf("%s: %s, want %s", one.name, got, want[one.name])
		}
		if wantAll := map[bool]int{true: 8, false: 1}[one.name == glooTCP]; len(all) != wantAll {
			t.Errorf("%s: %d commands, want %d", one.name, len(all), wantAll)
		}
	}
}

func TestAbsentPeers(t *testing.T) {
	for _, one := range sides() {
		_, err := one.start(rig{elrun: "elrun", self: "self", python: "python"}, t.Context(), 2, []int{4})
		if absent := one.name == mpiShared || one.name == mpiTCP || one.name == glooTCP; absent != (err != nil) {
			t.Errorf("%s: %v", one.name, err)
		}
	}
}

func TestMachine(t *testing.T) {
	m := thisMachine("/no/such/python")
	if m.Torch != "unknown" || m.Cores < 1 || m.Go == "" || len(m.Day) != len("2006-01-02") {
		text, err := json.Marshal(m)
		t.Errorf("%s, %v", text, err)
	}
}
