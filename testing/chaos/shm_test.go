package chaos

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/testing/process"
)

// detectionTimes has the times from the death of a peer to reactions of the survivors. Each is the
// time of the slowest survivor.
type detectionTimes struct {
	dead time.Duration // until the kernel has freed the memory and the connections of the dead process
	call time.Duration // until the survivor's call has failed
	lost time.Duration // until the survivor has a view without the dead peer
	next time.Duration // until the survivor is in the next session
}

// Four peers share memory and do nothing but collective calls. One peer is killed at a random
// instant. The calls of the survivors fail with an error that names this peer, and the survivors
// continue without it. They free its memory and their connections to it. The job leaves no process,
// memory or socket.
func TestKillShared(t *testing.T) {
	runs := cmp.Or(option[int]("runs"), pick(4, 200))
	rng := chance(t)
	const peers = 4
	var all []detectionTimes
	most, well, soon := 0, 0, 0
	for run := range runs {
		victim := rng.IntN(peers)
		offset := time.Duration(rng.Int64N(int64(50 * time.Millisecond)))
		ok := t.Run(fmt.Sprintf("%d/peer=%d", run, victim), func(t *testing.T) {
			j := start(t, spec{Calls: true}, peers, transportFlags()...)
			j.inSession(t, peers)
			things, before := j.things(t), j.descriptors(t)
			j.pause(t, offset)
			p := j.elruns[0].peer(t, victim)
			most = max(most, resident(p.PID))
			gone := watch(t, p.PID)
			killed := j.kill(t, p.PID, syscall.SIGKILL)
			dead := gone(t).Sub(killed)
			j.inSession(t, peers-1)
			things.add(t, j)
			j.checkHeld(t, peers-1, before)
			n := j.noticed(t, victim, killed)
			n.dead = dead
			j.speedUp(t)
			if status := j.elruns[0].status(t); status != 0 {
				t.Errorf("elrun ended with status %d", status)
			}
			things.checkGone(t, j)
			all = append(all, n)
			if n.call <= 10*time.Millisecond {
				soon++
			}
		})
		if ok {
			well++
		}
	}
	t.Logf("%d of %d runs ended well, in %d of them all calls failed within 10 ms; peers had at most %d MiB resident", well, runs, soon, most>>10)
	reportColumns(t, fmt.Sprintf("%d kills of 1 of %d peers", len(all), peers), all, []column[detectionTimes]{
		{"kill to the end of the process", func(n detectionTimes) time.Duration { return n.dead }},
		{"kill to the last failed call", func(n detectionTimes) time.Duration { return n.call }},
		{"kill to the last view", func(n detectionTimes) time.Duration { return n.lost }},
		{"kill to the last session", func(n detectionTimes) time.Duration { return n.next }},
	})
}

// A peer is killed at some moment during the start of a job. The job ends or continues, and leaves
// no process and no memory.
func TestKillSharedEarly(t *testing.T) {
	rng := chance(t)
	const peers = 4
	outcomes := make(map[string]int)
	for run := range cmp.Or(option[int]("runs"), pick(4, 100)) {
		victim := rng.IntN(peers)
		offset := time.Duration(rng.Int64N(int64(150 * time.Millisecond)))
		t.Run(fmt.Sprintf("%d/peer=%d/%v", run, victim, offset), func(t *testing.T) {
			j := start(t, spec{Calls: true}, peers, transportFlags()...)
			e := j.elruns[0]
			j.until(t, "all processes", func() bool { return len(e.peers(t)) == peers })
			j.pause(t, offset)
			things := j.things(t)
			j.kill(t, e.peer(t, victim).PID, syscall.SIGKILL)
			j.until(t, "a session without it, or the end", func() bool { return !e.Running() || j.sessions(peers-1, 0) == peers-1 })
			outcome := "went on"
			if !e.Running() {
				outcome = "ended"
			} else {
				things.add(t, j)
				j.checkMemories(t, peers-1)
				j.speedUp(t)
				if status := e.status(t); status != 0 {
					t.Errorf("elrun ended with status %d", status)
				}
			}
			outcomes[outcome]++
			things.checkGone(t, j)
		})
	}
	t.Logf("kills of 1 of %d peers within 150 ms of their start: %v", peers, outcomes)
}

