package browser

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"iter"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/elrun/elrun/cmd/elrun/dashboard"
	"github.com/elrun/elrun/elastic/wish"
	"github.com/elrun/elrun/event/timeline"
	"github.com/elrun/elrun/launch"
)

func TestMain(m *testing.M) {
	flag.Bool("update", false, "write the pictures of docs/dashboard")
	os.Exit(m.Run())
}

// limit is how long a test may take before it counts as hanging.
const limit = 3 * time.Minute

// missing skips a test that lacks something, and fails it in CI.
func missing(t *testing.T, what string) {
	t.Helper()
	if os.Getenv("ELRUN_CI") != "" {
		t.Fatal(what)
	}
	t.Skip(what)
}

// tab is a page in a browser.
type tab struct {
	ctx context.Context

	mu     sync.Mutex
	faults []string // messages of the console, and exceptions
}

// openTab opens an address in a browser of its own.
func openTab(t *testing.T, address string, width, height int64, dark bool) *tab {
	t.Helper()
	path := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if found, err := exec.LookPath(name); err == nil && path == "" {
			path = found
		}
	}
	if path == "" {
		missing(t, "no chromium: install it (Debian: apt-get install chromium)")
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	t.Cleanup(cancel)
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.DisableGPU, chromedp.Env("TMPDIR="+t.TempDir()),
		chromedp.Flag("force-color-profile", "srgb"), chromedp.Flag("lang", "en-US"), chromedp.Flag("hide-scrollbars", true))
	ctx, end := chromedp.NewExecAllocator(ctx, options...)
	t.Cleanup(end)
	ctx, _ = chromedp.NewContext(ctx)
	t.Cleanup(func() {
		if err := chromedp.Cancel(ctx); err != nil { // the browser removes its files
			t.Errorf("close the browser: %v", err)
		}
	})
	b := &tab{ctx: ctx}
	if err := chromedp.Listen(ctx, b.listen); err != nil {
		t.Fatal(err)
	}
	scheme := "light"
	if dark {
		scheme = "dark"
	}
	call(t, b, log.Enable, cdp.Empty{})
	call(t, b, emulation.SetTimezoneOverride, emulation.SetTimezoneOverrideParams{TimezoneID: "UTC"})
	call(t, b, emulation.SetLocaleOverride, emulation.SetLocaleOverrideParams{Locale: "en-US"})
	call(t, b, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: width, Height: height, DeviceScaleFactor: 1})
	call(t, b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
	b.do(t, chromedp.Navigate(address))
	return b
}

// listen records what a page must not say.
func (b *tab) listen(ev any) {
	fault := ""
	switch e := ev.(type) {
	case *runtime.EventExceptionThrown:
		fault = e.ExceptionDetails.Text
		if x := e.ExceptionDetails.Exception; x != nil {
			fault += " " + x.Description
		}
	case *runtime.EventConsoleAPICalled:
		fault = fmt.Sprintf("console.%s %v", e.Type, e.Args)
	case *log.EventEntryAdded:
		fault = fmt.Sprintf("%s %s %s", e.Entry.Level, e.Entry.Text, e.Entry.URL)
	case *page.EventJavascriptDialogOpening:
		fault = "a dialog: " + e.Message
	}
	if fault != "" {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.faults = append(b.faults, fault)
	}
}

// do carries out actions.
func (b *tab) do(t *testing.T, steps ...chromedp.Action[chromedp.Void]) {
	t.Helper()
	if err := chromedp.Do(b.ctx, steps...); err != nil {
		t.Fatal(err)
	}
}

