package elastic

import (
	"testing"

	"github.com/elrun/elrun/elastic/member"
)

// In texts for people, members of the present view and of the earlier view have their short IDs.
func TestShorten(t *testing.T) {
	d := &driver{roster: roster{view: View{Members: []Member{{ID: "longer-than-eight-came"}, {ID: "longer-than-eight-stay"}}}}}
	before := member.View{Members: []member.Member{{ID: "longer-than-eight-stay"}, {ID: "longer-than-eight-left"}}}
	got := d.roster.shorten("<longer-than-eight-left +longer-than-eight-came: longer-than-eight-stay stays", before)
	if want := "<ght-left +ght-came: ght-stay stays"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
