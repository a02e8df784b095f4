// Package k8s holds the tests of elrun in Kubernetes. In the short form the test makes pods by
// hand of what "elrun k8s" prints: processes with addresses of their own on the loopback
// interface, and a DNS server of the test.
//
//	go test ./testing/k8s
//	make k8s
//
// make k8s runs the long form, as root: a real API server and controllers over etcd, and a
// kubelet of the test, which runs pods as processes in namespaces.
package k8s
