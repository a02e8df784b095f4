package top_test

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/charmbracelet/x/ansi"
	"pgregory.net/rapid"

	"github.com/elrun/elrun/cmd/elrun/top"
	"github.com/elrun/elrun/event/timeline"
	"github.com/elrun/elrun/internal/printable"
	"github.com/elrun/elrun/launch"
)

// opened returns a Model that shows a snapshot, after keys.
func opened(s timeline.Snapshot, keys ...string) *top.Model {
	m := top.New(time.UTC)
	m.Open("mnist-boixb")
	for i := range 30 { // the sparklines of a peer need a past
		s.Peers[0].CPU = 0.5 + float64(i%5)/10
		m.Show(s, noon())
	}
	press(m, keys...)
	return m
}

// press presses keys.
func press(m *top.Model, keys ...string) {
	for _, k := range keys {
		m.Press(k)
	}
}

// after returns m after a function.
func after(m *top.Model, f func(m *top.Model)) *top.Model {
	f(m)
	return m
}

// finished is the end of a job.
func finished() top.End {
	return top.End{Ended: &launch.Ended{Began: noon().Add(-5 * time.Minute), At: noon(), Outcome: "finished", Result: "accuracy 0.9669, loss 0.1175, sha256 bfbd6839"}}
}

// frames returns the frames that testdata and docs/top.md have, by their names.
func frames() map[string]string {
	all := make(map[string]string)
	add := func(name string, m *top.Model, width, height int) { all[name] = m.Frame(width, height).Text() }
	add("job", opened(mnist()), 80, 24)
	add("stalled", opened(stalled()), 80, 24)
	add("wide", opened(stalled()), 200, 60)
	add("small", opened(stalled()), 40, 15)
	add("hostile", opened(hostile()), 80, 24)
	add("crowd", opened(crowd(64), "down", "G"), 80, 24)
	add("sorted", opened(mnist(), "s", "s", "s"), 80, 24)
	add("found", opened(mnist(), "/", "l", "a", "b", "1"), 80, 24)
	add("peer", opened(mnist(), "end", "up", "up", "enter"), 80, 24)
	add("replaced", opened(mnist(), "down", "down", "enter"), 80, 30)
	add("hosts", opened(mnist(), "h"), 80, 24)
	add("peers of a host", opened(mnist(), "h", "end", "enter"), 80, 24)
	add("events", opened(mnist(), "e"), 80, 24)
	add("event", opened(mnist(), "e", "down", "down", "enter"), 80, 24)
	add("links", opened(mnist(), "l"), 80, 24)
	add("commands", opened(mnist(), "down", "c"), 80, 24)
	add("help", opened(mnist(), "?"), 80, 24)
	add("ended", after(opened(mnist()), func(m *top.Model) { m.End(finished()) }), 80, 24)
	add("gone", after(opened(mnist()), func(m *top.Model) { m.End(top.End{Reason: "job mnist-boixb: no elrun of it runs on this host"}) }), 80, 24)
	add("silent", after(opened(mnist()), func(m *top.Model) { m.Tick(noon().Add(7 * time.Second)) }), 80, 24)
	add("no quorum", after(opened(mnist()), func(m *top.Model) {
		s := mnist()
		s.Quorum = &timeline.Quorum{State: "lost", Present: 2, Needed: 3}
		m.Show(s, noon())
	}), 80, 24)
	add("jobs", after(top.New(time.UTC), func(m *top.Model) { m.Jobs(listed(), "") }), 80, 24)
	add("no jobs", after(top.New(time.UTC), func(m *top.Model) { m.Jobs(nil, "") }), 60, 8)
	add("first", after(top.New(time.UTC), func(m *top.Model) { m.Open("mnist") }), 80, 6)
	add("still", after(opened(stalled()), func(m *top.Model) { m.Still = true }), 80, 24)
	add("plain", after(opened(stalled()), func(m *top.Model) { m.Still, m.ASCII = true, true }), 80, 24)
	all["styled"] = strings.ReplaceAll(opened(stalled()).Frame(80, 24).Styled(), "\x1b", "ESC") + "\n"
	return all
}

