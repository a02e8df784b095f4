package rendezvous

import "testing"

// The ports of sources differ at each attempt, so that a reason with them would be told each time.
func TestWithoutSources(t *testing.T) {
	for text, want := range map[string]string{
		"DNS lookup of m: read udp 10.0.0.1:41234->10.0.0.53:53: i/o timeout": "DNS lookup of m: read udp 10.0.0.53:53: i/o timeout",
		"a: read tcp [::1]:2->[::1]:3: x; b: write tcp 1.2.3.4:5->6.7.8.9:10": "a: read tcp [::1]:3: x; b: write tcp 6.7.8.9:10",
		"dial tcp 10.0.0.5:7473: i/o timeout":                                 "dial tcp 10.0.0.5:7473: i/o timeout",
		"":                                                                    "",
	} {
		if got := withoutSources(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}
