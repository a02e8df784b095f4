package metrics

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/event/timeline"
)

// snapshot returns the state of a job of two peers, of which one was started again, after more events of the
// other.
func snapshot(more ...event.Body) timeline.Snapshot {
	j := timeline.New()
	at := time.Unix(1.8e9, 0)
	add := func(peer string, index int, epoch uint64, step int64, b event.Body) {
		j.Add(event.Event{Time: at, Peer: peer, Index: index, Epoch: epoch, Step: step, Body: b})
	}
	member := func(id string, index, pid int) {
		add(id, index, 0, 0, event.Member{Who: id, WhoIndex: index, Host: "lab \"1\"", Launcher: "l", PID: pid, Began: at})
	}
	stepped := func(id string, index int, n int64) {
		add(id, index, 1, n, event.Step{Microbatches: [][2]int{{index, index + 1}}, ShareSamples: 16, Samples: 32, Loss: 0.5, ComputeMS: 60, StepMS: 100,
			Times: event.Times{Began: at.Add(-100 * time.Millisecond), WaitMS: 40}, LR: 0.1})
	}
	add("", event.NoPeer, 0, 0, event.Job{Job: "a-job", Launcher: "l", Program: "train", Elrun: "1.2.3"})
	member("aaa", 0, 1)
	member("bbb", 1, 2)
	add("aaa", 0, 1, 0, event.View{Members: []string{"aaa", "bbb"}, Reason: "start"})
	at = at.Add(time.Second)
	stepped("aaa", 0, 1)
	stepped("bbb", 1, 1)
	add("aaa", 0, 0, 0, event.Usage{CPUS: 2, RSS: 1 << 20, Sent: map[string]int64{"direct": 10}, Received: map[string]int64{"direct": 20}})
	at = at.Add(time.Second)
	add("bbb", 1, 0, 0, event.Exit{PID: 2, Signal: 9, Status: -1})
	add("aaa", 0, 2, 0, event.Lost{Who: "bbb", Cause: "exit"})
	member("ccc", 1, 3)
	add("aaa", 0, 3, 0, event.View{Members: []string{"aaa", "ccc"}, Reason: "join"})
	for _, b := range more {
		add("aaa", 0, 3, 2, b)
	}
	return j.Snapshot()
}

// get returns what a server answers, as text or with the accepted type.
func get(t *testing.T, s *Server, accept string) (string, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.Addr()+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept", accept)
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("status %d, %v: %s", res.StatusCode, err, b)
	}
	return string(b), res.Header.Get("Content-Type")
}

func TestServe(t *testing.T) {
	s, err := Serve("127.0.0.1:0", func() (timeline.Snapshot, bool) { return snapshot(), true })
	if err != nil {
		t.Fatal(err)
	}
	text, kind := get(t, s, "")
	if !strings.HasPrefix(kind, "text/plain") {
		t.Errorf("type %q", kind)
	}
	for _, want := range []string{
		`elrun_build_info{version="1.2.3"} 1`, `elrun_job_info{exact="false",name="a-job",program="train"} 1`,
		"elrun_job_start_timestamp_seconds 1.8e+09", "elrun_steps_total 1\n", "elrun_samples_total 32\n", "elrun_loss 0.5\n", "elrun_members 2\n", "elrun_quorum 1\n",
		`elrun_peers_lost_total{cause="exit"} 1`, `elrun_view_changes_total{reason="join"} 1`,
		`elrun_peer_info{host="lab \"1\"",id="ccc",peer="1",rank="1",site=""} 1`,
		`elrun_peer_samples_total{peer="1"} 16`, `elrun_peer_step_seconds_count{peer="1"} 1`, `elrun_peer_step_seconds_bucket{peer="0",le="0.1"} 1`,
		`elrun_peer_sent_bytes_total{path="direct",peer="0"} 10`, `elrun_peer_cpu_seconds_total{peer="0"} 2`,
		`elrun_peer_state{peer="1",state="running"} 1`, `elrun_time_seconds_total{use="useful"} `, "go_goroutines ", "process_start_time_seconds ",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	if n := strings.Count(text, `peer="0"`); n > 60 {
		t.Errorf("%d series for a peer, want at most 60", n)
	}
	if text, kind := get(t, s, "application/openmetrics-text;version=1.0.0"); !strings.HasPrefix(kind, "application/openmetrics-text") || !strings.HasSuffix(text, "# EOF\n") {
		t.Errorf("type %q, text %q", kind, text[max(0, len(text)-100):])
	}
	if _, err := Serve(s.Addr(), nil); err == nil || !strings.Contains(err.Error(), "choose another port") {
		t.Errorf("a second server: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// After the end of the launcher's loop there are no figures of the job.
func TestServeWithoutJob(t *testing.T) {
	s, err := Serve("127.0.0.1:0", func() (timeline.Snapshot, bool) { return timeline.Snapshot{}, false })
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if text, _ := get(t, s, ""); strings.Contains(text, "elrun_") || !strings.Contains(text, "go_goroutines") {
		t.Errorf("got %s", text)
	}
}

// A client that asks without end cannot hold up the launcher: it is answered a few times at once.
func TestServeBusy(t *testing.T) {
	asked, goOn := make(chan struct{}), make(chan struct{})
	s, err := Serve("127.0.0.1:0", func() (timeline.Snapshot, bool) {
		asked <- struct{}{}
		<-goOn
		return timeline.Snapshot{}, false
	})
	if err != nil {
		t.Fatal(err)
	}
	ask := func(want int) {
		res, err := http.Get("http://" + s.Addr() + "/metrics")
		if err != nil {
			t.Error(err)
			return
		}
		if _ = res.Body.Close(); res.StatusCode != want {
			t.Errorf("status %d, want %d", res.StatusCode, want)
		}
	}
	var clients sync.WaitGroup
	for range maxAtOnce {
		clients.Go(func() { ask(http.StatusOK) })
		<-asked
	}
	ask(http.StatusServiceUnavailable)
	close(goOn)
	clients.Wait()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// Garbage on the port is refused, and disturbs nobody.
func TestServeGarbage(t *testing.T) {
	s, err := Serve("127.0.0.1:0", func() (timeline.Snapshot, bool) { return snapshot(), true })
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for text, want := range map[string]string{"\x16\x03\x01garbage\r\n\r\n": "400", "POST /metrics HTTP/1.1\r\nHost: x\r\n\r\n": "405", "GET /other HTTP/1.1\r\nHost: x\r\n\r\n": "404"} {
		conn, err := net.Dial("tcp", s.Addr())
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(conn, text) // the server may close the connection before it has all
		first, err := bufio.NewReader(conn).ReadString('\n')
		if _ = conn.Close(); err != nil || !strings.Contains(first, " "+want) {
			t.Errorf("%.20q: %q, %v, want %s", text, first, err, want)
		}
	}
	if text, _ := get(t, s, ""); !strings.Contains(text, "elrun_steps_total") {
		t.Errorf("got %s", text)
	}
}
