package spec

import (
	"reflect"
	"strings"
	"testing"
)

func TestParseHook(t *testing.T) {
	got, err := ParseHook("lost,stall=mail -s a=b me")
	if want := (Hook{[]string{"lost", "stall"}, "mail -s a=b me"}); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	for text, want := range map[string]string{"": "as in", "lost": "as in", "=x": "as in", "lost= ": "as in", "lots=x": `no event "lots"`, "lost,=x": `no event ""`, "note=x": "no hooks"} {
		if _, err := ParseHook(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}
