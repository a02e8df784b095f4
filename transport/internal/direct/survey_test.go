package direct

import (
	"context"
	"net"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// A survey has a result for each target, in order, also for targets at which nobody listens. The ticket stays valid.
func TestSurvey(t *testing.T) {
	keepsFiles(t)
	p := opened(t)
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := Target{Network: "tcp", Addr: free.Addr().String()}
	if err := free.Close(); err != nil {
		t.Fatal(err)
	}
	to, ticket := target(t, p, "tcp"), NewTicket()
	w := p.Expect(ticket, nil)
	defer w.Cancel()
	all := Survey(within(t), []Target{nobody, to}, ticket)
	if len(all) != 2 || all[0].Target != nobody || all[0].Err == nil || all[1].Target != to || all[1].Err != nil {
		t.Fatalf("survey: %+v", all)
	}
	if best := Fastest(all); best != 1 {
		t.Errorf("the fastest is %d", best)
	}
	ctx, cancel := context.WithCancel(within(t))
	cancel()
	if best := Fastest(Survey(ctx, []Target{to}, ticket)); best != -1 {
		t.Error("measured without time")
	}
}

// Fastest returns a target such that no other one is clearly faster. Of several such targets, it returns the first.
func TestFastest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var all []Surveyed
		for range rapid.IntRange(0, 5).Draw(t, "targets") {
			s := Surveyed{Speed: Speed{
				RoundTrip: time.Duration(rapid.IntRange(0, 1e8).Draw(t, "round trip")),
				Rate:      rapid.SampledFrom([]float64{1e3, 6e6, 7e6, 1.2e8, 1.2e9}).Draw(t, "rate"),
			}}
			if rapid.IntRange(0, 3).Draw(t, "failed") == 0 {
				s.Err = net.ErrClosed
			}
			all = append(all, s)
		}
		best := Fastest(all)
		for i, s := range all {
			switch {
			case s.Err != nil && i == best:
				t.Fatal("one that failed is the fastest")
			case s.Err == nil && best < 0:
				t.Fatal("none is the fastest")
			case s.Err == nil && s.Speed.Clearly(all[best].Speed, 1.25*1.25):
				t.Fatalf("%d is far faster than %d", i, best)
			case s.Err == nil && i < best && s.Speed.Time(Usual) <= all[best].Speed.Time(Usual):
				t.Fatalf("%d is as fast and earlier", i)
			}
		}
	})
}