// A job whose peers share memory leaves no process, memory or socket when it finishes, is
// interrupted or is killed.
func TestSharedEnds(t *testing.T) {
	rng := chance(t)
	const peers = 4
	elrun := func(sig syscall.Signal) func(*testing.T, *job) {
		return func(t *testing.T, j *job) {
			t.Helper()
			j.kill(t, j.elruns[0].PID(), sig)
		}
	}
	for name, end := range map[string]func(*testing.T, *job){
		"by itself":    func(t *testing.T, j *job) { t.Helper(); j.speedUp(t) },
		"Ctrl-C":       elrun(syscall.SIGINT),
		"elrun killed": elrun(syscall.SIGKILL),
		"all killed": func(t *testing.T, j *job) {
			t.Helper()
			pids := []int{j.elruns[0].PID()}
			for _, p := range j.Peers(t) {
				pids = append(pids, p.PID)
			}
			for _, i := range rng.Perm(len(pids)) {
				j.kill(t, pids[i], syscall.SIGKILL)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			for range pick(1, 20) {
				j := start(t, spec{Calls: true}, peers, transportFlags()...)
				j.inSession(t, peers)
				things := j.things(t)
				if !things.haveMemory() && option[string]("transport") == "" {
					t.Error("no memory is shared")
				}
				j.pause(t, time.Duration(rng.Int64N(int64(20*time.Millisecond))))
				end(t, j)
				j.until(t, "the end of elrun", func() bool { return !j.elruns[0].Running() })
				things.checkGone(t, j)
			}
		})
	}
}

// A peer is stopped in the middle of a call in shared memory. The other peers report that they wait
// for it, put it out and continue. If they get too little processor time to report the stall, only
// the event of the loss names the stopped peer.
func TestStopShared(t *testing.T) {
	rng := chance(t)
	const peers = 4
	var all, lost []time.Duration // times from the stop to reports of a stall, and to losses
	for run := range pick(10, 20) {
		if len(all) > 0 && !option[bool]("long") {
			break
		}
		victim := rng.IntN(peers)
		t.Run(fmt.Sprintf("%d/peer=%d", run, victim), func(t *testing.T) {
			j := start(t, spec{Calls: true}, peers, transportFlags()...)
			j.inSession(t, peers)
			j.pause(t, time.Duration(rng.Int64N(int64(50*time.Millisecond))))
			stopped := j.kill(t, j.elruns[0].peer(t, victim).PID, syscall.SIGSTOP)
			j.inSession(t, peers-1)
			id := j.member(t, victim)
			for _, e := range process.After[event.Stall](j.events(), stopped) {
				all = append(all, e.Time.Sub(stopped))
				if s := e.Body.(event.Stall); !slices.Contains(strings.Split(s.Culprit, ","), id) {
					t.Errorf("peer %d waits for %s (%s, %s), want %s", e.Index, s.Culprit, s.Phase, s.What, id)
				}
			}
			for _, e := range process.After[event.Lost](j.events(), stopped) {
				lost = append(lost, e.Time.Sub(stopped))
				if who := e.Body.(event.Lost).Who; who != id {
					t.Errorf("peer %d has put out %s, want %s", e.Index, who, id)
				}
			}
			j.speedUp(t)
			if status := j.elruns[0].status(t); status != 0 {
				t.Errorf("elrun ended with status %d", status)
			}
			j.checkGone(t)
		})
	}
	if len(lost) == 0 {
		t.Error("no peer has named the stopped peer")
	}
	taken := func(d time.Duration) time.Duration { return d }
	if len(all) > 0 {
		reportColumns(t, fmt.Sprintf("%d reports of a stopped peer", len(all)), all, []column[time.Duration]{{"stop to report", taken}})
	}
	reportColumns(t, fmt.Sprintf("%d losses of a stopped peer", len(lost)), lost, []column[time.Duration]{{"stop to loss", taken}})
}

