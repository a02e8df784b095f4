package launch

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/internal/shm"
)

// The test binary plays all processes of a job whose programs have sidecars. This environment variable
// has the role of the process.
const roleVariable = "LAUNCH_TEST_ROLE"

// Further environment variables of these processes.
const (
	sidecarFD    = "LAUNCH_TEST_SIDECAR_FD" // descriptor of a sidecar's socket to its program
	wordFD       = "LAUNCH_TEST_WORD_FD"    // descriptor of the file with the lock of the program; may be missing
	stepsNeeded  = "LAUNCH_TEST_STEPS"      // number of steps; 200 without it
	paceVariable = "LAUNCH_TEST_PACE"       // time that a step takes; 1 ms without it
	ballast      = "LAUNCH_TEST_BALLAST"    // bytes of memory of the program with index 1
)

// play plays a role and returns the exit status.
func play(role string) int {
	f := map[string]func() (int, error){"program": playProgram, "sidecar": playSidecar, "launcher": playLauncher}[role]
	status, err := f()
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", role, err)
		return 1
	}
	return status
}

// playProgram is a program in another language: it starts its sidecar, and answers its requests. With the
// argument deaf it ignores SIGTERM, with hung it does not answer after a while, and with fail it then fails.
func playProgram() (int, error) {
	conn, sidecar, err := startSidecar()
	if err != nil {
		return 0, err
	}
	memory := fill()
	defer runtime.KeepAlive(memory)
	pace, err := time.ParseDuration(cmp.Or(os.Getenv(paceVariable), "1ms"))
	if err != nil {
		return 0, err
	}
	go handleSignals(sidecar.Process)
	fmt.Println("started", os.Getenv("ELRUN_INDEX"), os.Getpid(), sidecar.Process.Pid)
	request := make([]byte, 1)
	for n := 1; ; n++ {
		_, err := conn.Read(request)
		switch {
		case err != nil:
			_ = sidecar.Wait()
			return 4, nil // the sidecar is lost
		case request[0] == 'w':
			if n == 20 {
				fmt.Println("works", os.Getenv("ELRUN_INDEX"))
				if slices.Contains(os.Args, "hung") {
					select {}
				}
			}
			<-time.After(pace)
			answer := byte('d')
			if n > 20 && slices.Contains(os.Args, "fail") {
				answer = 'x'
			}
			if _, err := conn.Write([]byte{answer}); err != nil {
				continue
			}
		default: // the status
			_ = sidecar.Wait()
			return int(request[0] - '0'), nil
		}
	}
}

// startSidecar starts the sidecar of this process, and returns the socket to it.
func startSidecar() (*os.File, *exec.Cmd, error) {
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		return nil, nil, err
	}
	syscall.CloseOnExec(fds[0])
	syscall.CloseOnExec(fds[1])
	conn, theirs := os.NewFile(uintptr(fds[0]), "sidecar"), os.NewFile(uintptr(fds[1]), "program")
	self, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	sidecar := exec.Command(self)
	if Launched() {
		sidecar.ExtraFiles = []*os.File{os.NewFile(3, "launcher")} // ELRUN_FD is 3 at the sidecar, too
	}
	word, err := shm.HoldWord(0)
	if err != nil {
		return nil, nil, err
	}
	sidecar.ExtraFiles = append(sidecar.ExtraFiles, theirs, word.File())
	n := 2 + len(sidecar.ExtraFiles)
	sidecar.Env = append(os.Environ(), roleVariable+"=sidecar", sidecarFD+"="+strconv.Itoa(n-1), wordFD+"="+strconv.Itoa(n))
	sidecar.Stdout, sidecar.Stderr = os.Stdout, os.Stderr
	if err := sidecar.Start(); err != nil {
		return nil, nil, err
	}
	for _, f := range sidecar.ExtraFiles[:len(sidecar.ExtraFiles)-1] {
		_ = f.Close()
	}
	return conn, sidecar, nil
}

// fill returns the memory that this program is to have, with all pages in use.
func fill() []byte {
	n, err := strconv.Atoi(os.Getenv(ballast))
	if err != nil || os.Getenv("ELRUN_INDEX") != "1" {
		return nil
	}
	memory := make([]byte, n)
	for i := 0; i < n; i += os.Getpagesize() {
		memory[i] = 1
	}
	return memory
}

