package elastic

import (
	"slices"
	"testing"
)

// A newcomer asks its contacts until a member has replied, and again after a round without a reply:
// some contacts may be newcomers, too.
func TestContacts(t *testing.T) {
	member, contact, former := Member{ID: "member"}, Member{ID: "contact"}, Member{ID: "former"}
	j := &joiner{group: &Group{cfg: Config{Contacts: func() []Member { return []Member{contact} }}, identity: identity{former: []Member{former}}}}
	check := func(heard bool, want ...ID) {
		t.Helper()
		var got []ID
		for _, m := range j.contacts(heard) {
			got = append(got, m.ID)
		}
		if !slices.Equal(got, want) {
			t.Errorf("heard %v, members %v: got %v, want %v", heard, j.members, got, want)
		}
	}
	check(false, "contact", "former")
	check(true, "contact", "former") // a member has replied that it cannot decide yet
	j.members = []Member{member}
	check(true, "member")
	check(false, "member", "contact", "former")
}
