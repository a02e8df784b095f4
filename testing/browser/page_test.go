package browser

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/performance"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/elrun/elrun/cmd/elrun/dashboard"
	"github.com/elrun/elrun/cmd/elrun/summary"
	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/event/timeline"
)

// A job with a slow peer, a kill, a join and a stall: the page names the culprit and shows all of it, wide and light, narrow and dark.
func TestRunningJob(t *testing.T) {
	for _, c := range []struct {
		name          string
		width, height int64
		dark          bool
	}{{"running", 1400, 1000, false}, {"narrow", 400, 800, true}} {
		t.Run(c.name, func(t *testing.T) {
			job := newMadeUp()
			b := show(t, job, churned().job.Snapshot(), c.width, c.height, c.dark)
			for where, want := range map[string]string{
				"job": "mnist-boixb", "step": "step 470 / 2,000", "size": "view 3, 4 peers, 3 hosts", "state": "waits",
				"alert": "waiting 1.4 s for peer 2 (" + id(2) + ", lab3): has not entered the call, busy: reading shard 4; bucket 3 of 7",
			} {
				if got := b.eval(t, `document.getElementById(`+strconv.Quote(where)+`).textContent`); got != want {
					t.Errorf("%s: %q, want %q", where, got, want)
				}
			}
			if got := b.eval(t, `document.querySelectorAll("#peers tbody tr").length`); got != "5" {
				t.Errorf("%s rows of peers, want 5", got)
			}
			if got := b.eval(t, `document.querySelector("#peers tbody tr td:nth-child(2)").textContent`); got != id(3) {
				t.Errorf("the first peer of the table is %s, want %s, for which the others waited longest", got, id(3))
			}
			if got := b.eval(t, `document.getElementById("changes").textContent`); !strings.Contains(got, "lost peer 0 ("+id(0)+", lab1): exit, noticed after 35 ms") || !strings.Contains(got, "joined peer 4") {
				t.Errorf("changes: %s", got)
			}
			b.check(t)
			b.picture(t, c.name)
		})
	}
}

// The page of a report shows a job that has ended, from a file, and prints.
func TestReport(t *testing.T) {
	s := churned()
	s.train(30)
	s.finish()
	file := filepath.Join(t.TempDir(), "run.html")
	var out strings.Builder
	if err := dashboard.WriteReport(&out, s.job.Snapshot()); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(out.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	b := openTab(t, "file://"+file, 1400, 1000, false)
	b.until(t, `document.getElementById("step").textContent !== ""`)
	b.drawn(t)
	if got := b.eval(t, `document.getElementById("state").textContent + document.querySelectorAll("#menu, form button:not([hidden])").length`); !strings.HasPrefix(got, "finished") {
		t.Errorf("state %q", got)
	}
	if b.eval(t, `document.getElementById("menu") === null`) != "true" {
		t.Error("a report has actions")
	}
	b.check(t)
	call(t, b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Media: "print"})
	pdf := run(t, b, chromedp.PrintToPDF(chromedp.PDFPrintBackground()))
	if len(pdf) < 10000 {
		t.Errorf("printed %d bytes", len(pdf))
	}
	b.check(t)
}

