package k8s

import (
	"bytes"
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

const (
	// Port is where the pods of a job ask each other who is in it.
	Port = 7473
	// ReadyPort is where a pod accepts connections while its peer is in the job: only such pods
	// count for the budget.
	ReadyPort = 7474
	// user runs the pods: a number that no image gives a name.
	user = 65532
	// grace is how many seconds a pod has to leave, more than elrun gives its peers.
	grace = 60
	// retries is how often a pod of one index is replaced that has failed by itself or was
	// deleted. Evictions do not count.
	retries = 10

	peerName   = "peer" // of the container and of the port
	keyFolder  = "/etc/elrun"
	keyName    = "key"
	scratch    = "/tmp"
	jobLabel   = "batch.kubernetes.io/job-name" // each pod of a Job has it
	addressEnv = "POD_IP"
)

// Manifest returns the manifest as YAML. key is what lets a pod into the job; it stands in
// the Secret alone.
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

// objects returns them in the order in which they are to be made.
func (s *Spec) objects(key string) []object {
	all := []object{
		{APIVersion: "v1", Kind: "Secret", Metadata: s.metadata(), Type: "Opaque", StringData: labels{keyName: key}},
		{APIVersion: "v1", Kind: "Service", Metadata: s.metadata(), Spec: serviceSpec{ClusterIP: "None",
			PublishNotReadyAddresses: true, // a pod that starts has to find those that do the same
			Selector:                 s.pods(), Ports: []port{{Name: peerName, Port: Port, Protocol: "TCP"}}}},
	}
	if s.Peers > 1 {
		// A number: Kubernetes refuses every eviction of a Job's pods for other forms. Below the
		// number of pods, or else no node could be drained.
		all = append(all, object{APIVersion: "policy/v1", Kind: "PodDisruptionBudget", Metadata: s.metadata(),
			Spec: budgetSpec{MinAvailable: s.Peers / 2, UnhealthyPodEvictionPolicy: "AlwaysAllow", Selector: selector{s.pods()}}})
	}
	job := object{APIVersion: "batch/v1", Kind: "Job", Metadata: s.metadata(), Spec: s.job()}
	s.addQueue(&job.Metadata)
	return append(all, job)
}

// metadata is what all objects have.
func (s *Spec) metadata() metadata {
	return metadata{Name: s.Name, Namespace: s.Namespace, Labels: s.labels()}
}

// labels are those that Kubernetes recommends.
func (s *Spec) labels() labels {
	return labels{"app.kubernetes.io/name": "elrun", "app.kubernetes.io/instance": s.Name}
}

// pods selects the job's pods.
func (s *Spec) pods() labels { return labels{jobLabel: s.Name} }

// addQueue hands the Job to Kueue. It can then change size while it runs, or else begin
// with fewer pods than wanted.
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

// job is the Job. A pod that ends with status 0 has seen the job's end, and with it the Job
// is complete. A wrong command line (2) is as wrong in the next pod.
func (s *Spec) job() jobSpec {
	return jobSpec{CompletionMode: "Indexed", Completions: s.Peers, Parallelism: s.Peers,
		BackoffLimitPerIndex: retries, PodReplacementPolicy: "Failed",
		SuccessPolicy: successPolicy{[]successRule{{SucceededCount: 1}}},
		PodFailurePolicy: failurePolicy{[]failureRule{
			{Action: "Ignore", OnPodConditions: []podCondition{{Type: "DisruptionTarget", Status: "True"}}},
			{Action: "FailJob", OnExitCodes: &exitCodes{ContainerName: peerName, Operator: "In", Values: []int{2}}},
		}},
		Template: podTemplate{Metadata: metadata{Labels: s.labels()}, Spec: s.pod()}}
}

// pod is what all pods are.
func (s *Spec) pod() podSpec {
	return podSpec{Subdomain: s.Name, RestartPolicy: "Never", TerminationGracePeriodSeconds: grace,
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

// container runs elrun with one peer. Sockets and temporary files are in the scratch folder.
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

// command is the same for all indexes.
func (s *Spec) command() []string {
	command := []string{"elrun", "run", "--name", s.Name, "-n", "1",
		"--discover", fmt.Sprintf("dns:%s:%d", s.Name, Port), "--key-file", keyFolder + "/" + keyName, "--start-with", strconv.Itoa(s.Peers/2 + 1),
		"--ready-port", strconv.Itoa(ReadyPort),
		"--listen", "$(" + addressEnv + ")", "--min-peers", strconv.Itoa(cmp.Or(s.MinPeers, 1)), "--"}
	for _, word := range s.Program {
		command = append(command, strings.ReplaceAll(word, "$", "$$")) // or Kubernetes would look for $(NAME)
	}
	return command
}
