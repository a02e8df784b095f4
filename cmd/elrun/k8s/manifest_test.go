package k8s

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
	"pgregory.net/rapid"
)

// good returns a valid spec.
func good() Spec {
	return Spec{Name: "mnist", Image: "registry.example/mnist:1", Peers: 4, CPU: "500m", Memory: "1Gi",
		Program: []string{"mnist", "--passes", "3", "yes", "$(HOME)", "", "a: b # c", "two\nlines"}}
}

// document is one object, as a YAML parser returns it.
type document = map[string]any

// read returns the objects of a manifest by their kinds.
func read(t *testing.T, manifest []byte) map[string]document {
	t.Helper()
	all := map[string]document{}
	d := yaml.NewDecoder(bytes.NewReader(manifest))
	for {
		var o document
		err := d.Decode(&o)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, manifest)
		}
		all[o["kind"].(string)] = o
	}
}

// at returns the value at a path in nested objects and lists, or nil if there is none.
func at(v any, path ...any) any {
	for _, step := range path {
		switch step := step.(type) {
		case string:
			m, _ := v.(document)
			v = m[step]
		case int:
			l, _ := v.([]any)
			if step >= len(l) {
				return nil
			}
			v = l[step]
		}
	}
	return v
}

// made returns the objects in the manifest of a spec.
func made(t *testing.T, s Spec) map[string]document {
	t.Helper()
	text, err := s.Manifest("key-of-the-job")
	if err != nil {
		t.Fatal(err)
	}
	return read(t, text)
}

// path is a path in an object, and the value that must be there.
type path struct {
	kind string
	way  []any
	want any
}

func (p path) check(t *testing.T, all map[string]document) {
	t.Helper()
	if got := at(all[p.kind], p.way...); got != p.want {
		t.Errorf("%s %v is %v, want %v", p.kind, p.way, got, p.want)
	}
}

// The manifest has everything that pods need to find each other, to be replaced correctly, and to be admitted under the policy
// "restricted".
func TestManifest(t *testing.T) {
	s := good()
	s.Namespace = "train"
	all := made(t, s)
	pod := []any{"spec", "template", "spec"}
	peer := slices.Concat(pod, []any{"containers", 0})
	in := func(base []any, way ...any) []any { return slices.Concat(base, way) }
	for _, p := range []path{
		{"Secret", in(nil, "stringData", "key"), "key-of-the-job"},
		{"Service", in(nil, "spec", "clusterIP"), "None"},
		{"Service", in(nil, "spec", "publishNotReadyAddresses"), true},
		{"Service", in(nil, "spec", "selector", "batch.kubernetes.io/job-name"), "mnist"},
		{"Service", in(nil, "spec", "ports", 0, "port"), Port},
		{"PodDisruptionBudget", in(nil, "spec", "minAvailable"), 2},
		{"PodDisruptionBudget", in(nil, "spec", "maxUnavailable"), nil},
		{"PodDisruptionBudget", in(nil, "spec", "selector", "matchLabels", "batch.kubernetes.io/job-name"), "mnist"},
		{"Job", in(nil, "spec", "completionMode"), "Indexed"},
		{"Job", in(nil, "spec", "completions"), 4},
		{"Job", in(nil, "spec", "parallelism"), 4},
		{"Job", in(nil, "spec", "podReplacementPolicy"), "Failed"},
		{"Job", in(nil, "spec", "maxFailedIndexes"), nil},
		{"Job", in(nil, "spec", "successPolicy", "rules", 0, "succeededCount"), 1},
		{"Job", in(nil, "spec", "podFailurePolicy", "rules", 0, "action"), "Ignore"},
		{"Job", in(nil, "spec", "podFailurePolicy", "rules", 0, "onPodConditions", 0, "type"), "DisruptionTarget"},
		{"Job", in(nil, "spec", "podFailurePolicy", "rules", 1, "action"), "FailJob"},
		{"Job", in(nil, "spec", "podFailurePolicy", "rules", 1, "onExitCodes", "values", 0), 2},
		{"Job", in(nil, "spec", "podFailurePolicy", "rules", 1, "onExitCodes", "containerName"), "peer"},
		{"Job", in(pod, "subdomain"), "mnist"},
		{"Job", in(pod, "restartPolicy"), "Never"},
		{"Job", in(pod, "automountServiceAccountToken"), false},
		{"Job", in(pod, "enableServiceLinks"), false},
		{"Job", in(pod, "securityContext", "runAsNonRoot"), true},
		{"Job", in(pod, "securityContext", "seccompProfile", "type"), "RuntimeDefault"},
		{"Job", in(pod, "volumes", 1, "secret", "secretName"), "mnist"},
		{"Job", in(peer, "securityContext", "allowPrivilegeEscalation"), false},
		{"Job", in(peer, "securityContext", "readOnlyRootFilesystem"), true},
		{"Job", in(peer, "securityContext", "capabilities", "drop", 0), "ALL"},
		{"Job", in(peer, "readinessProbe", "tcpSocket", "port"), ReadyPort},
		{"Job", in(peer, "name"), "peer"},
		{"Job", in(peer, "image"), "registry.example/mnist:1"},
		{"Job", in(peer, "resources", "requests", "cpu"), "500m"},
		{"Job", in(peer, "resources", "limits", "memory"), "1Gi"},
	} {
		p.check(t, all)
	}
	for kind := range all {
		path{kind, in(nil, "metadata", "name"), "mnist"}.check(t, all)
		path{kind, in(nil, "metadata", "namespace"), "train"}.check(t, all)
	}
}

