package doctor

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/elrun/elrun/launch/internal/wire"
	"github.com/elrun/elrun/launch/spec"
)

func TestCheckClock(t *testing.T) {
	asked := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	answered := asked.Add(300 * time.Millisecond)
	for off, want := range map[time.Duration]spec.Level{0: spec.OK, time.Second: spec.OK, -time.Second: spec.OK, 2400 * time.Millisecond: spec.Warn, -3 * time.Second: spec.Warn} {
		if c := checkClock(asked.Add(100*time.Millisecond+off), asked, answered); c.Level != want || (c.Advice == "") != (want == spec.OK) {
			t.Errorf("%v off: %v", off, c)
		}
	}
}

func TestCheckWay(t *testing.T) {
	for c, want := range map[spec.Check]spec.Level{
		checkDirection("a", "b", "", false, true):        spec.OK,
		checkDirection("a", "b", "refused", true, false): spec.Warn,
		checkDirection("a", "b", "refused", true, true):  spec.Fail,
	} {
		if c.Level != want || c.Name != "a -> b" {
			t.Errorf("%v", c)
		}
	}
}

func TestCheckPath(t *testing.T) {
	for _, c := range []struct {
		way  wire.LinkQuality
		want string
	}{
		{wire.LinkQuality{RTT: 120 * time.Microsecond}, "ok    a -> b: connects, round trip 0.12 ms"},
		{wire.LinkQuality{MTU: 1500, RTT: time.Millisecond}, "ok    a -> b: connects, round trip 1.00 ms, packets up to 1500 bytes"},
		{wire.LinkQuality{MTU: 576, RTT: time.Millisecond}, "warn  a -> b: connects, round trip 1.00 ms, packets up to 576 bytes; raise the MTU"},
	} {
		if got := checkPath(checkDirection("a", "b", "", false, false), c.way).String(); !strings.HasPrefix(got, c.want) {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}

func TestDoctorWithoutHosts(t *testing.T) {
	if _, err := Hosts(t.Context(), spec.Remote{}); !errors.Is(err, spec.ErrOptions) {
		t.Errorf("error %v", err)
	}
}
