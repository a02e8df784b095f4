package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/elrun/elrun/cmd/elrun/k8s"
	"github.com/elrun/elrun/launch"
)

// k8sCommand is the command elrun k8s. It needs no cluster: it only prints a manifest, for
// kubectl apply -f -.
type k8sCommand struct {
	Name      string         `required:"" placeholder:"JOB" help:"Name of the job and of its objects."`
	Image     string         `required:"" placeholder:"IMAGE" help:"Image with elrun and PROGRAM in its PATH."`
	Peers     peerCount      `required:"" placeholder:"N" help:"Pods to begin with, one peer in each."`
	Max       int            `placeholder:"N" help:"Largest number of pods to which you may patch the Job later (default: --peers)."`
	MinPeers  int            `default:"1" placeholder:"N" help:"Smallest number of peers to train with; with fewer the job waits (${default})."`
	Namespace string         `placeholder:"NS" help:"Namespace of the objects (default: the namespace of kubectl)."`
	CPU       string         `name:"cpu" default:"1" placeholder:"Q" help:"Cores that each pod asks for, as in 500m or 2 (${default})."`
	Memory    string         `default:"1Gi" placeholder:"Q" help:"Memory that each pod asks for, and gets at most (${default})."`
	Grace     *time.Duration `placeholder:"D" help:"How long a pod that has to end may take to leave the job and to save a checkpoint (default: 50s); Kubernetes kills it 10 s later."`
	Metrics   bool           `help:"Serve the figures of the job to Prometheus, at the port metrics of each pod."`
	Queue     string         `placeholder:"QUEUE" help:"LocalQueue of Kueue that decides when the job may start."`
	DryRun    bool           `help:"Print the manifest, as without this flag: elrun k8s starts nothing, and connects to nothing."`
	Program   []string       `arg:"" passthrough:"all" help:"Program in the image, and its arguments."`
}

// Validate implements kong's validation: its errors are usage errors.
func (k *k8sCommand) Validate() error { return checkGrace(k.Grace) }

// Run prints the Kubernetes manifest of a job, with a new random key. So two manifests made with
// the same flags differ in the Secret: apply only one of them.
func (k *k8sCommand) Run(t *terminal) error {
	spec := k8s.Spec{Name: k.Name, Namespace: k.Namespace, Image: k.Image, Peers: int(k.Peers), MinPeers: k.MinPeers, MaxPeers: k.Max,
		CPU: k.CPU, Memory: k.Memory, Queue: k.Queue, Metrics: k.Metrics, Program: k.Program}
	if k.Grace != nil {
		spec.Grace = *k.Grace
	}
	// kong leaves the "--" before the program in a passthrough argument.
	if len(spec.Program) > 0 && spec.Program[0] == "--" {
		spec.Program = slices.Clone(spec.Program[1:])
	}
	text, err := spec.Manifest(k8s.NewKey())
	if err != nil {
		return fmt.Errorf("%w: %w", launch.ErrOptions, err)
	}
	_, err = t.stdout.Write(text)
	return err
}