// handleSignals ends a program by SIGINT, and passes SIGTERM on to its sidecar.
func handleSignals(sidecar *os.Process) {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	for s := range signals {
		switch {
		case s == syscall.SIGINT:
			os.Exit(130)
		case !slices.Contains(os.Args, "deaf") && !slices.Contains(os.Args, "hung"):
			_ = sidecar.Signal(s)
		}
	}
}

// playSidecar is the sidecar of its parent: a peer whose steps are computed by the program.
func playSidecar() (int, error) {
	fd, err := strconv.Atoi(os.Getenv(sidecarFD))
	if err != nil {
		return 0, err
	}
	syscall.CloseOnExec(fd)
	conn := os.NewFile(uintptr(fd), "program")
	ctx := context.Background()
	s, g, err := joinFor(ctx)
	if err != nil {
		return 0, err
	}
	var step int64
	sum := []float64{0}
	steps := int64(200)
	if n, err := strconv.ParseInt(os.Getenv(stepsNeeded), 10, 64); err == nil {
		steps = n
	}
	var last struct {
		epoch uint64
		at    time.Time
	}
	for t := range g.Steps(ctx, elastic.Vectors(&step, &sum), steps) {
		if _, err := conn.Write([]byte{'w'}); err != nil {
			t.Fail(err)
			continue
		}
		answer := make([]byte, 1)
		if _, err := io.ReadFull(conn, answer); err != nil {
			t.Fail(err)
			continue
		}
		if answer[0] == 'x' {
			t.Fail(errors.New("ValueError: bad sample"))
			continue
		}
		one := []float64{1}
		if err := collective.AllReduce(ctx, t.Comm, one, one, collective.Sum[float64]); err != nil {
			continue
		}
		sum[0] += one[0]
		step++
		if now := time.Now(); last.epoch != t.Epoch() {
			fmt.Println("gap", g.Self().Index, len(t.View().Members), now.Sub(last.at).Microseconds())
			last.epoch = t.Epoch()
		}
		last.at = time.Now()
	}
	status := byte('0')
	if err := g.Err(); err != nil && !errors.Is(err, elastic.ErrLeft) {
		s.Fail(err.Error())
		status = '1'
	}
	s.Close()
	err = g.Close()
	_, _ = conn.Write([]byte{status})
	return 0, err
}

// joinFor joins the job as the sidecar of the parent, and watches its lock if it has one.
func joinFor(ctx context.Context) (*Sidecar, *elastic.Group, error) {
	s, err := NewSidecar(os.Getppid())
	if err != nil {
		return nil, nil, err
	}
	if fd, err := strconv.Atoi(os.Getenv(wordFD)); err == nil {
		syscall.CloseOnExec(fd)
		if err := s.Watch(os.NewFile(uintptr(fd), "word")); err != nil {
			return nil, nil, err
		}
	}
	g, err := InitFor(ctx, s)
	return s, g, err
}

// playLauncher runs two programs.
func playLauncher() (int, error) {
	r, err := Run(context.Background(), programs("sidecar-launcher", os.Stdout, os.Args[1:]...))
	return r.Status, err
}

// programs returns the options of a job of two programs.
func programs(job string, out io.Writer, args ...string) Options {
	self, _ := os.Executable()
	return Options{Program: self, Args: args, Peers: 2, Job: job, Forward: []string{roleVariable + "=program"}, Output: Output{Stdout: out, Stderr: out, Plain: true}}
}

// family is a program and its sidecar.
type family struct{ program, sidecar int }

// jobOutput collects the output of a job by lines, and knows its processes.
type jobOutput struct {
	mu      sync.Mutex
	text    bytes.Buffer
	changed chan struct{} // capacity 1
}

func newJobOutput() *jobOutput { return &jobOutput{changed: make(chan struct{}, 1)} }

func (j *jobOutput) Write(b []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	select {
	case j.changed <- struct{}{}:
	default:
	}
	return j.text.Write(b)
}

func (j *jobOutput) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}

