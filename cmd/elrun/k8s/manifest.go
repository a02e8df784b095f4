package k8s

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

const (
	// Port is the TCP port at which the pods of a job find each other (rendezvous).
	Port = 7473
	// ReadyPort is the port of the readiness probe: a pod accepts connections while its peer is a
	// member. Only ready pods count for the disruption budget.
	ReadyPort = 7474
	// user is the user ID and group ID of the pods. It is not root, as the standard "restricted"
	// requires; the image need not define this user.
	user = 65532
	// defaultGrace is the default grace period of elrun with --discover. Kubernetes gives a pod
	// graceMargin more time to terminate, so that elrun ends the peers before Kubernetes kills the
	// pod.
	defaultGrace, graceMargin = 50 * time.Second, 10 * time.Second
	// retries is the number of replacements of each pod after failures or deletions. Evictions do
	// not count.
	retries = 10

	peerName   = "peer"                         // name of the container and of the port
	keyFolder  = "/etc/elrun"                   // mount point of the Secret
	keyName    = "key"                          // name of the file in keyFolder
	scratch    = "/tmp"                         // mount point of the only writable volume
	jobLabel   = "batch.kubernetes.io/job-name" // label that Kubernetes gives to each pod of a Job
	addressEnv = "POD_IP"                       // environment variable with the pod's address, for --listen
)

// Manifest returns the manifest as YAML. The key admits pods to the job; it is only in the
// Secret. For an invalid spec the error names the field.
func (s *Spec) Manifest(key string) ([]byte, error) {
	if err := s.Check(); err != nil {
		return nil, err
	}
	var out bytes.Buffer
	most := cmp.Or(s.MaxPeers, s.Peers)
	fmt.Fprintf(&out, "# Job %s of elrun. Another number of peers (1 to %d), here 2: kubectl patch job %s --patch '{\"spec\":{\"parallelism\":2,\"completions\":2}}'\n", s.Name, most, s.Name)
	e := yaml.NewEncoder(&out)
	e.SetIndent(2)
	for _, o := range s.objects(key) {
		if err := e.Encode(o); err != nil {
			return nil, fmt.Errorf("write the manifest: %w", err)
		}
	}
	if err := e.Close(); err != nil {
		return nil, fmt.Errorf("write the manifest: %w", err)
	}
	return out.Bytes(), nil
}

// objects returns the objects in the order of their creation.
func (s *Spec) objects(key string) []object {
	all := []object{
		{APIVersion: "v1", Kind: "Secret", Metadata: s.metadata(), Type: "Opaque", StringData: labels{keyName: key}},
		{APIVersion: "v1", Kind: "Service", Metadata: s.metadata(), Spec: serviceSpec{ClusterIP: "None",
			PublishNotReadyAddresses: true, // starting pods have to find each other
			Selector:                 s.pods(), Ports: []port{{Name: peerName, Port: Port, Protocol: "TCP"}}}},
	}
	if s.Peers > 1 {
		// The budget must be an absolute number: with other forms Kubernetes refuses all evictions
		// of a Job's pods. It must be below the number of pods, because otherwise no node could be
		// drained.
		all = append(all, object{APIVersion: "policy/v1", Kind: "PodDisruptionBudget", Metadata: s.metadata(),
			Spec: budgetSpec{MinAvailable: s.Peers / 2, UnhealthyPodEvictionPolicy: "AlwaysAllow", Selector: selector{s.pods()}}})
	}
	job := object{APIVersion: "batch/v1", Kind: "Job", Metadata: s.metadata(), Spec: s.job()}
	s.addQueue(&job.Metadata)
	return append(all, job)
}

// metadata returns the metadata that all objects share.
func (s *Spec) metadata() metadata {
	return metadata{Name: s.Name, Namespace: s.Namespace, Labels: s.labels()}
}

// labels returns the labels that Kubernetes recommends.
func (s *Spec) labels() labels {
	return labels{"app.kubernetes.io/name": "elrun", "app.kubernetes.io/instance": s.Name}
}

// pods returns the labels that select the job's pods.
func (s *Spec) pods() labels { return labels{jobLabel: s.Name} }

// addQueue assigns the Job to a queue of Kueue. Kueue allows one of two forms of elasticity: a Job
// that may grow (MaxPeers) changes its size while it runs; a Job with a minimum (MinPeers) may
// start with fewer pods than requested.
func (s *Spec) addQueue(m *metadata) {
	if s.Queue == "" {
		return
	}
	m.Labels["kueue.x-k8s.io/queue-name"] = s.Queue
	least := cmp.Or(s.MinPeers, 1)
	switch {
	case s.MaxPeers > s.Peers:
		m.Annotations = labels{"kueue.x-k8s.io/elastic-job": "true"}
	case least < s.Peers:
		m.Annotations = labels{"kueue.x-k8s.io/job-min-parallelism": strconv.Itoa(least),
			"kueue.x-k8s.io/job-completions-equal-parallelism": "true"}
	}
}

