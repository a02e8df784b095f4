package remote_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/internal/kernel"
	"github.com/elrun/elrun/testing/cluster"
	"github.com/elrun/elrun/testing/simnet"
	"github.com/elrun/elrun/trainer"
	"github.com/elrun/elrun/trainer/exact"
	"github.com/elrun/elrun/trainer/remote"
)

// script is a program as a Python script is one: it keeps the frames in turn, and its optimizer has a state of its own.
type script struct {
	t       *testing.T
	conn    net.Conn
	memory  []byte
	hello   hello
	params  [][]float32
	grads   [][]float32
	momenta [][]float32
	// evaluated has the sums of each evaluation, by step.
	evaluated map[int64][]float64
	samples   int                    // computed in all
	ahead     map[string]int         // microbatches that AHEAD named, by step and samples
	surprises int                    // microbatches of WORK that AHEAD did not name
	loading   time.Duration          // time that each of these takes; if set, computing takes as long as the microbatches are many
	last      end                    // the outcome
	on        map[remote.Kind]func() // called for each frame of a kind before the answer
	dies      func(asked int)        // called before each question of an evaluation, with its number from 0
	told      string                 // text that the launcher gets
	weighs    bool                   // samples have weights, and some calls none
	figures   string                 // payload of APPLIED
	fail      string                 // sent with the answer to the next WORK, in place of the loss
}

// hello is the first frame of a program, as JSON.
type hello struct {
	Version                            int
	Release                            string
	Params                             []param
	Grads                              []int64
	Exact                              bool
	GradScale                          float64
	Samples, Batch, Microbatch, Passes int
	Seed                               uint64
	Admit                              string
	Ahead                              bool
}

// param is a parameter in the first frame.
type param struct {
	Name   string
	Shape  []int
	Offset int64
}

// end is the last frame to a program.
type end struct {
	Error, Class string
	Result       *trainer.Result
}

// test set of the evaluation, and the time of a computation.
const (
	evaluationSize = 37
	pace           = time.Millisecond
)

// newScript lays out a model of two parameters as a program does.
func newScript(t *testing.T, exactly bool) *script {
	sizes := []int{6, 5}
	flat, _ := exact.Views([]int{16, 16, 16, 16})
	s := &script{t: t, memory: kernel.Bytes(flat), on: make(map[remote.Kind]func()), evaluated: make(map[int64][]float64), ahead: make(map[string]int)}
	s.hello = hello{Version: remote.Version, Exact: exactly, Samples: 50, Batch: 20, Microbatch: 4, Passes: 3, Seed: 1, GradScale: 0.25, Admit: "always"}
	grad := int64(128)
	for i, n := range sizes {
		s.hello.Params = append(s.hello.Params, param{Name: fmt.Sprint("p", i), Shape: []int{n}, Offset: int64(64 * i)})
		s.hello.Grads = append(s.hello.Grads, grad)
		s.params = append(s.params, flat[16*i:][:n])
		s.grads = append(s.grads, flat[grad/4:][:n])
		s.momenta = append(s.momenta, make([]float32, n))
		if grad += int64(4 * n); exactly {
			grad = 128 + 64
		}
	}
	return s
}