// compared writes the page of a comparison: a job with changes, a slow one with another setting, and further runs.
func compared(t *testing.T, names ...string) (file string) {
	t.Helper()
	slow := newScene(2, "lab1", "lab3")
	slow.slow[1], slow.decay = 2, 200
	slow.train(300)
	other := slow.job.Snapshot()
	other.Job.Settings["lr"] = "0.05"
	runs := []summary.Run{{Job: churned().job.Snapshot()}, {Job: other}, {Job: newScene(1, "lab1").job.Snapshot()}}[:len(names)]
	for i := range runs {
		runs[i].Name = names[i]
	}
	var out strings.Builder
	if err := dashboard.WriteComparison(&out, runs); err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(t.TempDir(), "runs.html")
	if err := os.WriteFile(file, []byte(out.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// The page of a comparison has the charts of runs over each other, their goodput, results and settings, and can be used by the
// keyboard. One of the runs may have no step.
func TestCompare(t *testing.T) {
	for _, c := range []struct {
		picture, ends, settings string
		names                   []string
		width, height           int64
		dark                    bool
	}{
		{"compare", `four 0\.\d+ · two 0\.\d+`, "lr0.10.05", []string{"four", "two"}, 1400, 900, false},
		{"", `<b> 0\.\d+ · two 0\.\d+ · empty -`, "lr0.10.050.1", []string{"<b>", "two", "empty"}, 400, 800, true},
	} {
		t.Run(strings.Join(c.names, ","), func(t *testing.T) {
			b := openTab(t, "file://"+compared(t, c.names...), c.width, c.height, c.dark)
			b.until(t, `(document.getElementById("loss-now") || {}).textContent`)
			b.drawn(t)
			if got := b.eval(t, `document.getElementById("loss-now").textContent`); !regexp.MustCompile("^at the end: " + c.ends + "$").MatchString(got) {
				t.Errorf("loss: %q", got)
			}
			if got := b.eval(t, `document.querySelector("#settings tbody").textContent`); got != c.settings {
				t.Errorf("settings: %q", got)
			}
			if got := b.eval(t, `document.getElementById("goodputs").textContent`); !regexp.MustCompile(c.names[0] + `\d+ % · waiting.*two\d+ % · waiting`).MatchString(got) {
				t.Errorf("goodput: %q", got)
			}
			b.check(t)
			if c.picture != "" {
				b.picture(t, c.picture)
			}
			comparedByKeys(t, b)
			b.check(t)
		})
	}
}

// comparedByKeys moves the cursor of a comparison, and changes its axis and scale, by the keyboard.
func comparedByKeys(t *testing.T, b *tab) {
	t.Helper()
	shown := func(id string) string { return b.eval(t, `document.getElementById("`+id+`").toDataURL()`) }
	var reached []string
	for range 12 {
		b.do(t, chromedp.KeyEvent(kb.Tab))
		reached = append(reached, b.eval(t, `document.activeElement.id || document.activeElement.name || document.activeElement.tagName`))
	}
	for _, want := range []string{"axis", "log", "loss", "speed", "time"} {
		if !slices.Contains(reached, want) {
			t.Errorf("the Tab key does not reach %s but %v", want, reached)
		}
	}
	b.do(t, chromedp.Focus(chromedp.CSS("#loss")), chromedp.KeyEvent(kb.ArrowRight), chromedp.KeyEvent(kb.ArrowRight))
	b.until(t, `document.getElementById("loss-now").textContent.startsWith("at 6: ")`)
	b.do(t, chromedp.KeyEvent(kb.ArrowLeft))
	b.until(t, `document.getElementById("time-now").textContent.startsWith("at 1: ")`)
	linear := shown("loss")
	b.do(t, chromedp.Focus(chromedp.CSS("#log")), chromedp.KeyEvent(kb.Enter))
	b.drawn(t)
	if shown("loss") == linear {
		t.Error("the button does not change the scale")
	}
	bySteps := shown("speed")
	b.do(t, chromedp.Focus(chromedp.CSS(`input[name="axis"]:checked`)), chromedp.KeyEvent(kb.ArrowRight), chromedp.KeyEvent(kb.ArrowRight))
	b.until(t, `document.querySelector("input[name=axis]:checked").value === "time"`)
	b.drawn(t)
	if shown("speed") == bySteps {
		t.Error("the axis does not change")
	}
}

// 64 peers on 8 hosts have a row for each host, which opens by the keyboard. The time of scripts for a snapshot is reported.
func TestManyPeers(t *testing.T) {
	var hosts []string
	for i := range 8 {
		hosts = append(hosts, fmt.Sprintf("node%02d", i+1))
	}
	s := newScene(64, hosts...)
	s.slow[21] = 1.5
	s.train(600)
	job := newMadeUp()
	b := show(t, job, s.job.Snapshot(), 1400, 1000, false)
	if got := b.eval(t, `document.querySelectorAll("#peers tbody tr").length`); got != "8" {
		t.Errorf("%s rows, want 8", got)
	}
	b.do(t, chromedp.Focus(chromedp.CSS(`#peers tbody button`)), chromedp.KeyEvent(kb.Enter))
	b.until(t, `document.querySelectorAll("#peers tbody tr").length === 16`)
	before := b.scripts(t)
	const frames = 20
	for range frames {
		s.train(10)
		job.next <- s.job.Snapshot()
		b.until(t, fmt.Sprintf(`document.getElementById("step").textContent.startsWith("step %s ")`, b.eval(t, fmt.Sprintf(`(%d).toLocaleString("en-US")`, s.steps))))
		b.drawn(t)
	}
	t.Logf("scripts take %.1f ms for each snapshot of 64 peers", (b.scripts(t)-before)/frames*1000)
	if got := b.eval(t, `document.activeElement.dataset.host`); got == "undefined" {
		t.Error("the focus is lost when a snapshot comes")
	}
	b.check(t)
	b.picture(t, "many")
}

// scripts returns the seconds that scripts have taken.
func (b *tab) scripts(t *testing.T) (seconds float64) {
	t.Helper()
	call(t, b, performance.Enable, performance.EnableParams{})
	for _, m := range call(t, b, performance.GetMetrics, cdp.Empty{}).Metrics {
		if m.Name == "ScriptDuration" {
			seconds = m.Value
		}
	}
	return seconds
}

// Everything can be done by the keyboard alone.
func TestKeyboard(t *testing.T) {
	job := newMadeUp()
	b := show(t, job, churned().job.Snapshot(), 1000, 800, false)
	var reached []string
	for range 40 {
		b.do(t, chromedp.KeyEvent(kb.Tab))
		reached = append(reached, b.eval(t, `document.activeElement.id || document.activeElement.name || document.activeElement.tagName`))
	}
	for _, want := range []string{"menu", "axis", "log", "timeline", "changes", "messages"} {
		if !slices.Contains(reached, want) {
			t.Errorf("the Tab key does not reach %s but %v", want, reached)
		}
	}
	shown := func() string { return b.eval(t, `document.getElementById("timeline").toDataURL()`) }
	all := shown()
	b.do(t, chromedp.Focus(chromedp.CSS("#timeline")), chromedp.KeyEvent("+"))
	b.drawn(t)
	if shown() == all {
		t.Error("+ does not zoom the timeline")
	}
	b.do(t, chromedp.KeyEvent("0"))
	b.drawn(t)
	if shown() != all {
		t.Error("0 does not show all again")
	}
	b.do(t, chromedp.Focus(chromedp.CSS("#menu")), chromedp.KeyEvent(kb.Enter), chromedp.Focus(chromedp.CSS(`form[data-action="scale"] input`)), chromedp.KeyEvent("3"), chromedp.KeyEvent(kb.Enter))
	b.until(t, `document.getElementById("answer").textContent === "asked: scale 3 0"`)
	b.check(t)
}

// Texts of peers stay texts.
func TestHostileTexts(t *testing.T) {
	const text = `<img src=x onerror=alert(1)></td></script><script>alert(2)</script>`
	s := newScene(2, text)
	s.train(5)
	s.add(event.NoPeer, event.Note{Text: text})
	s.stall(1, 900)
	job := newMadeUp()
	b := show(t, job, s.job.Snapshot(), 1000, 800, false)
	if got := b.eval(t, `document.querySelectorAll("img, td script, li script").length`); got != "0" {
		t.Errorf("%s elements of others", got)
	}
	if got := b.eval(t, `document.getElementById("messages").textContent`); !strings.Contains(got, text) {
		t.Errorf("messages: %s", got)
	}
	b.check(t)
}

// The page tells the end of the job, and keeps what it knew.
func TestEnd(t *testing.T) {
	job := newMadeUp()
	b := show(t, job, churned().job.Snapshot(), 1000, 800, true)
	close(job.end)
	b.until(t, `document.getElementById("alert").textContent === "stopped with status 0"`)
	if got := b.eval(t, `document.getElementById("state").textContent`); got != "ended" {
		t.Errorf("state %q", got)
	}
	b.check(t)
}

// The script of the page makes of a shortened snapshot and the one before what package timeline makes of them.
func TestAfter(t *testing.T) {
	s := churned()
	s.stall(2, 0)
	job := newMadeUp()
	before := s.job.Snapshot()
	b := show(t, job, before, 1000, 800, false)
	random := rand.New(rand.NewPCG(3, 4))
	for range 8 {
		s.train(1 + random.IntN(120))
		next := s.job.Snapshot()
		short := timeline.Since(next, before.Step)
		if _, fits := timeline.After(short, before); fits {
			joined := b.eval(t, `import("/model.js").then((m) => JSON.stringify(m.after(`+text(t, before)+`, `+text(t, short)+`)))`)
			var got, want any
			if err := json.Unmarshal([]byte(joined), &got); err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal([]byte(text(t, next)), &want); err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, want) {
				t.Fatalf("step %d: the script makes another snapshot", next.Step)
			}
		}
		before = next
	}
}
