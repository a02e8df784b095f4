package timeline

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"reflect"
	"runtime/metrics"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"pgregory.net/rapid"

	"github.com/elrun/elrun/event"
)

// The tests of this package have one flag:
//
//	go test ./event/timeline -run Large -v -long   fold a log of 64 peers and 100,000 steps
func TestMain(m *testing.M) {
	flag.Bool("long", false, "fold a log of 64 peers and 100,000 steps")
	flag.Parse()
	os.Exit(m.Run())
}

// lines encodes events, one a line. It leaves out those that JSON cannot have.
func lines(events []event.Event) (list [][]byte) {
	for _, e := range events {
		if b, err := json.Marshal(e); err == nil {
			list = append(list, append(b, '\n'))
		}
	}
	return list
}

// folded returns the snapshot after some logs as JSON, and what was found in them.
func folded(t *rapid.T, logs ...io.Reader) (string, Lines) {
	j := New()
	found, err := read(j.entry, rapid.IntRange(1, 10).Draw(t, "batch"), nil, logs)
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(j.Snapshot())
	if err != nil {
		t.Fatal(err)
	}
	return string(b), found
}

// ordered draws events with different times in their order.
func ordered(t *rapid.T) (events []event.Event) {
	ms := 0.0
	for range rapid.IntRange(1, 60).Draw(t, "events") {
		ms += rapid.Float64Range(0.001, 1000).Draw(t, "pause")
		e := event.Event{Time: at(ms), Peer: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "peer"),
			Epoch: rapid.Uint64Range(0, 5).Draw(t, "epoch"), Step: rapid.Int64Range(1, 100).Draw(t, "step"), Body: draw(t)}
		events = append(events, e)
	}
	return events
}

// The order of the lines within the window, how they are divided among logs, and logs that are given twice
// make no difference.
func TestOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		events := ordered(t)
		want, found := folded(t, bytes.NewReader(slices.Concat(lines(events)...)))
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		// A line moves by less than half a window in either direction.
		key := make(map[time.Time]time.Duration)
		for _, e := range events {
			key[e.Time] = e.Time.Sub(epoch0()) + time.Duration(r.Int64N(int64(window)))
		}
		slices.SortFunc(events, func(a, b event.Event) int { return int(key[a.Time] - key[b.Time]) })
		n := rapid.IntRange(1, 4).Draw(t, "logs")
		parts := make([][]byte, n)
		for _, line := range lines(events) {
			i := r.IntN(n)
			parts[i] = append(parts[i], line...)
		}
		var logs []io.Reader
		for _, p := range parts {
			logs = append(logs, bytes.NewReader(p), iotest.OneByteReader(bytes.NewReader(zipped(p))))
		}
		got, twice := folded(t, logs...)
		if got != want {
			t.Fatalf("got  %s\nwant %s", got, want)
		}
		if twice.Events != found.Events || twice.Repeated != found.Events || found.Repeated != 0 || twice.Late != 0 {
			t.Fatalf("%+v, and once %+v", twice, found)
		}
	})
}

// zipped compresses a log.
func zipped(b []byte) []byte {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, err := w.Write(b)
	if err = errors.Join(err, w.Close()); err != nil {
		panic(err)
	}
	return out.Bytes()
}

