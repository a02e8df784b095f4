package inpeer

import (
	"strings"
	"testing"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/launch/internal/wire"
)

func TestInitAlone(t *testing.T) {
	if Launched() {
		t.Skip("this test was itself started by elrun")
	}
	g, err := Init(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s, err := g.Sessions().Next(t.Context(), 0)
	if err != nil || s.Comm.Size() != 1 {
		t.Fatalf("got %+v, %v", s, err)
	}
	if err := collective.Barrier(t.Context(), s.Comm); err != nil {
		t.Error(err)
	}
	if err := g.Close(); err != nil {
		t.Error(err)
	}
}

func TestInitHalfSet(t *testing.T) {
	t.Setenv(wire.EnvJob, "job")
	if _, err := Init(t.Context()); err == nil || !strings.Contains(err.Error(), wire.EnvFD) {
		t.Errorf("got %v, want an error that names what is missing", err)
	}
}

// A child process of a peer inherits the environment, but not the socket.
func TestInitWithoutSocket(t *testing.T) {
	for _, v := range (wire.Environment{Job: "job", Peers: 1, FD: 1 << 19, Transport: "auto", Listen: "local"}).List() {
		name, value, _ := strings.Cut(v, "=")
		t.Setenv(name, value)
	}
	if _, err := Init(t.Context()); err == nil || !strings.Contains(err.Error(), "not a socket to a launcher") {
		t.Errorf("got %v", err)
	}
}
