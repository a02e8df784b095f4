package elastic

import (
	"slices"
	"testing"
)

// Those who answer requests get a copy of the terms.
func TestRegistration(t *testing.T) {
	var r registration
	before := r.registered()
	r.register(func(t *terms) { t.settings, t.first = []Setting{{Name: "a"}}, 7 })
	if got := r.registered(); before.first != 0 || got.first != 7 || !slices.Equal(got.settings, []Setting{{Name: "a"}}) {
		t.Errorf("%+v, before %+v", got, before)
	}
}
