package k8s

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/elrun/elrun/testing/process"
)

const (
	namespace = "train"
	// jobName is the name of elrun's job and of the Kubernetes Job, and jobPath is the API path of
	// the Job.
	jobName = "mnist"
	jobPath = "/apis/batch/v1/namespaces/" + namespace + "/jobs/" + jobName
)

// needRoot skips the test if the process cannot create namespaces, or pods in them. In CI and in
// the long form it fails the test instead.
func needRoot(t *testing.T, tools ...string) {
	t.Helper()
	reason := ""
	for _, tool := range tools {
		if _, err := exec.LookPath(tool); err != nil {
			reason = fmt.Sprintf("%v: install it (Debian: apt-get install etcd-server iproute2)", err)
		}
	}
	switch {
	case os.Getuid() != 0:
		reason = "only root can make network namespaces"
	case !isStatic(t, process.Self(t)):
		reason = "pods run the binary of this test, which is not static: go test with CGO_ENABLED=0"
	}
	switch {
	case reason == "":
	case os.Getenv("ELRUN_CI") != "" || long():
		t.Fatal(reason)
	default:
		t.Skip(reason)
	}
}

// cluster is a control plane, or a fakeAPI, with nodes and a Job.
type cluster struct {
	*client
	kubelet *kubelet
	ctx     context.Context
}

// apply applies each object of a manifest, as kubectl does. It fails the test on warnings, for example about a pod that the
// policy "restricted" would refuse.
func (c *cluster) apply(t *testing.T, manifest, options string) {
	t.Helper()
	for doc := range strings.SplitSeq(manifest, "\n---\n") {
		kind := regexp.MustCompile(`(?m)^kind: (\w+)$`).FindStringSubmatch(doc)[1]
		path := map[string]string{"Secret": "/api/v1/namespaces/train/secrets/", "Service": "/api/v1/namespaces/train/services/",
			"Job": "/apis/batch/v1/namespaces/train/jobs/", "PodDisruptionBudget": "/apis/policy/v1/namespaces/train/poddisruptionbudgets/"}[kind]
		_, warnings, err := c.call(c.ctx, http.MethodPatch, path+jobName+"?fieldManager=test&fieldValidation=Strict"+options, applyPatch, []byte(doc))
		if err != nil || len(warnings) > 0 {
			t.Fatalf("%s%s: %v, warnings %q", kind, options, err, warnings)
		}
	}
}

// scale sets the number of pods, as kubectl patch does.
func (c *cluster) scale(t *testing.T, n int) {
	t.Helper()
	if err := c.patch(c.ctx, jobPath, mergePatch, object{"spec": object{"parallelism": n, "completions": n}}); err != nil {
		t.Fatal(err)
	}
}

// podsOf returns the pods of the job.
func (c *cluster) podsOf(t *testing.T) (pods []any) {
	t.Helper()
	o, err := c.get(c.ctx, "/api/v1/namespaces/"+namespace+"/pods?labelSelector=batch.kubernetes.io/job-name="+jobName)
	if err != nil {
		t.Fatal(err)
	}
	return list(o, "items")
}

// logs returns the output of all pods, including pods that have ended.
func (c *cluster) logs(t *testing.T) (all []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(c.kubelet.dir, "*.log"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, string(b))
	}
	return all
}

// showLogs logs the output of the pods at the end of the test if the test has failed.
func (c *cluster) showLogs(t *testing.T) {
	t.Helper()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("pods' logs:\n%s", strings.Join(c.logs(t), "\n---\n"))
		}
	})
}

// trains waits until the given number of pods run as members of one view.
func (c *cluster) trains(t *testing.T, members int) {
	t.Helper()
	process.Until(t, strconv.Itoa(members)+" members", func() bool {
		in := 0
		for _, o := range c.podsOf(t) {
			b, _ := os.ReadFile(c.kubelet.log(text(o, "metadata", "uid"))) // the file may not exist yet
			if text(o, "status", "phase") == "Running" && text(o, "metadata", "deletionTimestamp") == "" && lastCount(string(b)) == members {
				in++
			}
		}
		return in == members
	})
}

// lastCount returns the number of peers in the last line of a log about peers that go on, or 0.
func lastCount(log string) int {
	all := regexp.MustCompile(`(\d+) peers? goe?s? on`).FindAllStringSubmatch(log, -1)
	if len(all) == 0 {
		return 0
	}
	n, _ := strconv.Atoi(all[len(all)-1][1]) // digits
	return n
}

// pod returns the pod with an index.
func (c *cluster) pod(t *testing.T, index string) any {
	t.Helper()
	pods := c.podsOf(t)
	i := slices.IndexFunc(pods, func(o any) bool {
		return text(o, "metadata", "labels", "batch.kubernetes.io/job-completion-index") == index && text(o, "metadata", "deletionTimestamp") == ""
	})
	if i < 0 {
		t.Fatalf("no pod %s", index)
	}
	return pods[i]
}

