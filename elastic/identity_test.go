package elastic

import "testing"

// An identity can be replaced until the group is closed. The new identity makes offers to the
// members that the old identity knew.
func TestIdentity(t *testing.T) {
	var i identity
	if i.current() != nil || i.known() != nil {
		t.Error("there is an identity before the first")
	}
	first, second := new(driver), new(driver)
	if !i.replace(first, nil) || !i.replace(second, []Member{{ID: "a"}}) {
		t.Error("an identity is refused before the end")
	}
	if i.current() != second || len(i.known()) != 1 || i.known()[0].ID != "a" {
		t.Errorf("the present identity knew %v", i.known())
	}
	if d, is := i.close(); d != second || !is {
		t.Errorf("the last identity is the present one: %v; the first close: %v", d == second, is)
	}
	if _, is := i.close(); is || i.replace(first, nil) || i.current() != second {
		t.Error("an identity follows after the end")
	}
}