// The frames are those of testdata. With -update they are written there, and into docs/top.md.
func TestFrames(t *testing.T) {
	for name, got := range frames() {
		path := filepath.Join("testdata", strings.ReplaceAll(name, " ", "-")+".txt")
		if updating() {
			if err := os.WriteFile(path, []byte(got), 0o666); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil || got != string(want) {
			t.Errorf("%s: %v; run go test ./cmd/elrun/top -update, and look at the difference; got\n%s", path, err, got)
		}
	}
}

// The screens of docs/top.md are frames.
func TestDocs(t *testing.T) {
	const path = "../../../docs/top.md"
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	all, seen := frames(), 0
	got := regexp.MustCompile("(?s)<!-- frame: ([a-z ]+) -->\n```\n.*?```\n").ReplaceAllStringFunc(string(text), func(block string) string {
		head, _, _ := strings.Cut(block, "\n")
		name := strings.TrimSuffix(strings.TrimPrefix(head, "<!-- frame: "), " -->")
		if all[name] == "" {
			t.Errorf("no frame is named %q", name)
		}
		seen++
		return head + "\n```\n" + all[name] + "```\n"
	})
	if updating() {
		if err := os.WriteFile(path, []byte(got), 0o666); err != nil {
			t.Fatal(err)
		}
	} else if got != string(text) {
		t.Error("the screens are not those of the code: run go test ./cmd/elrun/top -update")
	}
	if seen < 8 {
		t.Errorf("%d screens", seen)
	}
}

// numbers draws numbers as a log may have them.
func numbers() *rapid.Generator[float64] {
	return rapid.OneOf(rapid.Float64(), rapid.Float64Range(0, 1e4), rapid.SampledFrom([]float64{0, -1, math.Inf(1), math.NaN(), math.MaxFloat64}))
}

// disturb changes a snapshot to one that nobody expects.
func disturb(t *rapid.T, s *timeline.Snapshot) {
	name := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"", "ok", "日本語日本語", "👩‍👩‍👧", "e\u0301", "\x1b[2J", "❤️❤️", "\u115f\u1160", "🇩🇪🇩"}))
	n := numbers()
	for i := range s.Peers {
		p := &s.Peers[i]
		p.ID, p.Host, p.Site, p.Path, p.State = name.Draw(t, "id"), name.Draw(t, "host"), name.Draw(t, "site"), name.Draw(t, "path"), name.Draw(t, "state")
		p.SamplesPerS, p.CPU, p.Last.ComputeMS, p.Last.StepMS, p.Last.PredictedMS = n.Draw(t, "speed"), n.Draw(t, "cpu"), n.Draw(t, "compute"), n.Draw(t, "step"), n.Draw(t, "predicted")
		p.Share, p.RSS, p.Index = rapid.Int().Draw(t, "share"), rapid.Int64().Draw(t, "rss"), rapid.IntRange(-1, math.MaxInt).Draw(t, "index")
		p.WaitedFor.Call = time.Duration(rapid.Int64Range(0, math.MaxInt64).Draw(t, "waited"))
		p.Strip.Uses = name.Draw(t, "strip")
		p.Links = map[string]float64{name.Draw(t, "from"): n.Draw(t, "link")}
	}
	s.Loss, s.LeftMS, s.SamplesPerS, s.Goodput.Ratio = n.Draw(t, "loss"), n.Draw(t, "left"), n.Draw(t, "samples"), n.Draw(t, "ratio")
	s.Step, s.Of = rapid.Int64().Draw(t, "step"), rapid.Int64().Draw(t, "of")
	for i := range s.Messages {
		s.Messages[i].Text = name.Draw(t, "message")
	}
	if s.Stall != nil {
		s.Stall.Culprit, s.Stall.Phase, s.Stall.SinceMS = name.Draw(t, "culprit"), name.Draw(t, "phase"), n.Draw(t, "since")
	}
	for i := range s.Series.BySteps[0].Points {
		s.Series.BySteps[0].Points[i].Loss = n.Draw(t, "point")
	}
}

// Whatever a snapshot has, whichever keys are pressed: a frame has at most the lines and cells of its screen, and nothing that a
// terminal could take for a command.
func TestAnyFrame(t *testing.T) {
	snapshots := []func() timeline.Snapshot{mnist, stalled, hostile, func() timeline.Snapshot { return crowd(70) }, func() timeline.Snapshot { return timeline.Snapshot{} }}
	keys := rapid.SliceOfN(rapid.SampledFrom([]string{"up", "down", "pgdown", "end", "home", "enter", "esc", "s", "/", "h", "e", "l", "c", "?", "backspace", "é", "x", "space"}), 0, 12)
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.SampledFrom(snapshots).Draw(t, "snapshot")()
		if len(s.Peers) > 0 && len(s.Peers) < 10 && rapid.Bool().Draw(t, "disturb") {
			disturb(t, &s)
		}
		m := top.New(time.UTC)
		m.Still, m.ASCII = rapid.Bool().Draw(t, "still"), rapid.Bool().Draw(t, "ascii")
		m.Jobs(listed(), rapid.String().Draw(t, "reason"))
		if rapid.Bool().Draw(t, "open") {
			m.Open("mnist")
			m.Show(s, noon())
		}
		for _, key := range keys.Draw(t, "keys") {
			if a := m.Press(key); a.Kind == top.Open {
				m.Open(a.Job)
				m.Show(s, noon())
			}
		}
		width, height := rapid.IntRange(0, 220).Draw(t, "width"), rapid.IntRange(0, 70).Draw(t, "height")
		f := m.Frame(width, height)
		if len(f) > height {
			t.Fatalf("%d lines, want at most %d", len(f), height)
		}
		for _, l := range f {
			text := l.String()
			if n := max(ansi.StringWidth(text), ansi.StringWidthWc(text)); n > width {
				t.Fatalf("%d cells, want at most %d: %q", n, width, text)
			}
			if strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
				t.Fatalf("not printable: %q", text)
			}
		}
	})
}