// drain makes a node unschedulable and evicts its pods, as kubectl drain does. It retries evictions
// that the PodDisruptionBudget does not permit yet.
func (c *cluster) drain(t *testing.T, node string) {
	t.Helper()
	if err := c.patch(c.ctx, "/api/v1/nodes/"+node, mergePatch, object{"spec": object{"unschedulable": true}}); err != nil {
		t.Fatal(err)
	}
	process.Until(t, "the end of the pods on "+node, func() bool {
		left := 0
		for _, o := range c.podsOf(t) {
			if text(o, "spec", "nodeName") != node || text(o, "status", "phase") != "Running" {
				continue
			}
			left++
			name := text(o, "metadata", "name")
			err := c.post(c.ctx, c.kubelet.path(name, "/eviction"), object{"apiVersion": "policy/v1", "kind": "Eviction", "metadata": object{"name": name, "namespace": namespace}})
			if err != nil && !is(err, http.StatusTooManyRequests) && !is(err, http.StatusNotFound) {
				t.Fatal(err)
			}
		}
		return left == 0
	})
}

// resultForm returns the pattern of the job's last line.
func resultForm() *regexp.Regexp {
	return regexp.MustCompile(`(?m)^done steps=(\d+) .*sha256=([0-9a-f]{64})`)
}

// A job from a manifest is scaled from 2 to 4 and to 3 pods, and loses pod 0 and a node. It ends
// with the weights of a single process. In the short form a fakeAPI replaces the control plane.
func TestCluster(t *testing.T) {
	if !long() {
		shortCluster(t)
		return
	}
	needRoot(t, "ip", "etcd")
	flags := []string{"--passes", "12", "--exact"}
	alone := exec.Command("../../bin/mnist", append([]string{"--data", "../../data/mnist"}, flags...)...)
	out, err := alone.Output()
	want := resultForm().FindSubmatch(out)
	if err != nil || want == nil {
		t.Fatalf("alone: %v: %s", err, out)
	}
	im := buildImage(t, t.TempDir(), nil)
	prepareRoot(t, im.root)
	c := &cluster{client: startControlPlane(t), ctx: t.Context()}
	labels := object{"pod-security.kubernetes.io/enforce": "restricted", "pod-security.kubernetes.io/warn": "restricted"}
	if err := c.post(c.ctx, "/api/v1/namespaces", object{"metadata": object{"name": namespace, "labels": labels}}); err != nil {
		t.Fatal(err)
	}
	manifest, errs, status := process.Command(t, append([]string{"k8s", "--name", jobName, "--namespace", namespace, "--image", "registry.example/mnist:1", "--peers", "2", "--max", "4",
		"--", "mnist", "--data", "/data/mnist", "--pace", "1ms"}, flags...)...)
	if status != 0 {
		t.Fatal(errs)
	}
	c.apply(t, manifest, "&dryRun=All")
	c.kubelet = startKubelet(t, c.client, namespace, im, "n1", "n2", "n3")
	c.showLogs(t)
	c.apply(t, manifest, "")
	c.trains(t, 2)
	c.scale(t, 4)
	c.trains(t, 4)
	c.scale(t, 3)
	c.trains(t, 3)
	first := c.pod(t, "0")
	if err := c.remove(c.ctx, c.kubelet.path(text(first, "metadata", "name"), ""), nil); err != nil {
		t.Fatal(err)
	}
	process.Until(t, "the end of pod 0", func() bool {
		return !slices.ContainsFunc(c.podsOf(t), func(o any) bool { return text(o, "metadata", "uid") == text(first, "metadata", "uid") })
	})
	c.trains(t, 3)
	c.drain(t, text(c.pod(t, "1"), "spec", "nodeName"))
	c.trains(t, 3)
	c.finish(t, want)
}

// longestJob is so long that only a job that hangs exceeds it.
const longestJob = 30 * time.Minute

// finish waits for the end of the Job. It checks that the pods started one job of elrun, with the
// wanted result.
func (c *cluster) finish(t *testing.T, want [][]byte) {
	t.Helper()
	ended := process.Holds(c.ctx, longestJob, func() bool {
		job, err := c.get(c.ctx, jobPath)
		if err != nil {
			t.Fatal(err)
		}
		for _, condition := range list(job, "status", "conditions") {
			switch text(condition, "type") {
			case "Complete":
				return true
			case "Failed":
				t.Fatalf("the Job failed: %v", job["status"])
			}
		}
		return false
	})
	if !ended {
		t.Fatalf("the Job has not ended in %v", longestJob)
	}
	starts, results := 0, 0
	for _, log := range c.logs(t) {
		starts += strings.Count(log, "elrun: starting job")
		for _, got := range resultForm().FindAllStringSubmatch(log, -1) {
			results++
			if got[1] != string(want[1]) || got[2] != string(want[2]) {
				t.Errorf("%s steps with sha256 %s, alone %s with %s", got[1], got[2], want[1], want[2])
			}
		}
	}
	if starts != 1 || results < 1 {
		t.Errorf("started %d times, with %d results", starts, results)
	}
}
