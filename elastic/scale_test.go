package elastic

import (
	"flag"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elrun/elrun/elastic/member"
)

// flagged returns the value of a flag of TestMain.
func flagged[T any](name string) T { return flag.Lookup(name).Value.(flag.Getter).Get().(T) }

// A large group forms and goes through churn: in each minute 1 % of the members leave or die, and
// as many newcomers join. The traffic per member is bounded, no live member is put out, and all
// members agree in the end. scripts/scale makes docs/scale.md from the log:
//
//	go test -count=1 -v -run GroupOfMany ./elastic -many=10000 -minutes=1
func TestGroupOfMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		testMany(t, flagged[int]("many"), time.Duration(flagged[float64]("minutes")*float64(time.Minute)))
	})
}

func testMany(t *testing.T, n int, churn time.Duration) {
	before := inUse()
	s := newSwarm(n)
	defer s.close()
	begun := time.Now()
	for !s.spoken() {
		<-time.After(tickPeriod)
	}
	t.Logf("many phase=form members=%d ms=%d letters=%d bytes=%d", n, time.Since(begun).Milliseconds(), s.letters.Load(), s.bytes.Load())
	for _, d := range s.drivers {
		d.loop.do(d.roster.agreed) // as if all members had entered a session
	}
	idle := s.measure(t, n, "idle", func() { <-time.After(2 * time.Second) })
	if most := 4 + 2*logTwo(n); n > greetedAll && idle.peers > most {
		t.Errorf("a member of an idle group of %d sends to %d others, at most %d", n, idle.peers, most)
	}
	var waits delays
	busy := s.measure(t, n, "churn", func() { s.churn(n, churn, &waits) })
	for what, f := range map[string]figures{"idle": idle, "churn": busy} {
		if f.letters > 60 || f.views == 0 && what == "churn" {
			t.Errorf("%s: %.0f letters a member and second, %d views", what, f.letters, f.views)
		}
	}
	for limit := time.Now().Add(time.Minute); !s.agreed(); {
		if time.Now().After(limit) {
			t.Fatalf("no agreement of %d", len(s.drivers))
		}
		<-time.After(100 * time.Millisecond)
	}
	waits.log(t, n)
	used := (inUse() - before) / int64(n)
	view, encoded := s.viewBytes()
	t.Logf("many phase=memory members=%d member_bytes=%d view_bytes=%d encoded=%d", n, used, view, encoded)
}

// spoken reports whether each member has received a message of each member that it watches on
// another host.
func (s *swarm) spoken() bool {
	var missing atomic.Int64
	for _, d := range s.drivers {
		d.loop.do(func() {
			for _, id := range d.roster.watched() {
				if p := d.roster.peerOf(id); !p.spoke && !p.near {
					missing.Add(1)
				}
			}
		})
	}
	synctest.Wait()
	return missing.Load() == 0
}

// agreed reports whether all live peers, and no others, are in one view, with a vote.
func (s *swarm) agreed() bool {
	first, _ := s.drivers[0].status.now()
	return !slices.ContainsFunc(s.drivers, func(d *driver) bool {
		return !d.in(func(now status) bool {
			return now.phase == inside && now.view.Epoch == first.view.Epoch && len(now.view.Members) == len(s.drivers) && len(now.view.Voters) == len(s.drivers)
		})
	})
}

// churn makes members come and go at even intervals. Of the members that go, a third leaves, a
// third is killed, and a third is on hosts that lose their power.
func (s *swarm) churn(n int, lasting time.Duration, out *delays) {
	period := time.Duration(float64(time.Minute) / (float64(n) / 100))
	for i, end := 0, time.Now().Add(lasting); time.Now().Before(end); i++ {
		gone, witness := s.take(), s.drivers[s.rng.IntN(len(s.drivers)/2)]
		switch i % 3 {
		case 0:
			s.leave(gone)
		case 1:
			s.kill(gone, false)
		case 2:
			s.kill(gone, true)
		}
		out.waits.Go(func() {
			out.add(&out.gone[i%3], witness.await(func(s status) bool { return s.view.Rank(gone.ep.Self.ID) < 0 }))
		})
		d := s.join()
		out.waits.Go(func() { out.add(&out.joined, d.await(func(s status) bool { return s.phase == inside })) })
		<-time.After(min(period, time.Until(end)))
	}
	out.waits.Wait()
}

