package elastic

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/elrun/elrun/loadbal"
)

// Setting is a value on which all members of a job must agree, for example the batch size or a hash
// of the data. Members of the first view compare their settings when they enter it, and a member
// compares the settings of a newcomer with its own. Messages name the first setting that differs,
// so programs list the settings that users know best first.
type Setting struct {
	Name  string // the name that users know, for example the name of a flag
	Value string // compared byte by byte
	// Text is shown in messages in place of Value, unless Text is empty. It is for values that mean
	// nothing to people, such as hashes.
	Text string `json:",omitempty"`
}

// text returns the value as messages show it.
func (s Setting) text() string { return cmp.Or(s.Text, s.Value, "empty") }

// contrast returns the texts of two different values. If the texts are equal, the values are
// appended to them.
func contrast(a, b Setting) (string, string) {
	if a.text() != b.text() {
		return a.text(), b.text()
	}
	return a.text() + " (" + a.Value + ")", b.text() + " (" + b.Value + ")"
}

// byName returns a map of settings by name.
func byName(settings []Setting) map[string]Setting {
	m := make(map[string]Setting, len(settings))
	for _, s := range settings {
		m[s.Name] = s
	}
	return m
}

// differ describes the first setting in which a newcomer (theirs) differs from the job (ours), or
// returns "".
func differ(ours, theirs []Setting) string {
	others := byName(theirs)
	for _, s := range ours {
		other, there := others[s.Name]
		switch {
		case !there:
			return fmt.Sprintf("%s is %s in the job, and not set at the peer", s.Name, s.text())
		case other.Value != s.Value:
			a, b := contrast(s, other)
			return fmt.Sprintf("%s is %s in the job and %s at the peer", s.Name, a, b)
		}
		// A setting that remains in others is set at the newcomer only.
		delete(others, s.Name)
	}
	for _, s := range theirs {
		if _, left := others[s.Name]; left {
			return fmt.Sprintf("%s is %s at the peer, and not set in the job", s.Name, s.text())
		}
	}
	return ""
}

// disagreement describes the first setting in which members differ: its values, and the members
// whose value is not the most common one. Of several equally common values the value of the lowest
// rank counts as the most common. It returns "" if all agree. names holds a name for each member.
func disagreement(all [][]Setting, names []string) string {
	var lists []map[string]Setting
	for _, settings := range all {
		lists = append(lists, byName(settings))
	}
	for _, s := range slices.Concat(all...) {
		if odd, usual := minority(lists, s.Name); odd != nil {
			return wordMinority(lists, names, s.Name, odd, usual)
		}
	}
	return ""
}

// minority returns the ranks whose value of a setting is not the most common one, and the lowest
// rank with the most common value.
func minority(lists []map[string]Setting, name string) (odd []int, usual int) {
	count := make(map[Setting]int)
	key := func(rank int) Setting {
		s := lists[rank][name] // the zero value if the member has not set it
		return Setting{Name: s.Name, Value: s.Value}
	}
	for rank := range lists {
		count[key(rank)]++
	}
	for rank := range lists {
		if count[key(rank)] > count[key(usual)] {
			usual = rank
		}
	}
	for rank := range lists {
		if key(rank) != key(usual) {
			odd = append(odd, rank)
		}
	}
	return odd, usual
}

// wordMinority describes the values of a setting at the ranks odd and at all other ranks.
func wordMinority(lists []map[string]Setting, names []string, name string, odd []int, usual int) string {
	first, others := lists[odd[0]][name], lists[usual][name]
	a, b := contrast(first, others)
	for _, v := range []struct {
		setting Setting
		text    *string
	}{{first, &a}, {others, &b}} {
		if v.setting.Name == "" {
			*v.text = "not set"
		}
	}
	rest := "the others have"
	if len(lists) == 2 {
		rest = names[usual] + " has"
	}
	more := ""
	if len(odd) > 1 {
		more = fmt.Sprintf(" (and %d more differ)", len(odd)-1)
	}
	return fmt.Sprintf("%s has %s %s%s, %s %s: start all peers with the same flags and data", names[odd[0]], name, a, more, rest, b)
}

// Option changes the behaviour of Group.Steps: it is a Setting or a Balance. All members pass the
// same options.
type Option interface{ apply(*stepOptions) }

// Balance is the name of a policy of package loadbal; see loadbal.Names. Turn.Part divides steps by
// this policy. The default policy follows measured speeds.
type Balance string

// Equal gives all members the same number of samples.
const Equal Balance = "equal"

// stepOptions collects the options of a call of Steps.
type stepOptions struct {
	settings []Setting
	balance  Balance
}

// apply adds the setting.
func (s Setting) apply(o *stepOptions) { o.settings = append(o.settings, s) }

// apply sets the policy.
func (b Balance) apply(o *stepOptions) { o.balance = b }

// check returns an error for options that cannot be used.
func (s *stepOptions) check() error {
	if _, err := loadbal.New(string(s.balance)); err != nil {
		return err
	}
	for _, setting := range s.settings {
		if setting.Name == "" {
			return fmt.Errorf("the setting with the value %q has no name", setting.Value)
		}
	}
	return nil
}