// The program receives its arguments unchanged: neither YAML, nor the template, nor Kubernetes modifies them.
func TestProgramWords(t *testing.T) {
	s := good()
	plain := s.Program
	check := func(more ...string) {
		s.Program = slices.Concat(plain, more)
		if got := words(t, made(t, s)); !slices.Equal(got, s.Program) {
			t.Errorf("%q becomes %q", s.Program, got)
		}
	}
	check("\ta\nb")
	check("\n a", " a\r\n\tb\n\n", "\u2028\tx", "\u0085", "\ufeff", "\ufffe", "\x7f\x01", "e\u0301\U0001f600")
	check("\"\n---\nkind: Pod\n", "{{.Key}}", "null", "0x1", "*a", "!!int 1", "\\u0041", "'", "# x")
	rapid.Check(t, func(r *rapid.T) {
		check(rapid.SliceOf(rapid.StringN(-1, -1, 40).Filter(func(w string) bool { return !strings.Contains(w, "\x00") })).Draw(r, "words")...)
	})
}

// words returns the program's arguments in a Job, as its pods receive them.
func words(t *testing.T, all map[string]document) (out []string) {
	t.Helper()
	list, _ := at(all["Job"], "spec", "template", "spec", "containers", 0, "command").([]any)
	i := slices.Index(list, any("--"))
	if i < 0 {
		t.Fatalf("no -- in %v", list)
	}
	for _, w := range list[i+1:] {
		text, _ := w.(string)
		if strings.Contains(strings.ReplaceAll(text, "$$", ""), "$") {
			t.Errorf("%q has a $ that Kubernetes looks at", text)
		}
		out = append(out, strings.ReplaceAll(text, "$$", "$"))
	}
	return out
}

// Kubernetes kills a pod only after elrun has had its grace period.
func TestGrace(t *testing.T) {
	for grace, want := range map[time.Duration]int{0: 60, 5 * time.Minute: 310, 1500 * time.Millisecond: 12} {
		s := good()
		s.Grace = grace
		all := made(t, s)
		path{"Job", []any{"spec", "template", "spec", "terminationGracePeriodSeconds"}, want}.check(t, all)
		command := fmt.Sprint(at(all["Job"], "spec", "template", "spec", "containers", 0, "command"))
		if strings.Contains(command, fmt.Sprintf("--grace %v --", grace)) != (grace != 0) {
			t.Errorf("grace %v: command %v", grace, command)
		}
	}
}