// await waits for a number of lines that begin with a word, and returns them.
func (j *jobOutput) await(t testing.TB, word string, n int) (lines []string) {
	t.Helper()
	for limit := time.After(2 * time.Minute); ; {
		lines = nil
		for s := bufio.NewScanner(strings.NewReader(j.String())); s.Scan(); {
			if strings.HasPrefix(s.Text(), word) {
				lines = append(lines, s.Text())
			}
		}
		if len(lines) >= n {
			return lines
		}
		select {
		case <-j.changed:
		case <-limit:
			t.Fatalf("no %d lines %q in:\n%s", n, word, j)
		}
	}
}

// start runs a job, and returns the channel that gets the result.
func start(t testing.TB, o Options) <-chan Result {
	done := make(chan Result, 1)
	go func() {
		r, err := Run(context.Background(), o)
		if err != nil {
			t.Error(err)
		}
		done <- r
	}()
	return done
}

// families waits until n programs work, and returns their processes by index.
func (j *jobOutput) families(t testing.TB, n int) []family {
	t.Helper()
	j.await(t, "works", n)
	all := make([]family, n)
	for _, line := range j.await(t, "started", n) {
		var i int
		var f family
		if _, err := fmt.Sscanf(line, "started %d %d %d", &i, &f.program, &f.sidecar); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		all[i] = f
	}
	return all
}

// gone waits until processes have ended.
func gone(t *testing.T, pids ...int) {
	t.Helper()
	for _, pid := range pids {
		for limit := time.Now().Add(2 * time.Minute); syscall.Kill(pid, 0) == nil; {
			if stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); bytes.Contains(stat, []byte(") Z ")) {
				break // nobody waits for it here
			}
			if time.Now().After(limit) {
				t.Fatalf("process %d runs on", pid)
			}
			<-time.After(time.Millisecond)
		}
	}
}

// Whatever ends, a program or its sidecar, by whatever signal: the status is that of the program, the other peer
// finishes, and no process is left.
func TestSidecarEnds(t *testing.T) {
	for name, c := range map[string]struct {
		do    func(f family) error
		want  Exit
		lines string // in the output
	}{
		"program killed": {func(f family) error { return syscall.Kill(f.program, syscall.SIGKILL) }, Exit{Code: -1, Signal: syscall.SIGKILL}, "was killed by signal 9"},
		"sidecar killed": {func(f family) error { return syscall.Kill(f.sidecar, syscall.SIGKILL) }, Exit{Code: 4}, "exited with status 4"},
		"interrupted":    {func(f family) error { return syscall.Kill(f.program, syscall.SIGINT) }, Exit{Code: 130}, "exited with status 130"},
		"asked":          {func(f family) error { return syscall.Kill(f.program, syscall.SIGTERM) }, Exit{Asked: true}, "left"},
	} {
		t.Run(name, func(t *testing.T) {
			out := newJobOutput()
			done := start(t, programs("sidecar-ends", out))
			all := out.families(t, 2)
			if err := c.do(all[1]); err != nil {
				t.Fatal(err)
			}
			r := <-done
			i := slices.IndexFunc(r.Exits, func(e Exit) bool { return e.Index == 1 })
			if r.Status != 0 || len(r.Exits) != 2 || i < 0 {
				t.Fatalf("%+v\n%s", r, out)
			}
			e, want := r.Exits[i], c.want
			if e.Code != want.Code || e.Signal != want.Signal || e.Asked != want.Asked || e.PID != all[1].program || !strings.Contains(out.String(), c.lines) {
				t.Errorf("%+v, want %+v of process %d\n%s", e, want, all[1].program, out)
			}
			gone(t, all[0].program, all[0].sidecar, all[1].program, all[1].sidecar)
		})
	}
}