// run is the program, from its first frame to END.
func (s *script) run() {
	text, err := json.Marshal(s.hello)
	if err != nil {
		s.t.Error(err)
	}
	if s.send(remote.Message{Kind: remote.Hello, Payload: text}) != nil {
		return
	}
	for {
		f, err := remote.Receive(s.conn)
		if err != nil {
			return // killed
		}
		if on := s.on[f.Kind]; on != nil {
			on()
		}
		switch f.Kind {
		case remote.Ahead:
			for _, m := range s.microbatches(f) {
				s.ahead[fmt.Sprint(f.A, m)]++
			}
		case remote.Work:
			err = s.work(f)
		case remote.Apply:
			for i, p := range s.params {
				for j := range p {
					s.momenta[i][j] = 0.5*s.momenta[i][j] + s.grads[i][j]
					p[j] -= 0.25 * s.momenta[i][j]
					s.grads[i][j] = float32(math.NaN()) // a program may leave anything there
				}
			}
			err = s.send(remote.Message{Kind: remote.Applied, Payload: []byte(s.figures)})
		case remote.Save:
			err = s.send(remote.Message{Kind: remote.Blob, Payload: slices.Concat(kernel.Bytes(s.momenta[0]), kernel.Bytes(s.momenta[1]))})
		case remote.Load:
			all := kernel.Elements[float32](f.Payload)
			copy(s.momenta[0], all)
			copy(s.momenta[1], all[len(s.momenta[0]):])
			err = s.send(remote.Message{Kind: remote.Loaded})
		case remote.AtPoint:
			err = s.evaluate(f.A)
		case remote.End:
			if err := json.Unmarshal(f.Payload, &s.last); err != nil {
				s.t.Error(err)
			}
			return
		default:
			s.t.Errorf("unexpected %v", f.Kind)
		}
		if err != nil {
			return
		}
	}
}

func (s *script) send(f remote.Message) error {
	_, err := s.conn.Write(f.Bytes())
	return err
}

// work adds the gradients of samples.
func (s *script) work(f remote.Message) error {
	before := s.surprises
	todo := s.microbatches(f)
	wait := time.Duration(s.surprises-before) * s.loading
	<-time.After(pace + wait)
	if s.loading > 0 {
		<-time.After(time.Duration(len(todo)) * pace)
	}
	if s.fail != "" {
		return s.send(remote.Message{Kind: remote.Fail, Payload: []byte(s.fail)})
	}
	loss, total := 0.0, 0.0
	for _, k := range slices.Concat(todo...) {
		s.samples++
		weight := 1.0
		if s.weighs {
			weight = float64(k * k % 5) // of some calls 0
		}
		total += weight
		for i, g := range s.grads {
			for j := range g {
				d := s.params[i][j] - float32(math.Sin(float64(k*31+int64(i)*17+int64(j)*7)))
				g[j] += d * float32(weight*s.hello.GradScale)
				loss += float64(d) * float64(d) * weight
			}
		}
	}
	done := remote.Message{Kind: remote.Done, A: wait.Microseconds(), B: loss}
	if s.weighs {
		done.Payload = kernel.Bytes([]float64{total})
	}
	return s.send(done)
}

// microbatches decodes the payload of WORK or AHEAD. WORK counts those that are surprises.
func (s *script) microbatches(f remote.Message) (all [][]int64) {
	words := kernel.Elements[int64](f.Payload)
	for len(words) > 0 {
		n := words[0]
		m := words[1 : 1+n]
		words = words[1+n:]
		all = append(all, m)
		if f.Kind == remote.Work && s.ahead[fmt.Sprint(f.A, m)] == 0 {
			s.surprises++
		}
	}
	return all
}

// evaluate counts the samples of the test set, and adds up their numbers, at the end of an epoch.
func (s *script) evaluate(step int64) error {
	count, total := 0.0, 0.0
	var done []int64
	asked := 0
	ask := func(f remote.Message) (remote.Message, error) {
		if s.dies != nil {
			s.dies(asked)
		}
		asked++
		if err := s.send(f); err != nil {
			return f, err
		}
		return remote.Receive(s.conn)
	}
	for {
		f, err := ask(remote.Message{Kind: remote.Part, A: evaluationSize, Payload: kernel.Bytes(done)})
		if err != nil {
			return err
		}
		if f.A == 0 {
			break
		}
		todo := kernel.Elements[int64](f.Payload)
		for r := range slices.Chunk(todo, 2) {
			for k := r[0]; k < r[1]; k++ {
				<-time.After(pace / 10)
				count, total = count+1, total+float64(k)
			}
		}
		done = append(done, todo...)
	}
	var sums []float64
	for _, x := range []float64{count, total} {
		f, err := ask(remote.Message{Kind: remote.Sum, Payload: kernel.Bytes([]float64{x})})
		if err != nil {
			return err
		}
		if f.A == 1 { // the part of a lost member is missing
			x = math.NaN()
		} else {
			x = kernel.Elements[float64](f.Payload)[0]
		}
		sums = append(sums, x)
	}
	s.evaluated[step] = sums
	return s.send(remote.Message{Kind: remote.GoOn})
}

