package k8s

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/elrun/elrun/testing/dns"
)

// kubelet is a test double for several parts of a cluster: some nodes, a scheduler that assigns
// pods to them in turn, and the cluster's DNS. It implements only the features that the pods of
// "elrun k8s" need. One goroutine owns it.
type kubelet struct {
	api       *client
	namespace string
	image     image
	bridge    *bridge
	dns       *dns.Server
	nodes     []string
	dir       string // folder for the logs and volumes of pods
	pods      map[string]*pod
	next      int // next node for the scheduler
	fail      func(error)
}

// pod is a pod that this kubelet runs or has run.
type pod struct {
	name, uid     string
	space, addr   string
	cmd           *exec.Cmd
	ended         chan struct{} // closed when the process has ended
	begun         string        // time of the start, in the format of the API
	asked, killed bool          // whether the kubelet has sent SIGTERM and SIGKILL
	deadline      time.Time     // time to send SIGKILL after SIGTERM
	reported      bool          // the kubelet has reported the end to the API
	probe         int           // port of the readiness probe
	ready         bool
}

const (
	// pollPeriod is the time between two checks for changes.
	pollPeriod = 100 * time.Millisecond
	// leasePeriod is the time between two renewals of the nodes' leases.
	leasePeriod = 5 * time.Second
)

// startKubelet starts a kubelet for the pods of a namespace. The end of the test stops it.
func startKubelet(t *testing.T, api *client, namespace string, im image, nodes ...string) *kubelet {
	t.Helper()
	b := newBridge(t)
	k := &kubelet{api: api, namespace: namespace, image: im, bridge: b, dns: dns.Start(t, b.host()+":53"), nodes: nodes,
		dir: t.TempDir(), pods: make(map[string]*pod), fail: func(err error) { t.Error(err) }}
	write(t, filepath.Join(k.dir, "resolv.conf"), fmt.Sprintf("nameserver %s\nsearch %s.svc.cluster.local svc.cluster.local cluster.local\noptions ndots:5\n", b.host(), namespace))
	run(t, "chmod", "755", k.dir)
	run(t, "chmod", "644", filepath.Join(k.dir, "resolv.conf"))
	openPath(t, k.dir)
	openPath(t, im.root)
	for _, node := range nodes {
		if err := k.register(t.Context(), node); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	var work sync.WaitGroup
	work.Go(func() { k.run(ctx) })
	t.Cleanup(func() {
		cancel()
		work.Wait()
		k.killAll()
	})
	return k
}

// register creates a node that is ready.
func (k *kubelet) register(ctx context.Context, node string) error {
	meta := object{"name": node, "labels": object{"kubernetes.io/hostname": node}}
	if err := k.api.post(ctx, "/api/v1/nodes", object{"metadata": meta}); err != nil {
		return err
	}
	room := object{"cpu": "8", "memory": "16Gi", "pods": "110"}
	return k.api.patch(ctx, "/api/v1/nodes/"+node+"/status", statusPatch, object{"status": object{"capacity": room, "allocatable": room,
		"conditions": []object{{"type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": now(), "lastTransitionTime": now()}}}})
}

// lease renews the lease of a node. Shortly after its start, the API server does not have the namespace of leases yet.
func (k *kubelet) lease(ctx context.Context, node string) error {
	path := "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
	spec := object{"holderIdentity": node, "leaseDurationSeconds": 40, "renewTime": time.Now().UTC().Format("2006-01-02T15:04:05.000000Z")}
	err := k.api.patch(ctx, path+"/"+node, mergePatch, object{"spec": spec})
	if is(err, http.StatusNotFound) {
		err = k.api.post(ctx, path, object{"metadata": object{"name": node}, "spec": spec})
	}
	return err
}

// is reports whether err is a statusError with the given code.
func is(err error, code int) bool {
	var e *statusError
	return errors.As(err, &e) && e.code == code
}

// now returns the time in the format of the API.
func now() string { return time.Now().UTC().Format(time.RFC3339) }

// run performs all periodic tasks until ctx ends.
func (k *kubelet) run(ctx context.Context) {
	tick := time.NewTicker(pollPeriod)
	defer tick.Stop()
	var leased time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		err := k.poll(ctx)
		if time.Since(leased) > leasePeriod {
			leased = time.Now()
			for _, node := range k.nodes {
				err = errors.Join(err, k.lease(ctx, node))
			}
		}
		if err != nil && ctx.Err() == nil && !is(err, http.StatusConflict) && !is(err, http.StatusNotFound) {
			k.fail(fmt.Errorf("kubelet: %w", err))
			return
		}
	}
}