// The status of a job has the programs, and elrun stop asks them to leave.
func TestSidecarStatus(t *testing.T) {
	t.Setenv(stepsNeeded, "1000000000")
	out := newJobOutput()
	done := start(t, programs("sidecar-status", out))
	all := out.families(t, 2)
	j, err := Find(t.Context(), "sidecar-status")
	if err != nil {
		t.Fatal(err)
	}
	s, err := j.Status(t.Context())
	if err != nil || len(s.Members) != 2 {
		t.Fatalf("%+v, %v", s, err)
	}
	for _, m := range s.Members {
		if m.PID != all[m.Index].program {
			t.Errorf("peer %d is process %d, want %d", m.Index, m.PID, all[m.Index].program)
		}
	}
	if stopped, err := j.Stop(t.Context()); err != nil || stopped.Peers != 2 {
		t.Errorf("%+v, %v", stopped, err)
	}
	if r := <-done; len(r.Exits) != 2 || !r.Exits[0].Asked || !r.Exits[1].Asked {
		t.Errorf("%+v\n%s", r, out)
	}
	gone(t, all[0].program, all[0].sidecar, all[1].program, all[1].sidecar)
}

// The launcher's last line has what a program says of its failure.
func TestSidecarFails(t *testing.T) {
	out := newJobOutput()
	r := <-start(t, programs("sidecar-fails", out, "fail"))
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if last := lines[len(lines)-1]; r.Status != 1 || !strings.Contains(last, "ValueError: bad sample") || !strings.Contains(last, "exited with status 1: ") {
		t.Errorf("%+v\n%s", r, out)
	}
}

// A first signal of the launcher reaches the programs.
func TestSidecarInterrupted(t *testing.T) {
	t.Setenv(stepsNeeded, "1000000000")
	for sig, code := range map[syscall.Signal]int{syscall.SIGINT: 130, syscall.SIGTERM: 0} {
		out := newJobOutput()
		signals := make(chan os.Signal, 1)
		o := programs("sidecar-interrupted", out)
		o.Signals = signals
		done := start(t, o)
		all := out.families(t, 2)
		signals <- sig
		r := <-done
		if r.Status != 128+int(sig) || len(r.Exits) != 2 || r.Exits[0].Code != code || r.Exits[1].Code != code {
			t.Errorf("%v: %+v\n%s", sig, r, out)
		}
		gone(t, all[0].program, all[0].sidecar, all[1].program, all[1].sidecar)
	}
}

// After the death of the launcher all processes end, also programs that do not answer.
func TestSidecarWithoutLauncher(t *testing.T) {
	t.Setenv(stepsNeeded, "1000000000")
	for _, how := range []string{"", "deaf", "hung"} {
		out := newJobOutput()
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		c := exec.Command(self, how)
		c.Env = append(os.Environ(), roleVariable+"=launcher")
		c.Stdout, c.Stderr = out, out
		c.WaitDelay = time.Minute // the programs hold the output
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		all := out.families(t, 2)
		_ = c.Process.Kill()
		gone(t, all[0].program, all[0].sidecar, all[1].program, all[1].sidecar)
		_ = c.Wait()
	}
}

// A program that is stopped leaves the group, and the other one goes on. When it runs again it joins by itself.
func TestSidecarStopped(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("whether a process is stopped is known on Linux only")
	}
	t.Setenv(stepsNeeded, "1000000000")
	out := newJobOutput()
	signals := make(chan os.Signal, 1)
	o := programs("sidecar-stopped", out)
	o.Signals = signals
	done := start(t, o)
	all := out.families(t, 2)
	for round := range 2 {
		_ = syscall.Kill(all[1].program, syscall.SIGSTOP)
		out.await(t, "gap 0 1 ", 1+round)
		_ = syscall.Kill(all[1].program, syscall.SIGCONT)
		out.await(t, "gap 1 2 ", 2+round) // the first one is that of the first view
	}
	signals <- syscall.SIGTERM
	if r := <-done; len(r.Exits) != 2 || r.Exits[0].Code != 0 || r.Exits[1].Code != 0 || !strings.Contains(out.String(), "its program is stopped") {
		t.Errorf("%+v\n%s", r, out)
	}
	gone(t, all[0].program, all[0].sidecar, all[1].program, all[1].sidecar)
}

