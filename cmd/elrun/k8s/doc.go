// Package k8s makes the Kubernetes manifest of a job:
//
//	spec := k8s.Spec{Name: "mnist", Image: "registry.example/mnist:1", Peers: 4, Program: []string{"mnist"}}
//	text, err := spec.Manifest(k8s.NewKey())
//
// It is a pure function of the spec and the key. The manifest has four objects, which all
// have the name of the job:
//
//   - a Secret with the key, which lets a pod into the job,
//   - a headless Service, whose DNS name has the addresses of all pods,
//   - a PodDisruptionBudget, for jobs of two pods or more,
//   - an Indexed Job with one pod for each peer; each runs the same command, which joins the
//     job, or starts it where no pod has.
//
// The pods fit the Pod Security Standard "restricted". The number of peers is changed by a
// patch of the Job's parallelism and completions, both to the same number.
package k8s
