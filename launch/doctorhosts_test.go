package launch

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func TestCheckClock(t *testing.T) {
	asked := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	answered := asked.Add(300 * time.Millisecond)
	for off, want := range map[time.Duration]Level{0: OK, time.Second: OK, -time.Second: OK, 2400 * time.Millisecond: Warn, -3 * time.Second: Warn} {
		if c := checkClock(asked.Add(100*time.Millisecond+off), asked, answered); c.Level != want || (c.Advice == "") != (want == OK) {
			t.Errorf("%v off: %v", off, c)
		}
	}
}

func TestCheckWay(t *testing.T) {
	for c, want := range map[Check]Level{
		checkDirection("a", "b", "", false, true):        OK,
		checkDirection("a", "b", "refused", true, false): Warn,
		checkDirection("a", "b", "refused", true, true):  Fail,
	} {
		if c.Level != want || c.Name != "a -> b" {
			t.Errorf("%v", c)
		}
	}
}

func TestCheckPath(t *testing.T) {
	for _, c := range []struct {
		way  linkQuality
		want string
	}{
		{linkQuality{RTT: 120 * time.Microsecond}, "ok    a -> b: connects, round trip 0.12 ms"},
		{linkQuality{MTU: 1500, RTT: time.Millisecond}, "ok    a -> b: connects, round trip 1.00 ms, packets up to 1500 bytes"},
		{linkQuality{MTU: 576, RTT: time.Millisecond}, "warn  a -> b: connects, round trip 1.00 ms, packets up to 576 bytes; raise the MTU"},
	} {
		if got := checkPath(checkDirection("a", "b", "", false, false), c.way).String(); !strings.HasPrefix(got, c.want) {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}

func TestDoctorWithoutHosts(t *testing.T) {
	if _, err := DoctorHosts(t.Context(), Remote{}); !errors.Is(err, ErrOptions) {
		t.Errorf("error %v", err)
	}
}
