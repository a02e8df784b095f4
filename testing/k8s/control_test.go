package k8s

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/elrun/elrun/testing/process"
)

// kubernetes is the version of the control plane.
const kubernetes = "1.37.2"

// programs lists the programs of the control plane that are built.
func programs() []string { return []string{"kube-apiserver", "kube-controller-manager"} }

// buildControlPlane returns the folder with the programs of the control plane. It builds programs
// that are not in the user's cache from sources of the module proxy, which takes many minutes.
func buildControlPlane(t *testing.T) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(cache, "elrun", "kubernetes-v"+kubernetes)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	module := ""
	for _, name := range programs() {
		out := filepath.Join(dir, name)
		if _, err := os.Stat(out); err == nil {
			continue
		}
		if module == "" {
			module = writeModule(t)
		}
		t.Logf("building %s", out)
		goCommand(t, module, "build", "-mod=mod", "-trimpath", "-ldflags=-s -w -X k8s.io/component-base/version.gitVersion=v"+kubernetes, "-o", out+".part", "./"+name)
		if err := os.Rename(out+".part", out); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// writeModule creates a module with a main package for each program. Kubernetes also releases the libraries in its repository as
// modules, with versions of their own.
func writeModule(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	file := goCommand(t, dir, "list", "-m", "-f", "{{.GoMod}}", "k8s.io/kubernetes@v"+kubernetes)
	text, err := os.ReadFile(strings.TrimSpace(file))
	if err != nil {
		t.Fatal(err)
	}
	staging := "v0" + strings.TrimPrefix(kubernetes, "1")
	var mod strings.Builder
	fmt.Fprintf(&mod, "module control\n\ngo 1.26.0\n\nrequire k8s.io/kubernetes v%s\n\n", kubernetes)
	for _, m := range regexp.MustCompile(`(k8s\.io/\S+) => \./staging`).FindAllStringSubmatch(string(text), -1) {
		fmt.Fprintf(&mod, "replace %s => %s %s\n", m[1], m[1], staging)
	}
	write(t, filepath.Join(dir, "go.mod"), mod.String())
	for name, command := range map[string]string{"kube-apiserver": "NewAPIServerCommand", "kube-controller-manager": "NewControllerManagerCommand"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, name, "main.go"), fmt.Sprintf(`package main

import (
	"os"

	"k8s.io/component-base/cli"
	"k8s.io/kubernetes/cmd/%s/app"
)

func main() { os.Exit(cli.Run(app.%s())) }
`, name, command))
	}
	return dir
}

// goCommand runs the go command in a folder and returns its output.
func goCommand(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off")
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		t.Fatalf("go %v: %v: %s", args, err, process.Tail(string(exit.Stderr), 4000))
	}
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// write writes a file that only this user may read.
func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// startControlPlane starts etcd, the API server and the controllers on ports of the loopback interface. It returns a client of
// the API.
func startControlPlane(t *testing.T) *client {
	t.Helper()
	bin, dir := buildControlPlane(t), t.TempDir()
	ports := freePorts(t, 4)
	token := rand.Text()
	write(t, filepath.Join(dir, "tokens.csv"), token+",admin,1,system:masters\n")
	key := filepath.Join(dir, "accounts.key")
	write(t, key, newKey(t))
	store := "http://127.0.0.1:" + ports[0]
	begin := func(words ...string) { process.Start(t, exec.Command(words[0], words[1:]...)) }
	begin("etcd", "--data-dir", filepath.Join(dir, "etcd"), "--unsafe-no-fsync", "--listen-client-urls", store, "--advertise-client-urls", store,
		"--listen-peer-urls", "http://127.0.0.1:"+ports[1])
	plain := &client{url: store, http: http.DefaultClient}
	plain.ready(t, "etcd", "/health")
	begin(filepath.Join(bin, "kube-apiserver"), "--etcd-servers", store, "--bind-address", "127.0.0.1", "--secure-port", ports[2],
		"--cert-dir", dir, "--token-auth-file", filepath.Join(dir, "tokens.csv"), "--authorization-mode", "RBAC",
		"--service-account-issuer", "https://kubernetes.default.svc", "--service-account-signing-key-file", key, "--service-account-key-file", key,
		"--service-cluster-ip-range", "10.96.0.0/16", "--disable-admission-plugins", "ServiceAccount")
	url, certificate := "https://127.0.0.1:"+ports[2], filepath.Join(dir, "apiserver.crt")
	process.Until(t, "the API server's certificate", func() bool { _, err := os.Stat(certificate); return err == nil })
	api, err := newClient(url, token, certificate)
	if err != nil {
		t.Fatal(err)
	}
	api.ready(t, "the API server", "/readyz")
	config := filepath.Join(dir, "kubeconfig")
	write(t, config, fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"x",
"clusters":[{"name":"x","cluster":{"server":%q,"certificate-authority":%q}}],
"users":[{"name":"x","user":{"token":%q}}],"contexts":[{"name":"x","context":{"cluster":"x","user":"x"}}]}`, url, certificate, token))
	begin(filepath.Join(bin, "kube-controller-manager"), "--kubeconfig", config, "--leader-elect=false", "--bind-address", "127.0.0.1",
		"--secure-port", ports[3], "--cert-dir", dir, "--service-account-private-key-file", key)
	return api
}

// ready waits until a server reports that it is ready.
func (c *client) ready(t *testing.T, what, path string) {
	t.Helper()
	process.Until(t, what, func() bool { _, err := c.get(context.Background(), path); return err == nil })
}

// newKey creates the signing key for service accounts.
func newKey(t *testing.T) string {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}))
}

// freePorts returns unused ports of the loopback interface.
func freePorts(t *testing.T, n int) (ports []string) {
	t.Helper()
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close() // keeps the port in use until all ports are found
		_, port, err := net.SplitHostPort(l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		ports = append(ports, port)
	}
	return ports
}
