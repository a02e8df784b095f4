package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"net/http/cookiejar"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/elrun/elrun/event/timeline"
	"github.com/elrun/elrun/testing/process"
)

// openedPage is the page of a job, opened by its link.
type openedPage struct {
	client http.Client
	base   string
	lines  *bufio.Scanner
}

// openPage opens the link of a page, and its stream.
func openPage(t *testing.T, link string) *openedPage {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	base, _, _ := strings.Cut(link, "/login")
	p := &openedPage{client: http.Client{Jar: jar, Transport: &http.Transport{}}, base: base}
	t.Cleanup(p.client.CloseIdleConnections)
	ctx, cancel := context.WithTimeout(context.Background(), process.Limit)
	t.Cleanup(cancel)
	get := func(at string) *http.Response {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := p.client.Do(r)
		if err != nil || res.StatusCode != http.StatusOK {
			t.Fatalf("%s: %v, %v", at, res, err)
		}
		return res
	}
	_ = get(link).Body.Close()
	events := get(base + "/events").Body
	t.Cleanup(func() { _ = events.Close() })
	p.lines = bufio.NewScanner(events)
	p.lines.Buffer(nil, 16<<20)
	return p
}

// until reads messages of a kind until one fits.
func (p *openedPage) until(t *testing.T, kind string, fits func(data string) bool) {
	t.Helper()
	last := ""
	for p.lines.Scan() {
		line := p.lines.Text()
		if name, is := strings.CutPrefix(line, "event: "); is {
			last = name
		}
		if data, is := strings.CutPrefix(line, "data: "); is && last == kind && fits(data) {
			return
		}
	}
	t.Fatalf("the stream ended before a fitting %s: %v", kind, p.lines.Err())
}

// The pages of elrun --dashboard and elrun dashboard show the job that trains, one of them stops it, and both tell its end.
func TestDashboard(t *testing.T) {
	program, data := mnist(t)
	e := &elrun{job: process.NewJob(t)}
	e.launch(t, []string{"-n", "2", "--name", e.job.Name, "--listen", "local", "--dashboard", "--", program, "--data", data, "--steps", "1000000"})
	link := regexp.MustCompile(`http://127\.0\.0\.1:\d+/login\?t=\w+`)
	e.Until(t, "the link", func() bool { return link.MatchString(e.Err.String()) })
	own := openPage(t, link.FindString(e.Err.String()))
	trains := func(data string) bool {
		var s timeline.Snapshot
		if err := json.Unmarshal([]byte(data), &s); err != nil {
			t.Fatal(err)
		}
		return s.Step > 0 && s.Job.Job == e.job.Name && len(s.Peers) == 2 && s.Peers[0].Strip.Uses != ""
	}
	own.until(t, "delta", trains)
	other := process.Start(t, exec.Command(process.Elrun(), "dashboard", e.job.Name))
	other.Until(t, "the link", func() bool { return link.MatchString(other.Out.String()) })
	page := openPage(t, link.FindString(other.Out.String()))
	page.until(t, "snapshot", trains)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, page.base+"/do/stop", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	res, err := page.client.Do(r)
	if err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("stop: %v, %v", res, err)
	}
	_ = res.Body.Close()
	if status := e.Wait(t); status != 0 {
		t.Errorf("the job ended with status %d", status)
	}
	own.until(t, "end", func(string) bool { return true })
	page.until(t, "end", func(text string) bool { return strings.Contains(text, "stopped with status 0") })
	other.Signal(t, os.Interrupt)
	if status := other.Wait(t); status != 0 {
		t.Errorf("elrun dashboard ended with status %d", status)
	}
}
