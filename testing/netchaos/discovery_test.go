package netchaos

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/testing/process"
)

// bootstrapOn runs a bootstrap node on a host and returns its address.
func bootstrapOn(t *testing.T, h *host) string {
	t.Helper()
	p := process.Start(t, on(t, h, nil, process.Elrun(), "bootstrap", "--listen", h.addr, "--identity", filepath.Join(t.TempDir(), "key")))
	address := func() string {
		line, _, whole := strings.Cut(p.Out.String(), "\n")
		if !whole {
			return ""
		}
		return line
	}
	process.Until(t, "the address of the node", func() bool { return address() != "" })
	return address()
}

// A peer can join with a ticket when the only member that the ticket names has died. In each of the
// following tests there is only one way to find the other members. Here the way is multicast.
func TestFindByMulticast(t *testing.T) {
	parallel(t)
	findOthers(t, newJob(t, newLab(t, 4), settings{pace: groupPace, flags: []string{"--lan"}}), false)
}

func TestFindByTable(t *testing.T) {
	parallel(t)
	l := newLab(t, 5)
	flags := []string{"--dht", "--bootstrap", bootstrapOn(t, l.hosts[4])}
	findOthers(t, newJob(t, l, settings{pace: groupPace, flags: flags}), false)
}

// A peer can join with a ticket that names several members as long as one of these members lives.
func TestFindByAddresses(t *testing.T) {
	parallel(t)
	findOthers(t, newJob(t, newLab(t, 4), settings{pace: groupPace}), true)
}

// findOthers checks that a peer can join although the first member, which its ticket names, is
// dead. If fresh is set, the ticket also names the other members.
func findOthers(t *testing.T, j *job, fresh bool) {
	t.Helper()
	j.start(t, 1)
	ticket := j.ticket(t, 0)
	j.join(t, 1, 1, ticket)
	j.join(t, 2, 1, ticket)
	process.Until(t, "steps of three", func() bool {
		e := j.elruns[2].Read(t)
		return e.Step > 0 && e.StepEpoch == e.ViewEvent.Epoch && len(e.View.Members) == 3
	})
	if fresh {
		ticket = j.ticket(t, 0)
	}
	gone := time.Now()
	j.elruns[0].kill()
	process.Until(t, "a view without the ticket's peer", func() bool { return len(j.elruns[2].Read(t).View.Members) == 2 })
	begun := time.Now()
	j.join(t, 3, 1, ticket)
	process.Until(t, "the newcomer among three", func() bool { return len(j.elruns[3].Read(t).View.Members) == 3 })
	first, _ := process.First(j.elruns[3].Since(time.Time{}), func(event.Event, event.View) bool { return true })
	t.Logf("in the job %v after elrun join, %v after the death", first.Time.Sub(begun), first.Time.Sub(gone))
	j.finish(t)
}

// A peer that finds no member ends with lines that say why: no member has announced the job, or the
// bootstrap node does not answer.
func TestFindNobody(t *testing.T) {
	parallel(t)
	l := newLab(t, 3)
	j := newJob(t, l, settings{pace: groupPace})
	j.start(t, 1) // without --dht
	old := j.ticket(t, 0)
	j.elruns[0].kill()
	process.Until(t, "the end of its peer", func() bool { return len(j.peersOn(t, 0)) == 0 })
	node := bootstrapOn(t, l.hosts[2])
	nobody := strings.Replace(node, l.hosts[2].addr, l.hosts[1].addr, 1) // no node listens at this address
	for flags, want := range map[string][]string{
		node:   {"nobody has announced the job of this ticket", "nobody was found by --dht"},
		nobody: {"the job cannot be looked up: no bootstrap node answers", "does elrun bootstrap run there?", "nobody was found by --dht"},
	} {
		p := j.Start(t, on(t, l.hosts[1], j.set.env(), process.Elrun(), "join", old, "-n", "1", "--dht", "--bootstrap", flags, process.Self(t)))
		if status := p.Wait(t); status != 1 {
			t.Errorf("status %d", status)
		}
		p.Expect(t, want...)
	}
}

// The commands about finding members in docs/hosts.md have the documented effect. They run in a
// folder that has a program named train, as in the document.
func TestDocsFindingMembers(t *testing.T) {
	parallel(t)
	text, err := os.ReadFile("../../docs/hosts.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## Finding members\n")
	section, _, _ = strings.Cut(section, "\n## ")
	l := newLab(t, 1)
	command(t, "", "ip", "-n", l.hosts[0].namespace, "addr", "add", "192.0.2.1/24", "dev", "eth0")
	d := &documented{host: l.hosts[0], dir: t.TempDir(), bin: t.TempDir(), job: process.NewJob(t)}
	set := settings{pace: groupPace}
	script := fmt.Sprintf("#!/bin/sh\n%s exec %s\n", strings.Join(append(set.env(), roleVariable+"=train", hostVariable+"=host0"), " "), process.Self(t))
	if err := os.WriteFile(filepath.Join(d.dir, "train"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(process.Elrun(), filepath.Join(d.bin, "elrun")); err != nil {
		t.Fatal(err)
	}
	ran := 0
	for line := range strings.Lines(section) {
		if text, indented := strings.CutPrefix(strings.TrimSpace(line), "elrun "); indented && strings.HasPrefix(line, "    ") {
			d.run(t, text)
			ran++
		}
	}
	if ran != 8 {
		t.Errorf("%d commands", ran)
	}
}

// documented runs commands of the documentation on a host, in the folder dir. The folder bin has
// elrun.
type documented struct {
	host     *host
	dir, bin string
	job      *process.Job
	name     string // of the job that was started last
}

// run runs elrun with the words that follow "elrun " in text. A command that does not end runs in
// the background, and run waits for its effect.
func (d *documented) run(t *testing.T, text string) {
	t.Helper()
	script := fmt.Sprintf("cd %s && PATH=%s:$PATH && %%s elrun %s", d.dir, d.bin, text)
	verb, _, _ := strings.Cut(text, " ")
	if verb == "ticket" {
		d.host.inside(t, "", "sh", "-c", fmt.Sprintf(script, ""))
		return
	}
	p := d.job.Start(t, on(t, d.host, nil, "/bin/sh", "-c", fmt.Sprintf(script, "exec")))
	switch _, flag, _ := strings.Cut(text, "--name "); {
	case verb == "bootstrap":
		p.Expect(t, "the node runs")
	case verb == "join":
		d.until(t, 3)
	default:
		d.name, _, _ = strings.Cut(flag, " ")
		d.until(t, 2)
	}
}

// until waits until the job has n members.
func (d *documented) until(t *testing.T, n int) {
	t.Helper()
	process.Until(t, fmt.Sprintf("%d members of %s", n, d.name), func() bool {
		_, status, _ := strings.Cut(d.host.inside(t, "", "sh", "-c", process.Elrun()+" status "+d.name+" --json || true"), `"members"`)
		return strings.Count(status, `"rank"`) == n
	})
}
