package rendezvous

import (
	"strings"
	"testing"
)

func TestParseName(t *testing.T) {
	for text, want := range map[string]Name{
		"dns:mnist":                         {"mnist", 7473, ""},
		"dns:mnist.train.svc.cluster.local": {"mnist.train.svc.cluster.local", 7473, ""},
		"dns:a.b.:80":                       {"a.b.", 80, ""},
		"dns:a@192.0.2.1":                   {"a", 7473, "192.0.2.1:53"},
		"dns:a:80@192.0.2.1:8600":           {"a", 80, "192.0.2.1:8600"},
		"dns:a@2001:db8::1":                 {"a", 7473, "[2001:db8::1]:53"},
		"dns:a@[2001:db8::1]:8600":          {"a", 7473, "[2001:db8::1]:8600"},
	} {
		if got, err := ParseName(text); err != nil || got != want {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "dns:", "mnist", "dns:a b", "dns:a:0", "dns:a:65536", "dns:a:b", "dns:a@", "dns:a@b", "dns:-a", "dns:a:", "dns:" + strings.Repeat("a", 254), "dns:a\n"} {
		if got, err := ParseName(text); err == nil || strings.Contains(err.Error(), "\n") || len(err.Error()) > 200 {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
}

// FuzzParseName checks that every accepted name has valid parts.
func FuzzParseName(f *testing.F) {
	f.Add("dns:mnist:7473@127.0.0.1:53")
	f.Fuzz(func(t *testing.T, text string) {
		n, err := ParseName(text)
		if err == nil && (n.Host == "" || n.Port < 1 || n.Port > 65535 || strings.ContainsAny(n.Host+n.Server, " \n@/")) {
			t.Errorf("%q: %+v", text, n)
		}
	})
}
