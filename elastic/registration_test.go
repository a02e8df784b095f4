package elastic

import (
	"slices"
	"testing"
)

// registered returns a copy of the terms: a later registration does not change it.
func TestRegistration(t *testing.T) {
	var r registration
	before := r.registered()
	r.register(func(t *terms) { t.settings, t.first = []Setting{{Name: "a"}}, 7 })
	if got := r.registered(); before.first != 0 || got.first != 7 || !slices.Equal(got.settings, []Setting{{Name: "a"}}) {
		t.Errorf("%+v, before %+v", got, before)
	}
}