// job returns the Job. A pod that ends with status 0 has seen the end of the training, which
// completes the Job. Status 2 means a wrong command line, so a new pod would fail in the same way.
func (s *Spec) job() jobSpec {
	// An eviction (DisruptionTarget) is no failure of the program and does not count as a retry.
	// A pod is replaced only after its end, so that two pods of one index never run at the same
	// time.
	return jobSpec{CompletionMode: "Indexed", Completions: s.Peers, Parallelism: s.Peers,
		BackoffLimitPerIndex: retries, PodReplacementPolicy: "Failed",
		SuccessPolicy: successPolicy{[]successRule{{SucceededCount: 1}}},
		PodFailurePolicy: failurePolicy{[]failureRule{
			{Action: "Ignore", OnPodConditions: []podCondition{{Type: "DisruptionTarget", Status: "True"}}},
			{Action: "FailJob", OnExitCodes: &exitCodes{ContainerName: peerName, Operator: "In", Values: []int{2}}},
		}},
		Template: podTemplate{Metadata: metadata{Labels: s.labels()}, Spec: s.pod()}}
}

// pod returns the template of the pods. The pods are spread over the nodes as far as possible, so
// that the loss of a node costs few peers. The container's user may read the key because the key
// belongs to the group of the user (FSGroup, mode 0440).
func (s *Spec) pod() podSpec {
	return podSpec{Subdomain: s.Name, RestartPolicy: "Never", TerminationGracePeriodSeconds: int(math.Ceil((cmp.Or(s.Grace, defaultGrace) + graceMargin).Seconds())),
		SecurityContext: podSecurity{RunAsNonRoot: true, RunAsUser: user, RunAsGroup: user, FSGroup: user,
			SeccompProfile: typedObject{"RuntimeDefault"}},
		TopologySpreadConstraints: []spread{{MaxSkew: 1, TopologyKey: "kubernetes.io/hostname",
			WhenUnsatisfiable: "ScheduleAnyway", LabelSelector: selector{s.pods()}}},
		Containers: []container{s.container()},
		Volumes: []volume{
			{Name: "scratch", EmptyDir: &emptyDir{"1Gi"}},
			{Name: "key", Secret: &secretVolume{s.Name, 0o440}},
		}}
}

// container returns the container, which runs elrun with one peer. Its root file system is
// read-only: sockets and temporary files are in the scratch folder. There is no limit of CPU time,
// as a limit could throttle the pod in the middle of a step and so delay all other peers.
func (s *Spec) container() container {
	return container{Name: peerName, Image: s.Image, Command: s.command(),
		Env: []variable{
			{Name: addressEnv, ValueFrom: &fieldValue{fieldRef{"status.podIP"}}},
			{Name: "HOME", Value: scratch},
			{Name: "TMPDIR", Value: scratch},
		},
		ReadinessProbe: probe{portNumber{ReadyPort}, 2},
		Ports:          []port{{Name: peerName, ContainerPort: Port, Protocol: "TCP"}},
		Resources:      resources{Requests: labels{"cpu": s.CPU, "memory": s.Memory}, Limits: labels{"memory": s.Memory}},
		SecurityContext: containerSecurity{ReadOnlyRootFilesystem: true,
			Capabilities: capabilities{[]string{"ALL"}}},
		VolumeMounts: []mount{
			{Name: "scratch", MountPath: scratch},
			{Name: "key", MountPath: keyFolder, ReadOnly: true},
		}}
}

// command returns the command of the container. It is the same for all pods, which decide at run
// time which pod starts the job. More than half of the pods must be present to start the job, so
// that two halves cannot start a job each.
func (s *Spec) command() []argument {
	command := []argument{"elrun", "run", "--name", argument(s.Name), "-n", "1",
		"--discover", argument(fmt.Sprintf("dns:%s:%d", s.Name, Port)), "--key-file", keyFolder + "/" + keyName, "--start-with", number(s.Peers/2 + 1),
		"--ready-port", number(ReadyPort),
		"--listen", "$(" + addressEnv + ")", "--min-peers", number(cmp.Or(s.MinPeers, 1))}
	if s.Grace != 0 {
		command = append(command, "--grace", argument(s.Grace.String()))
	}
	command = append(command, "--")
	for _, word := range s.Program {
		command = append(command, argument(strings.ReplaceAll(word, "$", "$$"))) // Kubernetes replaces $(NAME), but not $$(NAME)
	}
	return command
}

// number returns n as an argument.
func number(n int) argument { return argument(strconv.Itoa(n)) }