// A peer is stopped in the middle of a call. Its elrun is stopped too, because it would kill the
// peer. The other peers put the stopped peer out and continue. When the stopped peer runs again, it
// must not write to the shared memory of the others, whose calls check all results. Then it joins
// again.
func TestLateShared(t *testing.T) {
	rng := chance(t)
	const peers = 3
	for run := range pick(3, 40) {
		t.Run(fmt.Sprint(run), func(t *testing.T) {
			j := start(t, spec{Calls: true}, peers-1, transportFlags()...)
			j.inSession(t, peers-1)
			other := j.join(t, 1)
			j.until(t, "a session of all", func() bool { return j.sessions(peers, 0) == peers-1 })
			j.pause(t, time.Duration(rng.Int64N(int64(50*time.Millisecond))))
			late := other.peer(t, 0)
			told := len(j.elruns[0].Out.String())
			j.kill(t, other.PID(), syscall.SIGSTOP)
			j.kill(t, late.PID, syscall.SIGSTOP)
			j.until(t, "a session without the one that is stopped", func() bool { return j.sessions(peers-1, told) == peers-1 })
			j.pause(t, time.Duration(rng.Int64N(int64(50*time.Millisecond))))
			told = len(j.elruns[0].Out.String())
			j.kill(t, late.PID, syscall.SIGCONT)
			j.kill(t, other.PID(), syscall.SIGCONT)
			j.until(t, "a session of all again", func() bool { return j.sessions(peers, told) == peers-1 })
			j.speedUp(t)
			for i, e := range j.elruns {
				if status := e.status(t); status != 0 {
					t.Errorf("elrun %d ended with status %d", i, status)
				}
			}
			j.checkGone(t)
		})
	}
}

// watch returns a function that waits for the end of a process and returns the time of the end.
func watch(t *testing.T, pid int) (wait func(t *testing.T) time.Time) {
	t.Helper()
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	return func(t *testing.T) time.Time {
		t.Helper()
		defer unix.Close(fd)
		for _, err = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(limit/time.Millisecond)); err == unix.EINTR; {
			_, err = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(limit/time.Millisecond))
		}
		if err != nil {
			t.Fatal(err)
		}
		return time.Now()
	}
}

// transportFlags returns the flags that make elrun use the transport of the flag -transport.
func transportFlags() []string {
	if name := option[string]("transport"); name != "" {
		return []string{"--transport", name}
	}
	return nil
}

// inSession waits until n peers in the role of spec.Calls have begun a session of n members.
func (j *job) inSession(t *testing.T, n int) {
	t.Helper()
	j.until(t, fmt.Sprintf("a session of %d members", n), func() bool { return j.sessions(n, 0) == n })
}

// sessions returns how many peers of the first elrun have begun a session of n members. It searches
// the output of this elrun from offset from.
func (j *job) sessions(n, from int) int {
	line := regexp.MustCompile(fmt.Sprintf(`(?m)^(\[\d+\]) session epoch=\d+ size=%d shared=`, n))
	peers := make(map[string]bool)
	for _, m := range line.FindAllStringSubmatch(j.elruns[0].Out.String()[from:], -1) {
		peers[m[1]] = true
	}
	return len(peers)
}

// member returns the short ID of a peer of the first elrun, by its index.
func (j *job) member(t *testing.T, index int) string {
	t.Helper()
	j.poll(t)
	for _, e := range j.elruns[0].Events {
		if e.Index == index && e.Peer != "" {
			return e.Peer
		}
	}
	t.Fatalf("peer %d is not in the log", index)
	return ""
}

// noticed returns the times from the death of a peer to the reactions of the survivors. It checks
// that the calls of all three survivors have failed with errors that name the dead peer.
func (j *job) noticed(t *testing.T, victim int, killed time.Time) (n detectionTimes) {
	t.Helper()
	id := j.member(t, victim)
	told := make(map[string]bool)
	line := regexp.MustCompile(`(?m)^\[(\d+)\] noticed epoch=\d+ at=(\d+): (.*)$`)
	for _, l := range line.FindAllStringSubmatch(j.elruns[0].Out.String(), -1) {
		at := time.Unix(0, int64(number(l[2])))
		if told[l[1]] || at.Before(killed) {
			continue
		}
		told[l[1]] = true
		n.call = max(n.call, at.Sub(killed))
		if !strings.Contains(l[3], id) {
			t.Errorf("peer %s does not name %s: %s", l[1], id, l[3])
		}
	}
	if len(told) != 3 {
		t.Errorf("calls of %d peers failed, want 3", len(told))
	}
	for _, e := range process.After[event.View](j.events(), killed) {
		n.lost = max(n.lost, e.Time.Sub(killed))
	}
	for _, at := range regexp.MustCompile(`(?m)^\[\d+\] session .* at=(\d+)$`).FindAllStringSubmatch(j.elruns[0].Out.String(), -1) {
		n.next = max(n.next, time.Unix(0, int64(number(at[1]))).Sub(killed))
	}
	return n
}
