// Package k8s tests elrun in Kubernetes. It runs the pods of a manifest of "elrun k8s" as processes
// with addresses of the loopback interface. In tests that need root, a kubelet of this package runs
// the pods in namespaces, from an image of the Containerfile.
//
//	go test ./testing/k8s
//	make k8s
//
// make k8s runs the long form of TestCluster, with a real API server and real controllers over
// etcd. In the short form the test acts as API server and controllers.
package k8s
