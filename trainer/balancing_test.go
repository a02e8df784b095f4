package trainer

import (
	"strings"
	"testing"
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
		`Balancing.Steal is "on": want "auto" or "off"`:            {Steal: "on"},
		"Balancing.Policy: loadbal":                                {Policy: "fair"},
	} {
		if _, err := b.withDefaults(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: error %v, want %q in it", b, err, want)
		}
	}
}