// Keys of a list open and leave jobs, and screens are left for those from which they were reached.
func TestKeys(t *testing.T) {
	m := top.New(time.UTC)
	m.Jobs(listed(), "")
	press(m, "j", "h")
	a := m.Press("enter")
	if a != (top.Action{Kind: top.Open, Job: "mnist-boixb"}) {
		t.Fatalf("got %+v", a)
	}
	m.Open(a.Job)
	m.Show(mnist(), noon())
	const all = "- 6 peers, 1 ended, by W-FOR ---"
	for _, c := range []struct{ key, want string }{{"enter", "- peer ---"}, {"h", "- 3 hosts"}, {"e", "- 8 events"}, {"enter", "- event ---"}, {"?", "elrun top  keys"},
		{"esc", "- event ---"}, {"esc", "- 8 events"}, {"e", "- 3 hosts"}, {"enter", "- 1 peer by W-FOR with \"lab3\""}, {"esc", all}, {"c", "- commands"}, {"c", all}} {
		if m.Press(c.key); !strings.Contains(m.Frame(80, 24).Text(), c.want) {
			t.Fatalf("after %s, want %q:\n%s", c.key, c.want, m.Frame(80, 24).Text())
		}
	}
	if a := m.Press("esc"); a.Kind != top.List || !strings.Contains(m.Frame(80, 24).Text(), "- 3 jobs") {
		t.Errorf("got %+v:\n%s", a, m.Frame(80, 24).Text())
	}
	if press(m, "/", "q", "backspace", "c", "o", "enter"); !strings.Contains(m.Frame(80, 24).Text(), `- 1 job by JOB with "co"`) {
		t.Errorf("got\n%s", m.Frame(80, 24).Text())
	}
	if m.Press("q").Kind != top.Quit || m.Press("ctrl+c").Kind != top.Quit || m.Press("ctrl+z").Kind != top.Suspend {
		t.Error("keys that end top")
	}
}

// The figures of a peer that are remembered are bounded, and forgotten with the peer.
func TestRemembered(t *testing.T) {
	m := opened(mnist())
	for range 2000 {
		m.Show(mnist(), noon())
	}
	if n := m.Remembered(); n < 7*240 || n > 7*481 {
		t.Errorf("%d samples of 7 peers", n)
	}
	s := mnist()
	s.Peers = s.Peers[1:]
	before := m.Remembered() / 7
	if m.Show(s, noon()); m.Remembered() > 6*(before+1) {
		t.Errorf("%d samples of 6 peers", m.Remembered())
	}
}

// A Model is told what there is, and makes frames of it.
func ExampleModel() {
	m := top.New(time.UTC)
	m.Still = true
	m.Open("hello")
	m.Show(timeline.Snapshot{Epoch: 1, Progress: timeline.Progress{Step: 3, Of: 10}}, time.Time{})
	fmt.Print(m.Frame(40, 2).Text())
	// Output:
	// hello  RUNNING  epoch 1        step 3/10
	// goodput 0%
}

// The columns that elrun counts for its progress line, without the modules of this package, are never too few, and right for what the
// line has of its own.
func TestColumns(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := printable.Line(rapid.String().Draw(t, "text"))
		if got, want := printable.Columns(text), max(ansi.StringWidth(text), ansi.StringWidthWc(text)); got < want {
			t.Fatalf("%q: %d columns, want at least %d", text, got, want)
		}
	})
	for _, own := range []string{"[===---]  step 1/2  loss 0.5", "▁▂▃▄▅▆▇█"} {
		if got, want := printable.Columns(own), ansi.StringWidth(own); got != want {
			t.Errorf("%q: %d columns, want %d", own, got, want)
		}
	}
}