// Without a launcher the program is a group of one, and its end is the end of the sidecar.
func TestSidecarAlone(t *testing.T) {
	for _, end := range []syscall.Signal{0, syscall.SIGKILL} {
		out := newJobOutput()
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		c := exec.Command(self)
		c.Env = append(os.Environ(), roleVariable+"=program")
		if end != 0 {
			c.Env = append(c.Env, stepsNeeded+"=1000000000")
		}
		c.Stdout, c.Stderr = out, out
		c.WaitDelay = time.Minute
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		out.await(t, "works", 1)
		var f family
		if _, err := fmt.Sscanf(out.await(t, "started", 1)[0], "started %d %d", &f.program, &f.sidecar); err != nil {
			t.Fatal(err)
		}
		if end != 0 {
			_ = c.Process.Kill()
		}
		if err := c.Wait(); (err == nil) != (end == 0) {
			t.Errorf("%v\n%s", err, out)
		}
		gone(t, f.program, f.sidecar)
	}
}

// A program in Python holds the lock by which its sidecar learns of its end, also while its process lives.
func TestSidecarOfPython(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil || runtime.GOOS != "linux" {
		t.Skip("no python3, or no Linux")
	}
	for how, want := range map[string]Exit{"": {Code: -1, Signal: syscall.SIGKILL}, "unhold": {Code: 4}} {
		t.Run(how, func(t *testing.T) {
			if how != "" && !waitsForWords() {
				t.Skip("the kernel cannot wait for several words")
			}
			out := newJobOutput()
			o := programs("sidecar-python", out, "testdata/sidecar.py", os.Args[0], how)
			o.Program, o.Forward = python, nil
			done := start(t, o)
			all := out.families(t, 2)
			if how == "" {
				_ = syscall.Kill(all[1].program, syscall.SIGKILL)
			}
			r := <-done
			i := slices.IndexFunc(r.Exits, func(e Exit) bool { return e.Index == 1 })
			if r.Status != 0 || i < 0 || r.Exits[i].Code != want.Code || r.Exits[i].Signal != want.Signal || r.Exits[i].PID != all[1].program {
				t.Errorf("%+v\n%s", r, out)
			}
			gone(t, all[0].program, all[0].sidecar, all[1].program, all[1].sidecar)
		})
	}
}

// waitsForWords reports whether this system has what Sidecar.Watch needs.
func waitsForWords() bool {
	word, err := shm.HoldWord(0)
	if err != nil {
		return false
	}
	defer word.Release()
	fd, err := syscall.Dup(int(word.File().Fd()))
	if err != nil {
		return false
	}
	watched, err := shm.WatchForeign(os.NewFile(uintptr(fd), "word"))
	if err != nil {
		return false
	}
	watched.Close()
	return true
}

// The longest time without a step at the survivors, when one of three programs is killed.
func BenchmarkSidecarKilled(b *testing.B) {
	for name, bytes := range map[string]int{"small": 0, "4GB": 4 << 30} {
		b.Run(name, func(b *testing.B) {
			b.Setenv(stepsNeeded, "1000000000")
			b.Setenv(paceVariable, "5ms")
			b.Setenv(ballast, strconv.Itoa(bytes))
			var gaps []float64
			for b.Loop() {
				out := newJobOutput()
				o := programs("sidecar-bench", out)
				signals := make(chan os.Signal, 1)
				o.Peers, o.Signals = 3, signals
				done := start(b, o)
				all := out.families(b, 3)
				out.await(b, "gap", 3) // the first view
				_ = syscall.Kill(all[1].program, syscall.SIGKILL)
				for _, line := range out.await(b, "gap", 5)[3:] {
					var i, n, us int
					if _, err := fmt.Sscanf(line, "gap %d %d %d", &i, &n, &us); err != nil || n != 2 {
						b.Fatal(line, err)
					}
					gaps = append(gaps, float64(us)/1000)
				}
				signals <- syscall.SIGTERM
				<-done
			}
			slices.Sort(gaps)
			b.ReportMetric(gaps[len(gaps)/2], "ms/p50")
			b.ReportMetric(gaps[len(gaps)*95/100], "ms/p95")
			b.ReportMetric(gaps[len(gaps)-1], "ms/max")
		})
	}
}

func TestSidecarOfNobody(t *testing.T) {
	for _, pid := range []int{0, -1, 1 << 22} {
		if s, err := NewSidecar(pid); err == nil {
			s.Close()
			t.Errorf("a sidecar of process %d", pid)
		}
	}
}