func TestOnePodHasNoBudget(t *testing.T) {
	s := good()
	s.Peers = 1
	if all := made(t, s); len(all) != 3 || all["PodDisruptionBudget"] != nil {
		t.Errorf("%d objects, one of them %v", len(all), all["PodDisruptionBudget"])
	}
}

// For any number of pods, nodes can be drained, and the budget protects at least one pod.
func TestBudget(t *testing.T) {
	s := good()
	for s.Peers = 2; s.Peers < 20; s.Peers++ {
		n, _ := at(made(t, s)["PodDisruptionBudget"], "spec", "minAvailable").(int)
		if n < 1 || n >= s.Peers {
			t.Errorf("%d of %d pods have to be available", n, s.Peers)
		}
	}
}

func TestQueue(t *testing.T) {
	for name, c := range map[string]struct {
		least, most int
		want        string // name of the annotation
		value       any
	}{
		"fixed":   {4, 4, "kueue.x-k8s.io/elastic-job", nil},
		"elastic": {1, 8, "kueue.x-k8s.io/elastic-job", "true"},
		"partial": {2, 0, "kueue.x-k8s.io/job-min-parallelism", "2"},
	} {
		s := good()
		s.Queue, s.MinPeers, s.MaxPeers = "gpu", c.least, c.most
		all := made(t, s)
		path{"Job", []any{"metadata", "labels", "kueue.x-k8s.io/queue-name"}, "gpu"}.check(t, all)
		if got := at(all["Job"], "metadata", "annotations", c.want); got != c.value {
			t.Errorf("%s: %s is %v, want %v", name, c.want, got, c.value)
		}
	}
}

// Each invalid field causes an error of one line, and no manifest.
func TestCheck(t *testing.T) {
	long := strings.Repeat("a", 300)
	for want, change := range map[string]func(*Spec){
		"no program":                  func(s *Spec) { s.Program = nil },
		"argument \"\\xff\"":          func(s *Spec) { s.Program[1] = "\xff" },
		"0 peers":                     func(s *Spec) { s.Peers = 0 },
		"9999 peers":                  func(s *Spec) { s.Peers = 9999 },
		"--min-peers 5 of 4":          func(s *Spec) { s.MinPeers = 5 },
		"--max 3 with":                func(s *Spec) { s.MaxPeers = 3 },
		"--grace -1s: want more":      func(s *Spec) { s.Grace = -time.Second },
		"name \"\"":                   func(s *Spec) { s.Name = "" },
		"name \"1st\"":                func(s *Spec) { s.Name = "1st" },
		"name \"a-\"":                 func(s *Spec) { s.Name = "a-" },
		"name \"A\"":                  func(s *Spec) { s.Name = "A" },
		"name \"a.b\"":                func(s *Spec) { s.Name = "a.b" },
		"name \"a\\nb\"":              func(s *Spec) { s.Name = "a\nb" },
		"name \"aaa":                  func(s *Spec) { s.Name = long },
		"namespace \"-x\"":            func(s *Spec) { s.Namespace = "-x" },
		"namespace \"aaa":             func(s *Spec) { s.Namespace = long },
		"queue \"a b\"":               func(s *Spec) { s.Queue = "a b" },
		"image \"\"":                  func(s *Spec) { s.Image = "" },
		"image \"a b\"":               func(s *Spec) { s.Image = "a b" },
		"image \"Train\"":             func(s *Spec) { s.Image = "Train" },
		"image \"x@sha256:1\"":        func(s *Spec) { s.Image = "x@sha256:1" },
		"cpu \"\"":                    func(s *Spec) { s.CPU = "" },
		"cpu \"two\"":                 func(s *Spec) { s.CPU = "two" },
		"cpu 2Gi: want cores":         func(s *Spec) { s.CPU = "2Gi" },
		"cpu 0: want more":            func(s *Spec) { s.CPU = "0" },
		"memory \"-1\"":               func(s *Spec) { s.Memory = "-1" },
		"memory \"1GB\"":              func(s *Spec) { s.Memory = "1GB" },
		"memory 100m: want whole":     func(s *Spec) { s.Memory = "100m" },
		"memory 0.0: want more than":  func(s *Spec) { s.Memory = "0.0" },
		"memory \"1e1\": want a quan": func(s *Spec) { s.Memory = "1e1" },
	} {
		s := good()
		change(&s)
		text, err := s.Manifest("key")
		if err == nil || text != nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") || len(err.Error()) > 200 {
			t.Errorf("want %q, got %v with %d bytes of a manifest", want, err, len(text))
		}
	}
	for _, image := range []string{"train", "train:1", "localhost:5000/a/b_c:V1.2", "ghcr.io/x/y@sha256:" + strings.Repeat("0a", 32)} {
		s := good()
		if s.Image = image; s.Check() != nil {
			t.Errorf("image %s: %v", image, s.Check())
		}
	}
}