// poll takes one action for each pod, and updates the DNS.
func (k *kubelet) poll(ctx context.Context) error {
	pods, err := k.api.get(ctx, "/api/v1/namespaces/"+k.namespace+"/pods")
	if err != nil {
		return err
	}
	var errs []error
	for _, o := range list(pods, "items") {
		errs = append(errs, k.see(ctx, o.(object)))
	}
	slices, err := k.api.get(ctx, "/apis/discovery.k8s.io/v1/namespaces/"+k.namespace+"/endpointslices")
	if err != nil {
		return err
	}
	names := map[string][]netip.Addr{}
	for _, s := range list(slices, "items") {
		name := text(s, "metadata", "labels", "kubernetes.io/service-name") + "." + k.namespace + ".svc.cluster.local"
		for _, e := range list(s, "endpoints") {
			if addr, err := netip.ParseAddr(text(e, "addresses", 0)); err == nil {
				names[name] = append(names[name], addr)
			}
		}
	}
	for name, addrs := range names {
		k.dns.Set(name, addrs...)
	}
	return errors.Join(errs...)
}

// see takes the next action that one pod needs.
func (k *kubelet) see(ctx context.Context, o object) error {
	p, phase := k.pods[text(o, "metadata", "uid")], text(o, "status", "phase")
	leaves := text(o, "metadata", "deletionTimestamp") != ""
	switch {
	case phase == "Succeeded" || phase == "Failed" || p == nil && leaves:
		if !leaves {
			return nil
		}
		return k.api.remove(ctx, k.path(text(o, "metadata", "name"), ""), object{"gracePeriodSeconds": 0, "preconditions": object{"uid": text(o, "metadata", "uid")}})
	case text(o, "spec", "nodeName") == "":
		return k.bind(ctx, o)
	case p == nil:
		return k.start(ctx, o)
	case p.over():
		return k.report(ctx, p)
	case leaves:
		p.end(time.Duration(number(o, "metadata", "deletionGracePeriodSeconds")) * time.Second)
	case p.ready != p.accepts():
		p.ready = !p.ready
		return k.status(ctx, p, "Running", object{"running": object{"startedAt": p.begun}})
	}
	return nil
}

// accepts reports whether the pod passes its readiness probe, a connection to a TCP port.
func (p *pod) accepts() bool {
	conn, err := net.DialTimeout("tcp", net.JoinHostPort(p.addr, strconv.Itoa(p.probe)), time.Second)
	if err == nil {
		_ = conn.Close()
	}
	return err == nil
}

// path returns the API path of a pod, or of a subresource of the pod.
func (k *kubelet) path(pod, part string) string {
	return "/api/v1/namespaces/" + k.namespace + "/pods/" + pod + part
}

// bind assigns a pod to the next node that is schedulable.
func (k *kubelet) bind(ctx context.Context, o object) error {
	for range k.nodes {
		node := k.nodes[k.next%len(k.nodes)]
		k.next++
		n, err := k.api.get(ctx, "/api/v1/nodes/"+node)
		if err != nil {
			return err
		}
		if at(n, "spec", "unschedulable") == true {
			continue
		}
		name := text(o, "metadata", "name")
		return k.api.post(ctx, k.path(name, "/binding"), object{"metadata": object{"name": name}, "target": object{"kind": "Node", "name": node}})
	}
	return nil // the pod stays pending
}

// start starts the container of a pod.
func (k *kubelet) start(ctx context.Context, o object) error {
	p := &pod{name: text(o, "metadata", "name"), uid: text(o, "metadata", "uid"), begun: now(), ended: make(chan struct{}),
		probe: number(o, "spec", "containers", 0, "readinessProbe", "tcpSocket", "port")}
	var err error
	if p.space, p.addr, err = k.bridge.add(); err != nil {
		return err
	}
	k.pods[p.uid] = p
	s, err := k.sandbox(ctx, o, p)
	if err != nil {
		return err
	}
	log, err := os.Create(k.log(p.uid))
	if err != nil {
		return err
	}
	defer log.Close()
	if p.cmd, err = startSandbox(p.space, s, log); err != nil {
		return err
	}
	go func() { // ends with the process; killAll waits for the end
		defer close(p.ended)
		_ = p.cmd.Wait() // p.cmd keeps the status
	}()
	return k.status(ctx, p, "Running", object{"running": object{"startedAt": p.begun}})
}

// log returns the path of a pod's output.
func (k *kubelet) log(uid string) string { return filepath.Join(k.dir, uid+".log") }

// sandbox translates the container in the pod's object into a sandbox.
func (k *kubelet) sandbox(ctx context.Context, o object, p *pod) (sandbox, error) {
	c := at(o, "spec", "containers", 0)
	s := sandbox{Host: text(o, "spec", "hostname"), Root: k.image.root, User: number(o, "spec", "securityContext", "runAsUser"), Env: k.image.env}
	values := map[string]string{}
	for _, e := range list(c, "env") {
		value := text(e, "value")
		switch field := text(e, "valueFrom", "fieldRef", "fieldPath"); {
		case field == "status.podIP":
			value = p.addr
		case strings.HasPrefix(field, "metadata.annotations['"):
			value = text(o, "metadata", "annotations", strings.TrimSuffix(strings.TrimPrefix(field, "metadata.annotations['"), "']"))
		case strings.HasPrefix(field, "metadata.labels['"):
			value = text(o, "metadata", "labels", strings.TrimSuffix(strings.TrimPrefix(field, "metadata.labels['"), "']"))
		case field != "":
			return s, fmt.Errorf("pod %s: no field %s in the test double", p.name, field)
		}
		values[text(e, "name")] = value
		s.Env = append(s.Env[:len(s.Env):len(s.Env)], text(e, "name")+"="+value)
	}
	for _, w := range list(c, "command") {
		s.Command = append(s.Command, expand(w.(string), values))
	}
	found, err := k.image.find(s.Command[0])
	if err != nil {
		return s, err
	}
	s.Command[0] = found
	s.Mounts = []binding{{filepath.Join(k.dir, "resolv.conf"), "/etc/resolv.conf", true}}
	for _, m := range list(c, "volumeMounts") {
		from, err := k.volume(ctx, o, text(m, "name"), s.User)
		if err != nil {
			return s, err
		}
		s.Mounts = append(s.Mounts, binding{from, text(m, "mountPath"), at(m, "readOnly") == true})
	}
	return s, nil
}

