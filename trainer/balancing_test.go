package trainer

import (
	"strings"
	"testing"
	"time"

	"github.com/elrun/elrun/loadbal"
)

func TestBalancingDefaults(t *testing.T) {
	if got, err := (Balancing{}).withDefaults(); err != nil || got != (Balancing{Policy: "auto", Admit: AdmitIfItHelps, Steal: StealAuto}) {
		t.Errorf("%+v, %v", got, err)
	}
	want := Balancing{Policy: "equal", MaxShare: 3, Admit: AdmitAlways, Steal: StealOff}
	if got, err := want.withDefaults(); err != nil || got != want {
		t.Errorf("%+v, %v, want %+v", got, err, want)
	}
}

// Each field with an invalid value is named, with its part.
func TestBadBalancing(t *testing.T) {
	for want, b := range map[string]Balancing{
		"Balancing.MaxShare is -1":                                 {MaxShare: -1},
		`Balancing.Admit is "sometimes": want "helps" or "always"`: {Admit: "sometimes"},
		`Balancing.Steal is "on": want "auto", "far" or "off"`:     {Steal: "on"},
		"Balancing.Policy: loadbal":                                {Policy: "fair"},
	} {
		if _, err := b.withDefaults(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: error %v, want %q in it", b, err, want)
		}
	}
}

// If a peer had computed a part of its share before, the share does not measure the peer's speed.
func TestMeasuredShares(t *testing.T) {
	var b balance
	if b.measured(3, 3, true, 30*time.Millisecond); b.micros != 30_000 || b.speed() != 100*loadbal.SpeedUnit {
		t.Errorf("%d us, speed %d", b.micros, b.speed())
	}
	if b.measured(0, 2, true, 0); b.micros != 0 {
		t.Errorf("%d us for an empty share", b.micros)
	}
	if b.measured(3, 3, false, time.Second); b.micros != 0 || b.speed() != 100*loadbal.SpeedUnit {
		t.Errorf("%d us with a microbatch held, speed %d", b.micros, b.speed())
	}
	// A peer that has computed three microbatches of its six, because others have stolen the rest, would need twice the time for them.
	if b.measured(6, 3, true, 30*time.Millisecond); b.micros != 60_000 || b.speed() != 100*loadbal.SpeedUnit {
		t.Errorf("%d us after a theft, speed %d", b.micros, b.speed())
	}
	// One slow step in five does not change the speed.
	for _, d := range []time.Duration{30, 30, 900, 30, 31, 29} {
		b.measured(3, 3, true, d*time.Millisecond)
	}
	if got := b.speed(); got != 100*loadbal.SpeedUnit || len(b.speeds) != speedWindow {
		t.Errorf("speed %d of the last %d steps", got, len(b.speeds))
	}
}
