// Package k8s generates the Kubernetes manifest of a job:
//
//	spec := k8s.Spec{Name: "mnist", Image: "registry.example/mnist:1", Peers: 4, Program: []string{"mnist"}}
//	text, err := spec.Manifest(k8s.NewKey())
//
// The manifest is a pure function of the spec and the key. It has up to four objects, all with
// the name of the job:
//
//   - a Secret with the key that admits a pod to the job,
//   - a headless Service, whose DNS name resolves to the addresses of all pods,
//   - a PodDisruptionBudget, for jobs of two pods or more,
//   - an Indexed Job with one pod for each peer. All pods run the same command, which joins the
//     job, or starts the job if no other pod has started it.
//
// The pods conform to the Pod Security Standard "restricted". To change the number of peers,
// patch the Job's parallelism and completions to the same number.
package k8s