// delays are the times until a newcomer was in a view, and until a member received a view without a
// member that had left or died.
type delays struct {
	waits  sync.WaitGroup
	mu     sync.Mutex
	joined []time.Duration
	gone   [3][]time.Duration
}

func (d *delays) add(to *[]time.Duration, one time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	*to = append(*to, one)
}

func (d *delays) log(t *testing.T, n int) {
	for name, all := range map[string][]time.Duration{"join": d.joined, "leave": d.gone[0], "kill": d.gone[1], "power": d.gone[2]} {
		if len(all) > 0 {
			slices.Sort(all)
			t.Logf("many phase=%s members=%d count=%d ms=%d most_ms=%d", name, n, len(all),
				all[len(all)/2].Milliseconds(), all[len(all)-1].Milliseconds())
		}
	}
}

// figures is the traffic in a phase.
type figures struct {
	letters, bytes float64 // per member and second
	most           float64 // bytes per second of the member that sends the most
	peers          int     // largest number of peers to which one member sends
	views          uint64
}

// measure logs the traffic of a phase.
func (s *swarm) measure(t *testing.T, n int, phase string, f func()) figures {
	letters, bytes, begun := s.letters.Load(), s.bytes.Load(), time.Now()
	before := make(map[*port]int64)
	for _, d := range s.drivers {
		before[d.port()] = d.port().bytes.Load()
		d.port().peers.Clear()
	}
	first := s.epoch()
	f()
	seconds := time.Since(begun).Seconds()
	out := figures{letters: float64(s.letters.Load()-letters) / seconds / float64(n), bytes: float64(s.bytes.Load()-bytes) / seconds / float64(n),
		views: s.epoch() - first}
	for p, was := range before {
		out.most = max(out.most, float64(p.bytes.Load()-was)/seconds)
		peers := 0
		p.peers.Range(func(any, any) bool { peers++; return true })
		out.peers = max(out.peers, peers)
	}
	t.Logf("many phase=%s members=%d letters=%.1f bytes=%.0f most=%.0f peers=%d views=%d seconds=%.1f", phase, n,
		out.letters, out.bytes, out.most, out.peers, out.views, seconds)
	return out
}

// epoch returns the latest epoch.
func (s *swarm) epoch() (latest uint64) {
	for _, d := range s.drivers {
		now, _ := d.status.now()
		latest = max(latest, now.view.Epoch)
	}
	return latest
}

// viewBytes returns the memory that a view takes in one process, as a member.View and as a View,
// and the length of the encoded view, both in bytes.
func (s *swarm) viewBytes() (own, encoded int64) {
	now, _ := s.drivers[0].status.now()
	before := inUse()
	var all []member.Member
	for _, m := range now.view.Members {
		one, err := toMember(m)
		if err != nil {
			panic(err)
		}
		all = append(all, one)
		encoded += int64(len(one.ID) + len(one.Info) + 5) // lengths, By and Was
	}
	v, err := member.First(all)
	if err != nil {
		panic(err)
	}
	all = nil
	view := fromView(v, View{})
	own = inUse() - before
	runtime.KeepAlive(view)
	runtime.KeepAlive(v)
	return own, encoded
}

// inUse returns the bytes in use after a garbage collection, with the goroutines' stacks.
func inUse() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

// logTwo returns the logarithm of n to base 2, rounded up.
func logTwo(n int) (levels int) {
	for m := 1; m < n; m *= 2 {
		levels++
	}
	return levels
}
