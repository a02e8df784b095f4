package shm

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/elrun/elrun/internal/kernel"
)

// TestMain runs the tests, or one rank of a benchmark or of a test of death watches, if the environment says so.
func TestMain(m *testing.M) {
	if spec := os.Getenv("SHM_DEATHWATCH"); spec != "" {
		if err := playDeathWatch(spec); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if end := os.Getenv("SHM_PROCESSWORD"); end != "" {
		if err := holdProcessWord(end); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if spec := os.Getenv("SHM_RANK"); spec != "" {
		if err := playRank(spec); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// player is a rank of a benchmark.
type player struct {
	n, rank, bytes, calls int
	engine                string
	lane                  *Lane
	dst, src              []float32
}

// playRank times calls in memory that the process has inherited.
func playRank(spec string) error {
	var p player
	if _, err := fmt.Sscan(spec, &p.n, &p.rank, &p.bytes, &p.calls, &p.engine); err != nil {
		return err
	}
	if err := p.attach(); err != nil {
		return err
	}
	times := make([]time.Duration, p.calls)
	for i := range p.calls {
		for j := range p.src {
			p.src[j] = float32(i + p.rank + j%16)
		}
		p.lane.Post(&Header{uint64(2 * i)}, Offsets{})
		if err := p.lane.AwaitAll(); err != nil {
			return err
		}
		begun := time.Now()
		if err := p.call(&Header{uint64(2*i + 1)}); err != nil {
			return err
		}
		times[i] = time.Since(begun)
		for j := range p.dst {
			if want := float32(p.n*(i+j%16) + p.n*(p.n-1)/2); p.dst[j] != want {
				return fmt.Errorf("rank %d call %d element %d: %v, want %v", p.rank, i, j, p.dst[j], want)
			}
		}
	}
	slices.Sort(times)
	if os.Getenv("SHM_BENCH") != "" {
		fmt.Printf("rank %d: %s %d bytes: p50 %.1f us, best %.1f\n", p.rank, p.engine, p.bytes,
			float64(times[p.calls/2].Nanoseconds())/1e3, float64(times[0].Nanoseconds())/1e3)
	}
	return nil
}

// attach maps the inherited memory.
func (p *player) attach() error {
	memory, err := Open(os.NewFile(3, "segment"))
	if err != nil {
		return err
	}
	var all []int
	var arenas [][]byte
	for r := range p.n {
		all = append(all, r)
		m, err := Open(os.NewFile(uintptr(4+r), "arena"))
		if err != nil {
			return err
		}
		arenas = append(arenas, m.Bytes())
	}
	seg, err := attach(memory.Bytes(), arenas, p.n, p.rank)
	if err != nil {
		return err
	}
	var wakers []*Waker
	for r := range p.n {
		waker, err := OpenWaker(os.NewFile(uintptr(4+p.n+r), "event"))
		if err != nil {
			return err
		}
		wakers = append(wakers, waker)
	}
	seg.UseEvents(eventOf(os.NewFile(uintptr(wakers[p.rank].fd), "own event")), wakers)
	p.lane = seg.Lane(0, all)
	p.src, p.dst = make([]float32, p.bytes/4), make([]float32, p.bytes/4)
	if p.engine == "direct" {
		p.src, p.dst = kernel.Elements[float32](arenas[p.rank][:p.bytes]), kernel.Elements[float32](arenas[p.rank][p.bytes:2*p.bytes])
	}
	return nil
}

func (p *player) call(h *Header) error {
	v := Vectors[float32]{Dst: p.dst, Src: p.src, Reduce: Reducer[float32]{Pair: kernel.Add[float32], All: kernel.AddAll[float32]}}
	for r := range p.n + 1 {
		v.Bounds = append(v.Bounds, len(p.src)*r/p.n)
	}
	switch p.engine {
	case "small":
		p.lane.Post(h, Offsets{}, kernel.Bytes(p.src))
		return Small(p.lane, p.dst, kernel.Add[float32])
	case "staged":
		p.lane.Post(h, Offsets{})
	case "direct":
		p.lane.PostVectors(h, kernel.Bytes(p.src), Offsets{Ref(p.bytes + 1), 1})
	}
	return AllReduce(p.lane, v, Everyone)
}

// TestProcesses reduces vectors between processes. Some are so long that the results are written by non-temporal stores. If
// SHM_BENCH has a number of processes, the test uses as many, takes longer vectors too, and logs times.
func TestProcesses(t *testing.T) {
	spec := os.Getenv("SHM_BENCH")
	n := 2
	if spec != "" {
		var err error
		if n, err = strconv.Atoi(spec); err != nil {
			t.Fatal(err)
		}
	}
	for _, engine := range []string{"small", "staged", "direct"} {
		for _, bytes := range []int{4, 1 << 10, 8 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20} {
			if engine == "small" && bytes > Inline || engine != "small" && bytes < 8<<10 || spec == "" && bytes > 16<<20 {
				continue
			}
			runRanks(t, n, bytes, min(2000, max(9, (64<<20)/bytes)), engine)
		}
	}
}

func runRanks(t *testing.T, n, bytes, calls int, engine string) {
	t.Helper()
	memory, err := NewMemory(Size(n))
	if err != nil {
		t.Fatal(err)
	}
	defer memory.Close()
	files := []*os.File{memory.File()}
	for range n {
		a, err := NewMemory(2*bytes + pageSize)
		if err != nil {
			t.Fatal(err)
		}
		defer a.Close()
		files = append(files, a.File())
	}
	for range n {
		fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK) // only the rank itself reads this event
		if err != nil {
			t.Fatal(err)
		}
		f := os.NewFile(uintptr(fd), "event")
		defer f.Close()
		files = append(files, f)
	}
	var ranks []*exec.Cmd
	for r := range n {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), fmt.Sprintf("SHM_RANK=%d %d %d %d %s", n, r, bytes, calls, engine))
		cmd.ExtraFiles = files
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ranks = append(ranks, cmd)
	}
	for _, cmd := range ranks {
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	}
}
