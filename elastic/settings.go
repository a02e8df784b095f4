package elastic

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/cespare/xxhash/v2"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/event"
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

// settingsHash returns a hash (xxHash64) of settings that does not depend on their order; never 0.
func settingsHash(settings []Setting) uint64 {
	ordered := slices.SortedFunc(slices.Values(settings), func(a, b Setting) int { return cmp.Compare(a.Name, b.Name) })
	h := xxhash.New()
	for _, s := range ordered {
		fmt.Fprintf(h, "%q=%q\n", s.Name, s.Value) // never fails
	}
	return max(h.Sum64(), 1)
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

// maxSettings bounds the encoded settings of a peer, in bytes.
const maxSettings = 1 << 20

// compareSettings is called if the hashes of the members' settings differ. It gathers the settings
// of all members, and returns the difference as an ErrSettings. All members call it, and all that get
// the settings return the same difference.
func (h *heldState) compareSettings(ctx context.Context, s *Session) error {
	mine, err := json.Marshal(h.settings)
	if err == nil && len(mine) > maxSettings {
		err = fmt.Errorf("they have %d bytes, want at most %d", len(mine), maxSettings)
	}
	if err != nil {
		return abort(s, fmt.Errorf("tell the settings: %w", err))
	}
	texts, err := gatherBytes(ctx, s, mine)
	if err != nil {
		return err
	}
	all := make([][]Setting, len(texts))
	for rank, text := range texts {
		if err := json.Unmarshal(text, &all[rank]); err != nil {
			return abort(s, fmt.Errorf("settings of %s: %w", s.View.Members[rank].ID.Short(), err))
		}
	}
	why := disagreement(all, s.names())
	if why == "" {
		why = "their hashes are not equal"
	}
	return s.mismatch(why)
}

// mismatch logs how the members of a session differ, and returns it as an ErrSettings.
func (s *Session) mismatch(why string) error {
	s.group.Sessions().Emit(s.View.Epoch, 0, event.Mismatch{Reason: why})
	return fmt.Errorf("%w: %w", ErrSettings, mistakef("%s", why))
}

// gatherBytes gathers the byte strings of all members, by rank. Lengths differ, so all are padded
// to the longest.
func gatherBytes(ctx context.Context, s *Session, mine []byte) ([][]byte, error) {
	n := s.Comm.Size()
	lengths := make([]int64, n)
	if err := collective.AllGather(ctx, s.Comm, lengths, []int64{int64(len(mine))}); err != nil {
		return nil, err
	}
	// All ranks get the same lengths, so all make the same decision.
	most := slices.Max(lengths)
	if slices.Min(lengths) < 0 || most > maxSettings {
		return nil, abort(s, fmt.Errorf("members announce settings of %d to %d bytes, want 0 to %d", slices.Min(lengths), most, maxSettings))
	}
	padded, gathered := make([]byte, most), make([]byte, most*int64(n))
	copy(padded, mine)
	if err := collective.AllGather(ctx, s.Comm, gathered, padded); err != nil {
		return nil, err
	}
	out := make([][]byte, n)
	for rank := range out {
		begin := int64(rank) * most
		out[rank] = gathered[begin : begin+lengths[rank]]
	}
	return out, nil
}