// jobOf runs n programs, each with its sidecar, in virtual time. during may kill and add members. It returns the programs by index.
func jobOf(t *testing.T, n int, exactly bool, change func(s *script, index int), during func(j *cluster.Job)) []*script {
	t.Helper()
	var mu sync.Mutex
	all := make(map[int]*script)
	synctest.Test(t, func(t *testing.T) {
		j := cluster.Start(t, n, simnet.New(simnet.Config{}), func(ctx context.Context, g *elastic.Group) error {
			s := newScript(t, exactly)
			index := g.Self().Index
			mu.Lock()
			all[index] = s
			mu.Unlock()
			if change != nil {
				change(s, index)
			}
			sidecar, program := net.Pipe()
			s.conn = program
			var running sync.WaitGroup
			running.Go(s.run)
			// A death ends ctx, and so does the Close of the group, which is no death.
			alive, kill := context.WithCancel(context.WithoutCancel(ctx))
			defer kill()
			ending := context.AfterFunc(ctx, kill)
			err := remote.Serve(alive, sidecar, s.memory, remote.Peer{Open: func(context.Context) (*elastic.Group, error) { return g, nil }, Ending: func() { ending() },
				Busy: g.Busy, Fail: func(text string) { s.told = text }})
			_ = sidecar.Close()
			running.Wait()
			if s.fail != "" && err != nil && strings.Contains(err.Error(), s.fail) {
				return nil // as the test wants
			}
			return err
		})
		if during != nil {
			during(j)
		}
		j.Wait()
	})
	var list []*script
	for _, index := range slices.Sorted(maps.Keys(all)) {
		list = append(list, all[index])
	}
	return list
}

// checkFinished checks the programs that have finished, and returns the common hash.
func checkFinished(t *testing.T, about string, all []*script) (sha string) {
	t.Helper()
	for i, s := range all {
		if s.last.Result == nil {
			continue
		}
		if s.last.Error != "" || sha != "" && s.last.Result.SHA256 != sha {
			t.Errorf("%s: program %d ended with %+v, the others with %s", about, i, s.last, sha)
		}
		sha = s.last.Result.SHA256
		for step, sums := range s.evaluated {
			for k, want := range []float64{evaluationSize, evaluationSize * (evaluationSize - 1) / 2} {
				if sums[k] != want && !math.IsNaN(sums[k]) {
					t.Errorf("%s: program %d: the evaluation after step %d gave %v, want %v", about, i, step, sums[k], want)
				}
			}
		}
	}
	if sha == "" {
		t.Errorf("%s: no program has finished", about)
	}
	return sha
}

// In exact mode one, two and three programs get the same weights, and each evaluation counts each sample once.
func TestPrograms(t *testing.T) {
	defer goleak.VerifyNone(t)
	for _, exactly := range []bool{false, true} {
		want := ""
		for _, n := range []int{1, 2, 3} {
			all := jobOf(t, n, exactly, nil, nil)
			about := fmt.Sprintf("exact %t, %d programs", exactly, n)
			sha := checkFinished(t, about, all)
			if want == "" {
				want = sha
			}
			if exactly && sha != want {
				t.Errorf("%s: weights %s, want %s", about, sha, want)
			}
			total := 0
			for _, s := range all {
				total += s.samples
				if len(s.evaluated) != 3 {
					t.Errorf("%s: %d evaluations, want 3", about, len(s.evaluated))
				}
			}
			if total < 150 || n == 1 && total > 170 {
				t.Errorf("%s: %d samples computed, want 150, and a step more if its scale did not fit", about, total)
			}
		}
	}
}

