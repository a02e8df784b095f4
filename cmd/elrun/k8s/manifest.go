package k8s

import (
	"bytes"
	"cmp"
	_ "embed" // manifestText
	"fmt"
	"math"
	"strconv"
	"strings"
	"text/template"
	"time"
)

const (
	// Port is the TCP port at which the pods of a job find each other (rendezvous).
	Port = 7473
	// ReadyPort is the port of the readiness probe: a pod accepts connections while its peer is a
	// member. Only ready pods count for the disruption budget.
	ReadyPort = 7474
	// MetricsPort is the port of the metrics.
	MetricsPort = 9464
	// defaultGrace is the default grace period of elrun with --discover. Kubernetes gives a pod
	// graceMargin more time to terminate, so that elrun ends the peers before Kubernetes kills the
	// pod.
	defaultGrace, graceMargin = 50 * time.Second, 10 * time.Second
	// keyFolder is the mount point of the Secret, whose file is named key.
	keyFolder = "/etc/elrun"
)

//go:embed manifest.yaml.tmpl
var manifestText string

// manifest is the data of the template.
type manifest struct {
	Spec               // with its defaults
	Key       string   // admits pods to the job
	Command   []string // of the container
	Budget    int      // pods that remain while nodes are drained
	Seconds   int      // from SIGTERM to SIGKILL
	KeyFolder string

	Port, ReadyPort, MetricsPort int
}

// Manifest returns the manifest as YAML. The key admits pods to the job; it is only in the
// Secret. For an invalid spec the error names the field.
func (s *Spec) Manifest(key string) ([]byte, error) {
	if err := s.Check(); err != nil {
		return nil, err
	}
	m := manifest{Spec: *s, Key: key, Command: s.command(), Budget: s.Peers / 2, Port: Port, ReadyPort: ReadyPort, MetricsPort: MetricsPort, KeyFolder: keyFolder,
		Seconds: int(math.Ceil((cmp.Or(s.Grace, defaultGrace) + graceMargin).Seconds()))}
	m.MinPeers, m.MaxPeers = cmp.Or(s.MinPeers, 1), cmp.Or(s.MaxPeers, s.Peers)
	// The template quotes texts as Go does (%q): each escape of Go means the same in YAML, and
	// every character that is not printable, such as a line break of YAML, is escaped.
	t, err := template.New("manifest").Parse(manifestText)
	if err != nil {
		return nil, fmt.Errorf("write the manifest: %w", err)
	}
	var out bytes.Buffer
	if err := t.Execute(&out, m); err != nil {
		return nil, fmt.Errorf("write the manifest: %w", err)
	}
	return out.Bytes(), nil
}

// command returns the command of the container. It is the same for all pods, which decide at run
// time which pod starts the job. More than half of the pods must be present to start the job, so
// that two halves cannot start a job each.
func (s *Spec) command() []string {
	command := []string{"elrun", "run", "--name", s.Name, "-n", "1",
		"--discover", fmt.Sprintf("dns:%s:%d", s.Name, Port), "--key-file", keyFolder + "/key", "--start-with", strconv.Itoa(s.Peers/2 + 1),
		"--ready-port", strconv.Itoa(ReadyPort), "--listen", "$(POD_IP)", "--min-peers", strconv.Itoa(cmp.Or(s.MinPeers, 1))}
	if s.Grace != 0 {
		command = append(command, "--grace", s.Grace.String())
	}
	if s.Metrics {
		command = append(command, "--metrics", fmt.Sprintf(":%d", MetricsPort))
	}
	command = append(command, "--")
	for _, word := range s.Program {
		command = append(command, strings.ReplaceAll(word, "$", "$$")) // Kubernetes replaces $(NAME), but not $$(NAME)
	}
	return command
}
