package run

import (
	"testing"
	"time"

	"github.com/elrun/elrun/launch/internal/wire"
)

// A signal within RepeatPeriod repeats the first signal. A later signal kills, and so do all
// signals after it. After the end of the context the first signal kills no peer.
func TestInterruption(t *testing.T) {
	begun := time.Unix(100, 0)
	var i interruption
	i.begin(false, begun)
	for after, want := range map[time.Duration]signalEffect{
		0: signalRepeated, wire.RepeatPeriod - 1: signalRepeated, wire.RepeatPeriod: signalKills, time.Hour: signalKills} {
		if got := i.again(begun.Add(after)); got != want {
			t.Errorf("after %v: effect %d, want %d", after, got, want)
		}
	}
	i.begin(true, begun)
	first := begun.Add(time.Minute)
	for _, c := range []struct {
		at   time.Time
		want signalEffect
	}{{first, signalAcknowledged}, {first.Add(wire.RepeatPeriod / 2), signalRepeated}, {first.Add(wire.RepeatPeriod), signalKills}} {
		if got := i.again(c.at); got != c.want {
			t.Errorf("%v after the end of the context: effect %d, want %d", c.at.Sub(begun), got, c.want)
		}
	}
}
