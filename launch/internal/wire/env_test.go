package wire

import (
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/elrun/elrun/launch/spec"
)

// lookupIn returns a look-up function over variables as os/exec writes them.
func lookupIn(vars []string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		for _, v := range vars {
			if k, value, _ := strings.Cut(v, "="); k == name {
				return value, true
			}
		}
		return "", false
	}
}

func TestEnvironmentRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, spec.MaxPeers).Draw(t, "peers")
		want := Environment{
			Job:       rapid.StringMatching(`[a-zA-Z0-9_][a-zA-Z0-9_.-]{0,39}`).Draw(t, "job"),
			Index:     rapid.IntRange(0, n-1).Draw(t, "index"),
			Peers:     n,
			FD:        rapid.IntRange(3, 1000).Draw(t, "fd"),
			Transport: rapid.SampledFrom([]string{"auto", "p2p"}).Draw(t, "transport"),
			Site:      rapid.StringMatching(`[a-zA-Z0-9_.-]{0,32}`).Draw(t, "site"),
			Grace:     rapid.SampledFrom([]time.Duration{0, 1, 10 * time.Second, 2 * time.Hour}).Draw(t, "grace"),
			Listen:    rapid.SampledFrom([]string{"auto", "local", "192.0.2.1,::1,/ip4/192.0.2.2/tcp/7"}).Draw(t, "listen"),
		}
		got, ok, err := ParseEnvironment(lookupIn(want.List()))
		if err != nil || !ok || got != want {
			t.Fatalf("got %+v, %v, %v, want %+v", got, ok, err, want)
		}
	})
}

func TestEnvironmentAlone(t *testing.T) {
	if _, ok, err := ParseEnvironment(lookupIn([]string{"PATH=/bin"})); ok || err != nil {
		t.Errorf("got %v, %v, want no environment", ok, err)
	}
}

func TestEnvironmentBad(t *testing.T) {
	good := Environment{Job: "j", Index: 1, Peers: 2, FD: 3, Transport: "p2p", Listen: "auto"}.List()
	for i, v := range good {
		name, _, _ := strings.Cut(v, "=")
		rest := slices.Delete(slices.Clone(good), i, i+1)
		if _, _, err := ParseEnvironment(lookupIn(rest)); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("without %s: got %v, want an error that names it", name, err)
		}
	}
	for _, bad := range []string{"ELRUN_JOB=", "ELRUN_JOB=a/b", "ELRUN_INDEX=2", "ELRUN_INDEX=-1", "ELRUN_INDEX=x",
		"ELRUN_NP=0", "ELRUN_NP=5000", "ELRUN_FD=2", "ELRUN_FD=99999999", "ELRUN_TRANSPORT=pigeon", "ELRUN_LISTEN=here",
		"ELRUN_GRACE=", "ELRUN_GRACE=10", "ELRUN_GRACE=0s", "ELRUN_GRACE=-1s", "ELRUN_SITE=a b", "ELRUN_SITE=" + strings.Repeat("x", spec.MaxSite+1)} {
		if _, _, err := ParseEnvironment(lookupIn(append([]string{bad}, good...))); err == nil {
			t.Errorf("%s: no error", bad)
		}
	}
}

func TestJobName(t *testing.T) {
	for program, want := range map[string]string{
		"./train": "train-x1", "/a b/my prog.py": "my_prog.py-x1", "..": "job-x1", "-rf": "rf-x1", "é": "_-x1",
		strings.Repeat("a", 100): strings.Repeat("a", 37) + "-x1",
	} {
		got := spec.JobName(program, "x1")
		if got != want {
			t.Errorf("%q: got %q, want %q", program, got, want)
		}
		if err := spec.ValidJob(got); err != nil {
			t.Errorf("%q: %v", program, err)
		}
	}
	for _, bad := range []string{"", "-a", ".a", "a b", "a/b", "a\n", strings.Repeat("a", 41)} {
		if spec.ValidJob(bad) == nil {
			t.Errorf("%q is accepted as a name", bad)
		}
	}
}

func TestJobNameAlwaysValid(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		if err := spec.ValidJob(spec.JobName(rapid.String().Draw(t, "program"), "ab12c")); err != nil {
			t.Fatal(err)
		}
	})
}
