package k8s

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/elrun/elrun/testing/process"
)

// fakeAPI implements the part of an API server that the kubelet of this package uses, for tests
// without a control plane. Methods make and delete replace the Job's controller.
type fakeAPI struct {
	job    object // the Job in the manifest
	secret object

	mu    sync.Mutex
	pods  map[string]object // by name
	ended map[string]int    // exit statuses of removed pods, by name
	made  int
}

// newFakeAPI returns a fakeAPI with the objects of a manifest.
func newFakeAPI(t *testing.T, manifest string) *fakeAPI {
	t.Helper()
	f := &fakeAPI{pods: make(map[string]object), ended: make(map[string]int)}
	d := yaml.NewDecoder(strings.NewReader(manifest))
	for {
		var o object
		err := d.Decode(&o)
		if errors.Is(err, io.EOF) {
			return f
		}
		if err != nil {
			t.Fatal(err)
		}
		b, err := json.Marshal(o) // via JSON, so that numbers have the same type as from the API
		if err = errors.Join(err, json.Unmarshal(b, &o)); err != nil {
			t.Fatal(err)
		}
		switch o["kind"] {
		case "Job":
			f.job = o
		case "Secret":
			f.secret = o
		}
	}
}

// make creates the pod with an index, as the Job's controller does, and returns its name.
func (f *fakeAPI) make(index int) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.made++
	uid := "uid" + strconv.Itoa(f.made)
	name := jobName + "-" + strconv.Itoa(index)
	spec := maps.Clone(at(f.job, "spec", "template", "spec").(object))
	spec["hostname"] = name
	f.pods[name+"-"+uid] = object{"metadata": object{"name": name + "-" + uid, "uid": uid}, "spec": spec, "status": object{"phase": "Pending"}}
	return name + "-" + uid
}

// delete marks a pod as being deleted. The kubelet then ends and removes the pod.
func (f *fakeAPI) delete(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	meta := f.pods[name]["metadata"].(object)
	meta["deletionTimestamp"], meta["deletionGracePeriodSeconds"] = now(), at(f.pods[name], "spec", "terminationGracePeriodSeconds")
}

// status returns the exit status of a pod that was removed.
func (f *fakeAPI) status(name string) (status int, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	status, ok = f.ended[name]
	return status, ok
}

// ServeHTTP implements http.Handler.
func (f *fakeAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var body object
	_ = json.NewDecoder(r.Body).Decode(&body) // GET has no body
	words := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	answer := object{}
	switch {
	case path.Base(r.URL.Path) == "endpointslices":
		answer = f.slices()
	case slices.Contains(words, "secrets"):
		data := object{}
		for k, v := range at(f.secret, "stringData").(object) {
			data[k] = base64.StdEncoding.EncodeToString([]byte(v.(string)))
		}
		answer = object{"data": data}
	case path.Base(r.URL.Path) == "pods":
		answer = object{"items": slices.Collect(maps.Values(f.pods))}
	case slices.Contains(words, "pods"):
		f.pod(r.Method, words[5:], body)
	}
	_ = json.NewEncoder(w).Encode(answer) // fails if the client is gone
}

// slices returns the addresses of the running pods as EndpointSlices of the Service.
func (f *fakeAPI) slices() object {
	var all []object
	for _, p := range f.pods {
		if text(p, "status", "phase") == "Running" {
			all = append(all, object{"addresses": []string{text(p, "status", "podIP")}})
		}
	}
	return object{"items": []object{{"metadata": object{"labels": object{"kubernetes.io/service-name": jobName}}, "endpoints": all}}}
}

// pod handles a request about one pod. words has the name of the pod, and possibly a subresource.
func (f *fakeAPI) pod(method string, words []string, body object) {
	p, there := f.pods[words[0]]
	switch {
	case !there:
	case method == http.MethodDelete:
		f.ended[words[0]] = number(p, "status", "containerStatuses", 0, "state", "terminated", "exitCode")
		delete(f.pods, words[0])
	case words[1] == "binding":
		p["spec"] = maps.Clone(p["spec"].(object))
		p["spec"].(object)["nodeName"] = text(body, "target", "name")
	case words[1] == "status":
		p["status"] = body["status"]
	}
}

// shortCluster makes the kubelet of this package run the pods of a manifest. The test creates and
// deletes pods like a Job's controller: there are 2, 4 and 3 pods, and then a pod replaces pod 0.
func shortCluster(t *testing.T) {
	t.Helper()
	needRoot(t, "ip")
	manifest, errs, status := process.Command(t, "k8s", "--name", jobName, "--namespace", namespace, "--image", "x", "--peers", "2", "--", "mnist", playWord, "1000000", "20ms")
	if status != 0 {
		t.Fatal(errs)
	}
	f := newFakeAPI(t, manifest)
	server := httptest.NewServer(f)
	t.Cleanup(server.Close)
	im := buildImage(t, t.TempDir(), map[string]string{"bin/elrun": process.Elrun(), "bin/mnist": process.Self(t), "data/mnist": t.TempDir()})
	prepareRoot(t, im.root)
	c := &cluster{client: &client{url: server.URL, http: server.Client()}, ctx: context.Background()}
	c.kubelet = startKubelet(t, c.client, namespace, im, "n1", "n2")
	c.showLogs(t)
	pods := []string{f.make(0), f.make(1)}
	c.trains(t, 2)
	pods = append(pods, f.make(2), f.make(3))
	c.trains(t, 4)
	leave := func(name string) {
		t.Helper()
		f.delete(name)
		process.Until(t, "the end of "+name, func() bool { _, ok := f.status(name); return ok })
		if status, _ := f.status(name); status != 143 {
			t.Errorf("%s: status %d", name, status)
		}
	}
	leave(pods[3])
	c.trains(t, 3)
	leave(pods[0])
	pods[0] = f.make(0)
	c.trains(t, 3)
	for _, name := range pods[:3] {
		leave(name)
	}
	if n := strings.Count(strings.Join(c.logs(t), ""), "elrun: starting job"); n != 1 {
		t.Errorf("the job was started %d times", n)
	}
}
