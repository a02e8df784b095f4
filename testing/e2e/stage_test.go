package e2e

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/elrun/elrun/testing/process"
)

// stage gives orders to the subjects of a job, and knows where each of them is. The name of a subject is the index of its peer, with a
// j before it for a peer of a second elrun, and with /2 after it for its second process, and so on: "1", "1/2", "j0".
type stage struct {
	path string

	mu      sync.Mutex
	orders  map[string]string // by name and point, as in "1 step 5", or by point alone, for all
	holds   []string          // points at which the first processes of the first elrun wait
	last    bool              // the next step ends the job
	actors  map[string]*actor
	counted map[string]int // processes by the name of the first one
}

// actor is a process on a stage.
type actor struct {
	pid  int
	at   string // the latest point
	ways chan string
	held bool     // it waits for its order
	been []string // points at which it has waited: it does not wait again if it tries a step again
}

// openStage returns a stage whose subjects get these orders. The order hold makes a subject wait.
func openStage(t *testing.T, orders map[string]string) *stage {
	t.Helper()
	dir, err := os.MkdirTemp("", "e2e-") // short, as the path of a socket must be
	if err != nil {
		t.Fatal(err)
	}
	s := &stage{path: filepath.Join(dir, "stage"), orders: orders, actors: map[string]*actor{}, counted: map[string]int{}}
	l, err := net.Listen("unix", s.path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.end()
		_ = l.Close()
		_ = os.RemoveAll(dir)
	})
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go s.serve(conn)
		}
	}()
	return s
}

// serve gives orders to a subject until it has ended.
func (s *stage) serve(conn net.Conn) {
	defer conn.Close()
	lines := bufio.NewScanner(conn)
	if !lines.Scan() {
		return
	}
	a := &actor{ways: make(chan string, 1)}
	var name string
	if _, err := fmt.Sscan(lines.Text(), &name, &a.pid); err != nil {
		return
	}
	name = s.enter(name, a)
	for lines.Scan() {
		if _, err := fmt.Fprintln(conn, s.order(name, a, lines.Text())); err != nil {
			return
		}
	}
}

// enter adds a process and returns its name.
func (s *stage) enter(name string, a *actor) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counted[name]++
	if n := s.counted[name]; n > 1 {
		name = fmt.Sprintf("%s/%d", name, n)
	}
	s.actors[name] = a
	return name
}

// order returns the order for a process at a point, when there is one.
func (s *stage) order(name string, a *actor, point string) string {
	s.mu.Lock()
	a.at = point
	order, ok := s.orders[name+" "+point]
	if !ok {
		order, ok = s.orders[point]
	}
	first := !strings.ContainsAny(name, "j/")
	held := (order == "hold" || !ok && first && slices.Contains(s.holds, point)) && !slices.Contains(a.been, point)
	if a.held = held; held {
		a.been = append(a.been, point)
	}
	if !ok || order == "hold" {
		order = s.usual(point)
	}
	s.mu.Unlock()
	if held {
		order = <-a.ways
	}
	return order
}

// usual returns the order at a point for which there is no other one.
func (s *stage) usual(point string) string {
	if s.last && strings.HasPrefix(point, "step ") {
		return "last"
	}
	return "go"
}

// release gives the processes at name the order to go on, and without a name all that wait.
func (s *stage) release(names ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, a := range s.actors {
		if a.held && (len(names) == 0 || slices.Contains(names, name)) {
			a.held = false
			a.ways <- s.usual(a.at)
		}
	}
}

// end lets all processes go on, and the job end with its next step.
func (s *stage) end() {
	s.mu.Lock()
	s.holds, s.last = nil, true
	for at, order := range s.orders {
		if order == "hold" {
			delete(s.orders, at)
		}
	}
	s.mu.Unlock()
	s.release()
}

// is tells whether f holds for a process that has entered.
func (s *stage) is(name string, f func(actor) bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.actors[name]
	return a != nil && f(*a)
}

// pidOf returns the process of a name, which must have entered.
func (s *stage) pidOf(t *testing.T, name string) int {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.actors[name] == nil {
		t.Fatalf("no process %s", name)
	}
	return s.actors[name].pid
}

// await waits until a process is at a point, as in "1/2 start", or at a step, as in "j0 step".
func (s *stage) await(t *testing.T, places ...string) {
	t.Helper()
	for _, place := range places {
		name, point, _ := strings.Cut(place, " ")
		process.Until(t, place, func() bool {
			return s.is(name, func(a actor) bool { return a.at == point || point == "step" && strings.HasPrefix(a.at, "step ") })
		})
	}
}

// gone waits until processes have ended.
func (s *stage) gone(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		process.Until(t, "the end of "+name, func() bool { return s.is(name, func(a actor) bool { return !process.Alive(a.pid) }) })
	}
}

// signal sends a signal to processes, as fast as it can.
func (s *stage) signal(t *testing.T, sig syscall.Signal, names ...string) {
	t.Helper()
	var pids []int
	for _, name := range names {
		pids = append(pids, s.pidOf(t, name))
	}
	for _, pid := range pids {
		process.Signal(t, pid, sig)
	}
}