// run carries out an action, and returns its value.
func run[T any](t *testing.T, b *tab, a chromedp.Action[T]) T {
	t.Helper()
	v, err := chromedp.Run(b.ctx, a)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// call calls a command of the browser.
func call[P, R any](t *testing.T, b *tab, c cdp.Command[P, R], params P) R {
	t.Helper()
	v, err := chromedp.Call(b.ctx, c, params)
	if err != nil {
		t.Fatalf("%s: %v", c.Method, err)
	}
	return v
}

// eval returns the value of an expression in the page as text; a promise is awaited.
func (b *tab) eval(t *testing.T, expression string) string {
	t.Helper()
	return run(t, b, chromedp.Evaluate[string](`Promise.resolve(`+expression+`).then(String)`, chromedp.EvalAwaitPromise))
}

// until waits until an expression in the page is true. If another page comes meanwhile, it waits in that one.
func (b *tab) until(t *testing.T, expression string) {
	t.Helper()
	for {
		_, err := chromedp.Run(b.ctx, chromedp.Poll[chromedp.Void](expression, chromedp.WithPollingTimeout(limit)))
		if err == nil {
			return
		}
		if !strings.Contains(err.Error(), "Cannot find context") {
			t.Fatalf("until %s: %v", expression, err)
		}
	}
}

// drawn waits until the page has drawn what it knows.
func (b *tab) drawn(t *testing.T) {
	t.Helper()
	b.eval(t, `new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))`)
}

// check finds faults of the page: messages of the console, what scrolls sideways, and serious findings of axe.
func (b *tab) check(t *testing.T) {
	t.Helper()
	b.mu.Lock()
	faults := strings.Join(b.faults, "\n")
	b.mu.Unlock()
	if faults != "" {
		t.Errorf("the console says:\n%s", faults)
	}
	if wide := b.eval(t, `document.documentElement.scrollWidth - document.documentElement.clientWidth`); wide != "0" {
		t.Errorf("the page is %s pixels too wide", wide)
	}
	script, err := os.ReadFile(filepath.Join("..", "..", "data", "axe.min.js"))
	if err != nil {
		missing(t, "no data/axe.min.js: make test-browser fetches it by npm")
	}
	b.do(t, chromedp.Evaluate[chromedp.Void](string(script)))
	findings := b.eval(t, `axe.run().then((r) => r.violations.filter((v) => ["serious", "critical"].includes(v.impact))
		.map((v) => v.id + ": " + v.help + "\n  " + v.nodes.slice(0, 3).map((n) => n.html + " " + n.failureSummary).join("\n  ")).join("\n"))`)
	if findings != "" {
		t.Errorf("axe finds:\n%s", findings)
	}
}

// picture writes a picture of the whole page to docs/dashboard, with -update.
func (b *tab) picture(t *testing.T, name string) {
	t.Helper()
	if flag.Lookup("update").Value.String() != "true" {
		return
	}
	b.eval(t, `document.querySelector("header").style.position = "static"`) // a picture of the whole page has no top of the window
	png := run(t, b, chromedp.FullScreenshot(100))
	if err := os.WriteFile(filepath.Join("..", "..", "docs", "dashboard", name+".png"), png, 0o644); err != nil {
		t.Fatal(err)
	}
}

// madeUp is a job that shows the snapshots of a test.
type madeUp struct {
	next chan timeline.Snapshot
	end  chan struct{}

	mu   sync.Mutex
	acts []string
}

func newMadeUp() *madeUp {
	return &madeUp{next: make(chan timeline.Snapshot), end: make(chan struct{})}
}

func (m *madeUp) Watch(ctx context.Context) iter.Seq2[timeline.Snapshot, error] {
	return func(yield func(timeline.Snapshot, error) bool) {
		for {
			select {
			case s := <-m.next:
				if !yield(s, nil) {
					return
				}
			case <-m.end:
				yield(timeline.Snapshot{}, launch.ErrNoJob)
				return
			case <-ctx.Done():
				yield(timeline.Snapshot{}, ctx.Err())
				return
			}
		}
	}
}

func (*madeUp) Outcome(context.Context) string { return "stopped with status 0" }

func (m *madeUp) Find(context.Context) (dashboard.Actor, error) { return m, nil }

// act records an action.
func (m *madeUp) act(what string) (string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.acts = append(m.acts, what)
	return "asked: " + what, nil
}

func (m *madeUp) Scale(_ context.Context, n, launcher int) (string, error) {
	return m.act(fmt.Sprintf("scale %d %d", n, launcher))
}

func (m *madeUp) Kick(_ context.Context, peer string) (string, error) { return m.act("kick " + peer) }

func (m *madeUp) Ticket(_ context.Context, valid time.Duration) (launch.Ticket, error) {
	_, err := m.act("ticket " + valid.String())
	return launch.Ticket{Text: "elrun1.abcdef"}, err
}

func (m *madeUp) Checkpoint(_ context.Context, _ bool) (wish.Saved, error) {
	_, err := m.act("checkpoint")
	return wish.Saved{Step: 2200, Path: "/run/step-2200"}, err
}

func (m *madeUp) Stop(context.Context) (launch.Stopped, error) {
	_, err := m.act("stop")
	return launch.Stopped{}, err
}

// show serves the page of a job, opens it, and shows it a first snapshot.
func show(t *testing.T, job *madeUp, s timeline.Snapshot, width, height int64, dark bool) *tab {
	t.Helper()
	server, err := dashboard.New(job, "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	b := openTab(t, server.Link(), width, height, dark)
	job.next <- s
	b.until(t, `document.getElementById("step").textContent !== ""`)
	b.drawn(t)
	return b
}

// text returns a value as JavaScript.
func text(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