// A program dies at one of many times, in a step or in an evaluation, and another joins. The weights are those of one program, and
// the evaluations of the others miss no sample.
func TestProgramsDieAndJoin(t *testing.T) {
	weigh := func(s *script, _ int) { s.weighs = true }
	plain, weighed := checkFinished(t, "alone", jobOf(t, 1, true, nil, nil)), checkFinished(t, "alone", jobOf(t, 1, true, weigh, nil))
	if plain == weighed {
		t.Error("weights change nothing")
	}
	for k := range 60 {
		about := fmt.Sprintf("a death after %d/3 ms", k)
		want, change := plain, func(*script, int) {}
		if k%2 == 1 {
			want, change = weighed, weigh
		}
		all := jobOf(t, 3, true, change, func(j *cluster.Job) {
			time.AfterFunc(time.Duration(k)*pace/3, func() { j.Kill(1) })
			if k%3 == 0 {
				time.AfterFunc(time.Duration(k+4)*pace/3, func() { j.Join() })
			}
		})
		if sha := checkFinished(t, about, all); sha != want {
			t.Errorf("%s: weights %s, want %s", about, sha, want)
		}
	}
}

// A program dies in the first evaluation before one of its questions. If it has completed its part of the set, the others learn that
// the sums lack this part. Sums that it has taken part in are right, and so are later evaluations.
func TestAProgramDiesBeforeItsSum(t *testing.T) {
	for question, want := range [][]bool{{true, true}, {true, true}, {false, false}, {true, false}} {
		var kill func()
		started := make(chan struct{}) // kill is set
		all := jobOf(t, 3, false, func(s *script, index int) {
			if index == 1 {
				s.dies = func(asked int) {
					if asked == question {
						<-started
						kill()
						<-time.After(time.Hour) // it is dead
					}
				}
			}
		}, func(j *cluster.Job) {
			kill = func() { j.Kill(1) }
			close(started)
		})
		checkFinished(t, fmt.Sprint("question ", question), all)
		for _, i := range []int{0, 2} {
			for k, whole := range want {
				if got := !math.IsNaN(all[i].evaluated[3][k]); got != whole {
					t.Errorf("death before question %d: sum %d of program %d is whole: %t, want %t", question, k, i, got, whole)
				}
			}
			if math.IsNaN(all[i].evaluated[6][0]) || math.IsNaN(all[i].evaluated[9][1]) {
				t.Errorf("death before question %d: later evaluations %v", question, all[i].evaluated)
			}
		}
	}
}

// A program that loads ahead learns of each microbatch in time and once, after the first call of the job, while the members stay the
// same. One that does not is told nothing.
func TestAhead(t *testing.T) {
	for _, exactly := range []bool{false, true} {
		for _, n := range []int{1, 2} {
			all := jobOf(t, n, exactly, func(s *script, _ int) { s.hello.Ahead, s.hello.Samples = true, 60 }, nil)
			for i, s := range all {
				first := 1
				if !exactly { // one call has the whole share
					first = 5
				}
				if s.surprises > first || len(s.ahead) < 9 {
					t.Errorf("exact %t: program %d of %d: %d microbatches were not named, want %d; %d named", exactly, i, n, s.surprises, first, len(s.ahead))
				}
				for m, times := range s.ahead {
					if times > 1 {
						t.Errorf("exact %t: program %d of %d: %s was named %d times", exactly, i, n, m, times)
					}
				}
			}
		}
	}
	for _, s := range jobOf(t, 2, false, nil, nil) {
		if len(s.ahead) > 0 {
			t.Errorf("told of %v without a wish for it", s.ahead)
		}
	}
}

