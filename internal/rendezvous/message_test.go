package rendezvous

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

func TestMessages(t *testing.T) {
	for _, text := range []string{`{}`, `{"from":{"id":"a"}}`, `{"from":{"id":"a"},"ask":"x","stage":"x"}`, `{"from":{"name":"a"},"ask":"stage","stage":"seeking"}`,
		`{"from":{"id":"` + strings.Repeat("a", maxName+1) + `"},"ask":"stage","stage":"seeking"}`} {
		for _, m := range []interface{ check() error }{&question{}, &answer{}} {
			if err := read(strings.NewReader(text), m); !errors.Is(err, errMessage) {
				t.Errorf("%.60s: %v", text, err)
			}
		}
	}
	long := `{"from":{"id":"a"},"ask":"stage","stage":"seeking","ticket":"` + strings.Repeat("a", maxMessage) + `"}`
	if err := read(strings.NewReader(long), &answer{}); err == nil {
		t.Error("a message without end was read")
	}
}

// FuzzRead checks that every message that read accepts can be sent and read again.
func FuzzRead(f *testing.F) {
	f.Add([]byte(`{"from":{"name":"m-0","id":"x"},"stage":"running","ticket":"t","ask":"claim"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, m := range []interface{ check() error }{&question{}, &answer{}} {
			if read(strings.NewReader(string(b)), m) != nil {
				continue
			}
			if again, err := json.Marshal(m); err != nil || read(strings.NewReader(string(again)), m) != nil {
				t.Errorf("%q: %v", again, err)
			}
		}
	})
}