// expand replaces $(NAME) by the value of NAME, and $$ by $.
func expand(word string, values map[string]string) string {
	parts := strings.Split(word, "$$")
	for i, p := range parts {
		for name, value := range values {
			p = strings.ReplaceAll(p, "$("+name+")", value)
		}
		parts[i] = p
	}
	return strings.Join(parts, "$")
}

// volume creates a volume of a pod: an empty folder, or a folder with the keys of a Secret.
func (k *kubelet) volume(ctx context.Context, o object, name string, user int) (string, error) {
	dir := filepath.Join(k.dir, text(o, "metadata", "uid"), name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	for _, v := range list(o, "spec", "volumes") {
		if text(v, "name") != name {
			continue
		}
		secret := text(v, "secret", "secretName")
		if secret == "" {
			return dir, os.Chown(dir, user, user)
		}
		s, err := k.api.get(ctx, "/api/v1/namespaces/"+k.namespace+"/secrets/"+secret)
		if err != nil {
			return "", err
		}
		data, _ := at(s, "data").(object)
		for key, value := range data {
			b, err := base64.StdEncoding.DecodeString(value.(string))
			file := filepath.Join(dir, key)
			mode := os.FileMode(number(v, "secret", "defaultMode"))
			if err = errors.Join(err, os.WriteFile(file, b, mode), os.Chown(file, 0, user)); err != nil {
				return "", err
			}
		}
	}
	return dir, nil
}

// end sends SIGTERM to a pod at the first call, and SIGKILL at the first call after the grace
// period.
func (p *pod) end(grace time.Duration) {
	switch {
	case !p.asked:
		p.asked, p.deadline = true, time.Now().Add(grace)
		_ = p.cmd.Process.Signal(syscall.SIGTERM) // fails if it has just ended
	case !p.killed && time.Now().After(p.deadline):
		p.killed = true
		_ = p.cmd.Process.Kill() // fails if it has just ended
	}
}

// over reports whether the pod's process has ended.
func (p *pod) over() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// exitCode returns the status of the pod's process, which has ended, as a container engine reports
// it.
func (p *pod) exitCode() int {
	if s := p.cmd.ProcessState.Sys().(syscall.WaitStatus); s.Signaled() {
		return 128 + int(s.Signal())
	}
	return p.cmd.ProcessState.ExitCode()
}

// report reports the end of a pod to the API.
func (k *kubelet) report(ctx context.Context, p *pod) error {
	if !p.reported {
		p.reported = true
		if err := k.bridge.remove(p.space); err != nil {
			return err
		}
	}
	phase, reason := "Failed", "Error"
	if p.exitCode() == 0 {
		phase, reason = "Succeeded", "Completed"
	}
	return k.status(ctx, p, phase, object{"terminated": object{"exitCode": p.exitCode(), "reason": reason, "startedAt": p.begun, "finishedAt": now()}})
}

// status reports the state of a pod's container to the API.
func (k *kubelet) status(ctx context.Context, p *pod, phase string, state object) error {
	ready := p.ready && phase == "Running"
	yes := map[bool]string{true: "True", false: "False"}[ready]
	return k.api.patch(ctx, k.path(p.name, "/status"), statusPatch, object{"metadata": object{"uid": p.uid}, "status": object{
		"phase": phase, "podIP": p.addr, "podIPs": []object{{"ip": p.addr}}, "startTime": p.begun,
		"conditions":        []object{{"type": "Ready", "status": yes}, {"type": "ContainersReady", "status": yes}, {"type": "Initialized", "status": "True"}},
		"containerStatuses": []object{{"name": "peer", "image": "x", "imageID": "x", "ready": ready, "restartCount": 0, "state": state}},
	}})
}

// killAll kills all pods.
func (k *kubelet) killAll() {
	for _, p := range k.pods {
		if p.cmd == nil || p.cmd.Process == nil {
			continue
		}
		_ = p.cmd.Process.Kill() // fails only if the process has ended
		<-p.ended
		if !p.reported {
			_ = k.bridge.remove(p.space) // the test is over, so an error does not matter
		}
	}
}