// The wait for microbatches that were not named does not make a peer slow: else it would get a smaller share, and the others
// microbatches that were not named, and so on.
func TestSurprisesDoNotMoveShares(t *testing.T) {
	all := jobOf(t, 3, false, func(s *script, index int) {
		s.hello.Ahead, s.loading = true, time.Duration(10*(1+index))*pace
		s.hello.Samples, s.hello.Batch, s.hello.Microbatch = 48, 16, 2
	}, nil)
	checkFinished(t, "slow loading", all)
	total := 0
	for _, s := range all {
		total += s.surprises
	}
	if total > 8 { // those of the first step
		t.Errorf("%d microbatches were not named", total)
	}
}

// A program that raises an exception ends its training with its text, and the others finish.
func TestAProgramFails(t *testing.T) {
	want := checkFinished(t, "alone", jobOf(t, 1, true, nil, nil))
	all := jobOf(t, 3, true, func(s *script, index int) {
		works := 0
		if index == 2 {
			s.on[remote.Work] = func() {
				if works++; works == 4 {
					s.fail = "ValueError: bad sample"
				}
			}
		}
	}, nil)
	if sha := checkFinished(t, "one fails", all); sha != want {
		t.Errorf("weights %s, want %s", sha, want)
	}
	if all[2].told != "ValueError: bad sample" || all[0].told != "" {
		t.Errorf("the launchers are told %q and %q", all[2].told, all[0].told)
	}
	if all[2].last.Result != nil {
		t.Errorf("the failing program has got %+v", all[2].last)
	}
}

// A program that asks to leave gets END with that class.
func TestAProgramLeaves(t *testing.T) {
	all := jobOf(t, 3, false, func(s *script, index int) {
		works := 0
		if index == 1 {
			s.on[remote.Work] = func() {
				if works++; works == 2 {
					if err := s.send(remote.Message{Kind: remote.Leave}); err != nil {
						t.Error(err)
					}
				}
			}
		}
	}, func(j *cluster.Job) {})
	if all[1].last.Class != "left" || all[0].last.Class != "" || all[2].last.Class != "" {
		t.Errorf("ended with %+v, %+v, %+v", all[0].last, all[1].last, all[2].last)
	}
}

// A first frame that describes no model in the memory is refused, by an error that the program gets.
func TestHelloRefused(t *testing.T) {
	for want, change := range map[string]func(h *hello){
		"package is of elrun 0.9 (frames 4), and the binary elrun is of 1.2.3 (frames 3)": func(h *hello) { h.Version, h.Release = 4, "0.9" },
		"at least one":            func(h *hello) { h.Params, h.Grads = nil, nil },
		"as many":                 func(h *hello) { h.Grads = h.Grads[:1] },
		"do not fit":              func(h *hello) { h.Params[1].Offset = 250 },
		"at byte -4":              func(h *hello) { h.Grads[0] = -4 },
		"at byte 2":               func(h *hello) { h.Grads[0] = 2 },
		"does not fit the memory": func(h *hello) { h.Params[0].Shape = []int{1 << 40, 1 << 40} },
		"shape [0]":               func(h *hello) { h.Params[0].Shape = []int{0} },
		"GlobalBatch":             func(h *hello) { h.Batch = 0 },
		"Admit":                   func(h *hello) { h.Admit = "never" },
	} {
		s := newScript(t, false)
		change(&s.hello)
		sidecar, program := net.Pipe()
		s.conn = program
		done := make(chan struct{})
		go func() { s.run(); close(done) }()
		network := simnet.New(simnet.Config{})
		open := func(ctx context.Context) (*elastic.Group, error) {
			return elastic.Join(ctx, elastic.Config{Endpoint: network.Endpoint(elastic.Member{ID: "alone"}), Peers: []elastic.Member{{ID: "alone"}}})
		}
		err := remote.Serve(t.Context(), sidecar, s.memory, remote.Peer{Open: open, Release: "1.2.3"})
		<-done
		_ = sidecar.Close() // ends the goroutine that reads
		if err := network.Close(); err != nil {
			t.Error(err)
		}
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(s.last.Error, want) {
			t.Errorf("error %v, program got %q, want %q", err, s.last.Error, want)
		}
	}
}

