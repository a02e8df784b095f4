// Package k8s tests elrun in Kubernetes. The pods of a manifest of "elrun k8s" run as processes. They have addresses of the
// loopback interface. As root, a kubelet of this package runs them in namespaces, from an image of the Containerfile.
//
//	go test ./testing/k8s
//	make k8s
//
// make k8s runs the long form of TestCluster, with a real API server and real controllers over etcd. Otherwise the test acts as
// both.
package k8s
