package k8s

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/elrun/elrun/testing/dns"
	"github.com/elrun/elrun/testing/process"
)

// manifest is the part of a manifest of "elrun k8s" that the tests need.
type manifest struct {
	command []string
	key     string
}

// readManifest runs elrun k8s and reads the manifest.
func readManifest(t *testing.T, args ...string) (m manifest) {
	t.Helper()
	out, errs, status := process.Command(t, append([]string{"k8s"}, args...)...)
	if status != 0 {
		t.Fatalf("elrun k8s: %s", errs)
	}
	d := yaml.NewDecoder(strings.NewReader(out))
	for {
		var o struct {
			StringData map[string]string `yaml:"stringData"`
			Spec       struct {
				Template struct {
					Spec struct {
						Containers []struct {
							Command []string
						}
					}
				}
			}
		}
		err := d.Decode(&o)
		if errors.Is(err, io.EOF) {
			return m
		}
		if err != nil {
			t.Fatal(err)
		}
		if key, ok := o.StringData["key"]; ok {
			m.key = key
		}
		for _, c := range o.Spec.Template.Spec.Containers {
			m.command = c.Command
		}
	}
}

// pods are processes that act as the pods of one Job.
type pods struct {
	*process.Job
	manifest
	dns    *dns.Server
	net    string // first three bytes of the pods' addresses
	folder string
	there  map[int]netip.Addr // addresses in the DNS
}

// newPods prepares a job with the given numbers of peers and steps.
func newPods(t *testing.T, peers int, steps int64, pace string) *pods {
	t.Helper()
	p := &pods{Job: process.NewJob(t), dns: dns.Start(t, "127.0.0.1:0"), there: make(map[int]netip.Addr)}
	p.net = fmt.Sprintf("127.%d.%d", 64+rand.IntN(128), rand.IntN(256))
	p.Name = strings.ToLower(p.Name) // Kubernetes requires this
	var err error
	if p.folder, err = os.MkdirTemp("", "k"); err != nil { // a short path, because the paths of sockets begin with it
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(p.folder) })
	p.manifest = readManifest(t, "--name", p.Name, "--image", "x", "--peers", strconv.Itoa(peers), "--", process.Self(t), playWord, strconv.FormatInt(steps, 10), pace)
	if err := os.WriteFile(filepath.Join(p.folder, "key"), []byte(p.key), 0o400); err != nil {
		t.Fatal(err)
	}
	return p
}

// addr returns the address of the pod with an index.
func (p *pods) addr(index int) netip.Addr {
	return netip.MustParseAddr(fmt.Sprintf("%s.%d", p.net, index+1))
}

// publish sets the addresses of the job's name in the DNS.
func (p *pods) publish() {
	var addrs []netip.Addr
	for _, a := range p.there {
		addrs = append(addrs, a)
	}
	p.dns.Set(p.Name, addrs...)
}

// start starts the pod with an index: it runs the manifest's command, as a kubelet would.
func (p *pods) start(t *testing.T, index int) *process.Process {
	t.Helper()
	p.there[index] = p.addr(index)
	p.publish()
	words := []string{process.Elrun()}
	for _, w := range p.command[1:] {
		switch {
		case strings.HasPrefix(w, "dns:"):
			w += "@" + p.dns.Addr()
		case w == "/etc/elrun/key":
			w = filepath.Join(p.folder, "key")
		}
		w = strings.ReplaceAll(w, "$(POD_IP)", p.addr(index).String())
		words = append(words, strings.ReplaceAll(w, "$$", "$"))
	}
	run := filepath.Join(p.folder, strconv.Itoa(index))
	if err := os.MkdirAll(run, 0o700); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Env = append(os.Environ(), "XDG_RUNTIME_DIR="+run)
	return p.Start(t, cmd)
}

// stop ends a pod with a signal, and removes it from the DNS.
func (p *pods) stop(t *testing.T, index int, pod *process.Process, sig syscall.Signal) {
	t.Helper()
	process.Signal(t, pod.PID(), sig)
	if status := pod.Wait(t); status != 128+int(sig) && sig == syscall.SIGTERM {
		t.Errorf("status %d after %v, want %d", status, sig, 128+int(sig))
	}
	delete(p.there, index)
	p.publish()
}

// starters returns how many pods have started a job.
func (p *pods) starters() (n int) {
	for _, pod := range p.Elruns {
		if pod.Says("starting job " + p.Name) {
			n++
		}
	}
	return n
}

// finish waits for the end of the pods. Each must have the result of a complete job.
func (p *pods) finish(t *testing.T, steps int64, all ...*process.Process) {
	t.Helper()
	for _, pod := range all {
		if status := pod.Wait(t); status != 0 || !pod.Says(total(steps)) {
			t.Errorf("status %d, want 0 and %s", status, total(steps))
		}
	}
	if n := p.starters(); n != 1 {
		t.Errorf("the job was started %d times", n)
	}
	p.CheckGone(t)
}

// ready reports whether a pod passes the manifest's readiness probe.
func (p *pods) ready(index int) bool {
	conn, err := net.Dial("tcp", net.JoinHostPort(p.addr(index).String(), "7474"))
	if err == nil {
		_ = conn.Close()
	}
	return err == nil
}

// Pods that all start at the same time with the same command form one job.
func TestPods(t *testing.T) {
	const steps = 40
	p := newPods(t, 3, steps, "20ms")
	p.finish(t, steps, p.start(t, 0), p.start(t, 1), p.start(t, 2))
}

// A pod is ready when its peer is in the job. A pod that waits for other pods is not ready.
func TestReady(t *testing.T) {
	p := newPods(t, 2, 1<<20, "20ms")
	first := p.start(t, 0)
	first.Expect(t, "1 of the 2 launchers needed are present")
	if p.ready(0) {
		t.Error("ready before there is a job")
	}
	second := p.start(t, 1)
	for i, pod := range []*process.Process{first, second} {
		pod.Until(t, "ready", func() bool { return p.ready(i) })
	}
	p.stop(t, 0, first, syscall.SIGTERM)
	if p.ready(0) {
		t.Error("ready after its end")
	}
	p.stop(t, 1, second, syscall.SIGTERM)
}

// A pod that starts later joins the job and does not start a second job, even if it replaces the
// pod that started the job, or a pod that was killed.
func TestReplaceEach(t *testing.T) {
	const steps = 1 << 20 // more than there is time for
	p := newPods(t, 2, steps, "20ms")
	all := []*process.Process{p.start(t, 0), p.start(t, 1)}
	all = append(all, p.start(t, 2))
	for i, sig := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM, syscall.SIGTERM} {
		for _, pod := range all {
			pod.Expect(t, " of 3\n")
		}
		p.stop(t, i, all[i], sig)
		all[i] = p.start(t, i)
	}
	for _, pod := range all {
		pod.Expect(t, " of 3\n")
	}
	for i, pod := range all {
		p.stop(t, i, pod, syscall.SIGTERM)
	}
	if n := p.starters(); n != 1 {
		t.Errorf("the job was started %d times", n)
	}
}