// A program that is gone ends Serve, whatever Serve waits for, also in the middle of a frame. A program that sends another frame than
// the first is there, and has made a mistake.
func TestAProgramIsGone(t *testing.T) {
	for _, sent := range [][]byte{nil, remote.Message{Kind: remote.Hello}.Bytes()[:7], remote.Message{Kind: remote.Done}.Bytes()} {
		gone := len(sent) < len(remote.Message{}.Bytes())
		sidecar, program := net.Pipe()
		go func() {
			_, _ = program.Write(sent) // the reader may have given up
			if gone {
				_ = program.Close()
			}
			_, _ = io.Copy(io.Discard, program) // until the pipe is closed
		}()
		if err := remote.Serve(t.Context(), sidecar, nil, remote.Peer{}); err == nil || errors.Is(err, remote.ErrGone) != gone {
			t.Errorf("error %v after % x", err, sent)
		}
		_, _ = sidecar.Close(), program.Close()
	}
}

// A program that is busy for long keeps its place in an evaluation, and in a step if it says so.
func TestABusyProgramKeepsItsPlace(t *testing.T) {
	for _, kind := range []remote.Kind{remote.Work, remote.AtPoint} {
		for _, says := range []bool{true, false} {
			all := jobOf(t, 3, false, func(s *script, index int) {
				if index != 1 {
					return
				}
				n := 0
				s.on[kind] = func() {
					if n++; n != 2 {
						return
					}
					if says {
						_ = s.send(remote.Message{Kind: remote.Busy, Payload: []byte("download")})
						defer s.send(remote.Message{Kind: remote.Busy})
					}
					<-time.After(100 * time.Second)
				}
			}, nil)
			checkFinished(t, fmt.Sprintf("%v, says %t", kind, says), all)
			if out := all[1].last.Class != ""; out != (!says && kind == remote.Work) {
				t.Errorf("%v, says %t: ended with %+v", kind, says, all[1].last)
			}
		}
	}
}

// steps keeps the step events.
type steps struct {
	mu  sync.Mutex
	all []event.Step
}

func (s *steps) Emit(e event.Event) {
	if b, ok := e.Body.(event.Step); ok {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.all = append(s.all, b)
	}
}

// The event of a step has what the program tells of it. What cannot be its figures ends the training with an error.
func TestFiguresOfSteps(t *testing.T) {
	for figures, want := range map[string]string{
		"":                                    "",
		`{"rate":0.25,"metrics":{"right":3}}`: "",
		`{"rate":`:                            "no valid figures",
		`{"metrics":{"` + strings.Repeat("x", 200) + `":1}}`: "at most 128 bytes",
	} {
		s := newScript(t, false)
		s.figures = figures
		sidecar, program := net.Pipe()
		s.conn = program
		done := make(chan struct{})
		go func() { s.run(); close(done) }()
		network, log := simnet.New(simnet.Config{}), &steps{}
		open := func(ctx context.Context) (*elastic.Group, error) {
			return elastic.Join(ctx, elastic.Config{Endpoint: network.Endpoint(elastic.Member{ID: "alone"}), Peers: []elastic.Member{{ID: "alone"}}, Sink: log})
		}
		err := remote.Serve(t.Context(), sidecar, s.memory, remote.Peer{Open: open})
		<-done
		_ = sidecar.Close() // ends the goroutine that reads
		if err := network.Close(); err != nil {
			t.Error(err)
		}
		switch {
		case want != "":
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: error %v, want %q", figures, err, want)
			}
		case err != nil || len(log.all) == 0:
			t.Errorf("%s: %d steps, %v", figures, len(log.all), err)
		case figures != "" && (log.all[0].LR != 0.25 || log.all[0].Metrics["right"] != 3), figures == "" && (log.all[0].LR != 0 || log.all[0].Metrics != nil):
			t.Errorf("%s: the step has %v and %v", figures, log.all[0].LR, log.all[0].Metrics)
		}
	}
}
