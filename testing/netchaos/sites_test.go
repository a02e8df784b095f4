package netchaos

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/launch"
	"github.com/elrun/elrun/testing/process"
)

const (
	// siteLink is the rate between two sites, in Mbit/s, which all their hosts share.
	siteLink = 50
	// sitesVariable is the environment variable that says how many elements are summed, and how often.
	sitesVariable = "NETCHAOS_SITES"
)

// twoSites creates two sites: hosts 0 and 2, and hosts 1 and 3. One slow link connects the sites.
func twoSites(t *testing.T) *lab {
	t.Helper()
	l := newLab(t, 4)
	if _, err := exec.LookPath("tc"); err != nil {
		missing(t, "no tc: install it (Debian: apt-get install iproute2)")
	}
	command(t, `link add br1 type bridge mcast_snooping 0
link set br1 up
link add wan0 type veth peer name wan1
link set wan0 master br0 up
link set wan1 master br1 up
link set p1 master br1
link set p3 master br1
`, "ip", "-n", l.hub, "-batch", "-")
	for _, dev := range []string{"wan0", "wan1"} {
		command(t, fmt.Sprintf("qdisc add dev %s root tbf rate %dmbit burst 64kb latency 200ms\n", dev, siteLink),
			"ip", "netns", "exec", l.hub, "tc", "-batch", "-")
	}
	return l
}

// crossed returns the number of bytes that the first site has sent to the second.
func (l *lab) crossed(t *testing.T) int {
	t.Helper()
	out := command(t, "", "ip", "netns", "exec", l.hub, "cat", "/sys/class/net/wan0/statistics/tx_bytes")
	n, err := strconv.Atoi(strings.TrimSpace(out))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// If peers name their sites, a sum crosses the link between two sites once in each direction. If
// peers name no sites, the number of crossings depends on the order in which peers join. If peers
// of the two sites join alternately, the sum crosses three times. The long form checks how much
// time sites save.
func TestSites(t *testing.T) {
	l := twoSites(t)
	elements, rounds := times(1<<18, 1<<20), times(3, 9)
	turns := []int{0, 1, 2, 3}
	var median, crossed [3]float64
	for i, c := range []struct {
		labelled bool
		order    []int
	}{{false, turns}, {false, []int{0, 2, 1, 3}}, {true, turns}} {
		before := l.crossed(t)
		median[i] = sumAtSites(t, l, c.labelled, c.order, elements, rounds)
		crossed[i] = float64(l.crossed(t)-before) / float64(rounds+1) / float64(4*elements)
		t.Logf("sites are named: %t, hosts come in the order %v: a sum of %d bytes crosses %.2f times, and takes %.3f s",
			c.labelled, c.order, 4*elements, crossed[i], median[i])
	}
	if crossed[2] > 1.8 { // includes headers and retransmissions
		t.Errorf("a sum crosses %.2f times with sites, %.2f without", crossed[2], crossed[0])
	}
	ratio := median[0] / median[2]
	if t.Logf("%.2f times as long without sites, %.2f if hosts come by sites", ratio, median[1]/median[2]); flagged[bool]("long") && ratio < 1.3 {
		t.Errorf("%.2f times as long without sites, want at least 1.3", ratio)
	}
}

// sumAtSites runs a job with one peer on each host. The hosts join in the given order. sumAtSites returns the median time of a
// sum, in seconds.
func sumAtSites(t *testing.T, l *lab, labelled bool, order []int, elements, rounds int) float64 {
	t.Helper()
	env := []string{thenVariable + "=sites", fmt.Sprintf("%s=%d,%d", sitesVariable, elements, rounds)}
	j := process.NewJob(t)
	begin := func(host int, args ...string) *process.Process {
		args = append(append([]string{process.Elrun()}, args...), "-n", "1")
		if labelled {
			args = append(args, "--site", []string{"east", "west"}[host%2])
		}
		return j.Start(t, on(t, l.hosts[host], env, append(args, process.Self(t))...))
	}
	first := begin(0, "--name", j.Name, "--min-peers", "4")
	var ticket string
	process.Until(t, "a ticket", func() bool {
		out, err := exec.CommandContext(t.Context(), "ip", "netns", "exec", l.hosts[0].namespace, process.Elrun(), "ticket", j.Name).Output()
		ticket = strings.TrimSpace(string(out))
		return err == nil
	})
	all := []*process.Process{first}
	for n, host := range order[1:] {
		process.Until(t, "a place in the line", func() bool { return len(statusIn(t, l, j.Name).Members) > n })
		all = append(all, begin(host, "join", ticket, "--min-peers", "4"))
	}
	for host, p := range all {
		if status := p.Wait(t); status != 0 {
			t.Fatalf("elrun on host %d ends with status %d:\n%s", host, status, p.Out.String()+p.Err.String())
		}
	}
	found := regexp.MustCompile(`seconds (\[.*\])`).FindStringSubmatch(first.Out.String())
	var seconds []float64
	if found == nil || json.Unmarshal([]byte(found[1]), &seconds) != nil || len(seconds) != rounds {
		t.Fatalf("no times:\n%s", first.Out.String())
	}
	slices.Sort(seconds)
	return seconds[rounds/2]
}

// sumAgain is the role sites: it measures the time of a sum, several times.
func sumAgain(ctx context.Context) error {
	var elements, rounds int
	if _, err := fmt.Sscanf(os.Getenv(sitesVariable), "%d,%d", &elements, &rounds); err != nil {
		return fmt.Errorf("%s: %w", sitesVariable, err)
	}
	g, err := launch.Init(ctx)
	if err != nil {
		return err
	}
	defer g.Close()
	s, err := g.Sessions().Next(ctx, 0)
	for err == nil && s.Comm.Size() < 4 {
		s, err = g.Sessions().Next(ctx, s.View.Epoch)
	}
	if err != nil {
		return err
	}
	v, seconds := make([]float32, elements), []float64{}
	for round := range rounds + 1 {
		for i := range v {
			v[i] = 1
		}
		if err := collective.Barrier(ctx, s.Comm); err != nil {
			return err
		}
		begun := time.Now()
		if err := collective.AllReduce(ctx, s.Comm, v, v, collective.Sum[float32]); err != nil {
			return err
		}
		if slices.ContainsFunc(v, func(x float32) bool { return x != 4 }) {
			return fmt.Errorf("round %d: a wrong sum", round)
		}
		if round > 0 { // in the first round TCP's windows grow
			seconds = append(seconds, time.Since(begun).Seconds())
		}
	}
	text, err := json.Marshal(seconds)
	fmt.Println("seconds", string(text))
	return err
}

// statusIn returns the status of a job as elrun status reports it on the first host, or the zero value if it reports none.
func statusIn(t *testing.T, l *lab, job string) (s launch.Status) {
	out, err := exec.CommandContext(t.Context(), "ip", "netns", "exec", l.hosts[0].namespace, process.Elrun(), "status", job, "--json").Output()
	if err != nil || json.Unmarshal(out, &s) != nil {
		return launch.Status{}
	}
	return s
}