// What cannot be read is skipped and counted.
func TestSkipped(t *testing.T) {
	good := string(slices.Concat(lines([]event.Event{{Time: at(1), Peer: "a", Step: 1, Body: event.Step{}}, {Time: at(2), Peer: "a", Step: 2, Body: event.Step{}}})...))
	long := `{"time":"2027-01-15T08:00:00Z","event":"note","text":"` + strings.Repeat("x", maxLineBytes) + `"}` + "\n"
	broken := errors.New("broken")
	for name, c := range map[string]struct {
		log   io.Reader
		want  Lines
		lacks Lacks
		err   error
	}{
		"good":        {strings.NewReader(good), Lines{Events: 2}, Lacks{}, nil},
		"nothing":     {strings.NewReader(""), Lines{}, Lacks{}, nil},
		"empty lines": {strings.NewReader("\n\r\n" + good), Lines{Events: 2}, Lacks{}, nil},
		"no last end": {strings.NewReader(good[:len(good)-1]), Lines{Events: 2}, Lacks{}, nil},
		"cut off":     {strings.NewReader(good[:len(good)-9]), Lines{Events: 1, Cut: 1}, Lacks{}, nil},
		"cut off zip": {bytes.NewReader(zipped([]byte(good))[:60]), Lines{Cut: 1}, Lacks{}, nil},
		"other kinds": {strings.NewReader(`{"time":"2027-01-15T08:00:00Z","event":"later","x":1}` + "\n" + good), Lines{Events: 3}, Lacks{Unknown: 1}, nil},
		"malformed":   {strings.NewReader("{]\nnull\n" + good + "x\n[]\n"), Lines{Events: 3, Malformed: 3}, Lacks{Unknown: 1}, nil},
		"long":        {strings.NewReader(long + good + long), Lines{Events: 2, Long: 2}, Lacks{}, nil},
		"not so long": {strings.NewReader(strings.Replace(long, "xxx", "", 100) + good), Lines{Events: 3}, Lacks{}, nil},
		"an error":    {io.MultiReader(strings.NewReader(good+good[:5]), iotest.ErrReader(broken)), Lines{Events: 2, Cut: 1}, Lacks{}, broken},
	} {
		j := New()
		found, err := Read(j, c.log)
		if found != c.want || !errors.Is(err, c.err) || j.lacks != c.lacks {
			t.Errorf("%s: %+v, %+v, %v; want %+v, %+v", name, found, j.lacks, err, c.want, c.lacks)
		}
	}
}

// FuzzDecode compares the fast decoder of steps with package json.
func FuzzDecode(f *testing.F) {
	full := step(5, 0, 3, event.Times{LostMS: 1, PointMS: 2, DataMS: 3, WaitMS: 4.25, WaitFor: "b", ReduceMS: 5, ApplyMS: 6, CommitMS: 1e-9}, 1e21)
	full.Digest, full.Stolen, full.PredictedMS, full.GradNorm, full.NoiseScale, full.LR, full.SentBytes, full.RawBytes = "ff", 1, 2, 3, 4, 0.1, 5, 6
	for _, line := range lines([]event.Event{{Time: at(1), Peer: "a", Index: 1, Epoch: 3, Step: 4, Body: full}, {Time: at(2), Body: event.Step{Loss: -1.5e-7}}}) {
		f.Add(bytes.TrimSpace(line))
	}
	head := `{"time":"2027-01-15T08:00:00Z","event":"step","peer":"a","index":0`
	for _, rest := range []string{`,"loss":1,"loss":2}`, `,"loss":01}`, `,"loss":1e999}`, `,"LOSS":1}`, `,"epoch":-1}`, `,"step":1.0}`, `,"peer":"b"}`, `,"samples":007}`,
		`,"microbatches":[[0,1],[2,3]]}`, `,"microbatches":[]}`, `,"microbatches":[[1]]}`, `,"microbatches":null}`, `,"digest":"\u0041"}`,
		`,"began":"2027-01-15T08:00:00+01:00"}`, `} `, `}}`, `,"of":-0}`, `,"of":9999999999999999999}`, `,"metrics":{"a":1}}`} {
		f.Add([]byte(head + rest))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		var d decoder
		var got entry
		if !d.fast(line, &got) {
			return
		}
		var want event.Event
		if err := json.Unmarshal(line, &want); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		got.event.Body = got.step
		if !reflect.DeepEqual(got.event, want) {
			t.Fatalf("%s:\ngot  %+v\nwant %+v", line, got.event, want)
		}
	})
}

// Our own encoder's steps take the fast way, except those with a map or with contributions of others.
func TestFastWay(t *testing.T) {
	s := step(5, 0, 3, event.Times{LostMS: 1, PointMS: 2, DataMS: 3, WaitMS: 4, WaitFor: "b", ReduceMS: 5, ApplyMS: 6, CommitMS: 7}, 50)
	for i := range 2 {
		s.Times = event.Times{Began: s.Began, WaitMS: s.WaitMS * float64(1-i)}
		line := lines([]event.Event{{Time: at(1), Peer: "a", Step: 1, Body: s}})[0]
		if !new(decoder).fast(bytes.TrimSpace(line), new(entry)) {
			t.Errorf("not the fast way: %s", line)
		}
	}
}

