// Package k8s holds the tests of elrun in Kubernetes. Pods of what "elrun k8s" prints run as
// processes: on addresses of the loopback interface, or, as root, in namespaces, by a kubelet of
// the test and as an image of the Containerfile.
//
//	go test ./testing/k8s
//	make k8s
//
// make k8s runs TestCluster in its long form: under a real API server and controllers over etcd.
// Elsewhere the test stands for both.
package k8s