// Two manifests of the same command have different keys, which are long enough for elrun.
func TestNewKey(t *testing.T) {
	a, b := NewKey(), NewKey()
	if a == b || len(a) < 32 {
		t.Errorf("keys %q and %q", a, b)
	}
}

// FuzzManifest checks that every accepted spec becomes a manifest with its values.
func FuzzManifest(f *testing.F) {
	f.Add("mnist", "", "registry.example/mnist:1", "500m", "1Gi", "", "mnist", "--passes")
	f.Add("a", "b", "c", "1", "1", "q", "$(X)", "# 'x': \"y\"\r\n\t")
	f.Fuzz(func(t *testing.T, name, space, image, cpu, memory, queue, first, second string) {
		s := Spec{Name: name, Namespace: space, Image: image, Peers: 2, CPU: cpu, Memory: memory, Queue: queue, Program: []string{first, second}}
		text, err := s.Manifest("key")
		if err != nil {
			return
		}
		all := read(t, text)
		for _, p := range []path{
			{"Job", []any{"metadata", "name"}, name},
			{"Job", []any{"spec", "template", "spec", "containers", 0, "image"}, image},
			{"Job", []any{"spec", "template", "spec", "containers", 0, "resources", "requests", "cpu"}, cpu},
			{"Job", []any{"spec", "template", "spec", "containers", 0, "resources", "limits", "memory"}, memory},
		} {
			p.check(t, all)
		}
		if got := words(t, all); !slices.Equal(got, s.Program) {
			t.Errorf("%q becomes %q", s.Program, got)
		}
	})
}

// With metrics each pod serves them, and Prometheus finds the port.
func TestManifestMetrics(t *testing.T) {
	s := good()
	pod := []any{"spec", "template"}
	for _, metrics := range []bool{false, true} {
		s.Metrics = metrics
		all := made(t, s)
		want := map[bool][]any{false: {nil, nil, nil, false}, true: {"true", "9464", MetricsPort, true}}[metrics]
		path{"Job", slices.Concat(pod, []any{"metadata", "annotations", "prometheus.io/scrape"}), want[0]}.check(t, all)
		path{"Job", slices.Concat(pod, []any{"metadata", "annotations", "prometheus.io/port"}), want[1]}.check(t, all)
		path{"Job", slices.Concat(pod, []any{"spec", "containers", 0, "ports", 1, "containerPort"}), want[2]}.check(t, all)
		if has := slices.Contains(s.command(), ":9464"); has != want[3] {
			t.Errorf("metrics %v: the command is %q", metrics, s.command())
		}
	}
}