// FuzzRead reads any bytes as two logs.
func FuzzRead(f *testing.F) {
	f.Add([]byte(""), []byte("x"))
	f.Add(slices.Concat(lines([]event.Event{{Time: at(1), Peer: "a", Step: 1, Body: step(0, 0, 1, event.Times{}, 5)}, {Time: at(9), Peer: "a", Body: event.Done{}}})...),
		zipped([]byte("{}\n")))
	f.Fuzz(func(t *testing.T, a, b []byte) {
		j := New()
		if _, err := Read(j, bytes.NewReader(a), bytes.NewReader(b)); err != nil {
			return
		}
		if _, err := json.Marshal(j.Snapshot()); err != nil {
			t.Fatal(err)
		}
	})
}

// generator is the log of a large job: peers that make steps of 50 ms. It makes the log as it is read.
type generator struct {
	peers, steps int
	step, peer   int
	rest         []byte
	total, most  int64 // bytes made, and the most memory in use meanwhile
}

// Read implements io.Reader.
func (g *generator) Read(p []byte) (int, error) {
	for len(g.rest) < len(p) && g.step < g.steps {
		g.rest = g.line(g.rest)
	}
	n := copy(p, g.rest)
	g.rest = append(g.rest[:0], g.rest[n:]...)
	if n == 0 {
		return 0, io.EOF
	}
	if g.total>>24 != (g.total+int64(n))>>24 {
		g.most = max(g.most, memory())
	}
	g.total += int64(n)
	return n, nil
}

// line appends the next line.
func (g *generator) line(b []byte) []byte {
	began := at(float64(50 * g.step))
	b = append(b, `{"time":"`...)
	b = began.Add(100*time.Millisecond+time.Duration(g.peer*7919%1000)*time.Microsecond).AppendFormat(b, time.RFC3339Nano)
	b = fmt.Appendf(b, `","event":"step","peer":"peer%04d","index":%d,"epoch":1,"step":%d`, g.peer, g.peer, g.step+1)
	b = fmt.Appendf(b, `,"attempt":0,"microbatches":[[%d,%d]],"share_samples":64,"samples":%d,"loss":0.%07d13572468`, 4*g.peer, 4*g.peer+4, 64*g.peers, g.steps-g.step)
	b = append(b, `,"digest":"68c0fd8c063ca207","recomputed":0,"compute_ms":33.360759,"comm_ms":11.332117,"step_ms":50,"began":"`...)
	b = began.AppendFormat(b, time.RFC3339Nano)
	b = fmt.Appendf(b, `","data_ms":1.25,"wait_ms":%d.389241,"wait_for":"peer0003","reduce_ms":5,"apply_ms":2,"commit_ms":1,"of":%d}`, 7, g.steps)
	if g.peer++; g.peer == g.peers {
		g.peer, g.step = 0, g.step+1
	}
	return append(b, '\n')
}

// memory returns the bytes that the process has from the system.
func memory() int64 {
	s := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(s)
	return int64(s[0].Value.Uint64() - s[1].Value.Uint64())
}

// A large log is folded in bounded memory.
func TestLarge(t *testing.T) {
	g := &generator{peers: 64, steps: 500}
	if flag.Lookup("long").Value.String() == "true" {
		g.steps = 100_000
	}
	j := New()
	begun := time.Now()
	found, err := Read(j, g)
	took := time.Since(begun)
	s := j.Snapshot()
	n := int64(g.peers) * int64(g.steps)
	if err != nil || found != (Lines{Events: n}) || s.Coverage != (Coverage{Complete: int64(g.steps)}) || len(s.Peers) != g.peers {
		t.Errorf("%+v, %v; coverage %+v; %d peers", found, err, s.Coverage, len(s.Peers))
	}
	if want := time.Duration(n) * 50 * time.Millisecond; s.Goodput.Uses.Total() != want {
		t.Errorf("%v of peer-time, want %v", s.Goodput.Uses.Total(), want)
	}
	if g.most > 200<<20 {
		t.Errorf("%d MiB of memory", g.most>>20)
	}
	t.Logf("%d lines, %.2f GB in %v: %.0f MB/s, at most %d MiB of memory; %s", n, float64(g.total)/1e9, took,
		float64(g.total)/1e6/took.Seconds(), g.most>>20, s.Goodput.Line())
}

// BenchmarkRead measures lines of steps, with the time that their generator takes.
func BenchmarkRead(b *testing.B) {
	g := &generator{peers: 64, steps: max(1, b.N/64)}
	if _, err := Read(New(), g); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(g.total / int64(b.N))
}
