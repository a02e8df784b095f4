package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/elrun/elrun/testing/process"
)

// Peers that start together with different flags or data do not train. The job ends with status 1, and elrun names the flag, both
// values and the peer.
func TestPeersDifferAtTheStart(t *testing.T) {
	program, data := mnist(t)
	other := otherData(t, data)
	for flags, want := range map[string]string{
		"--lr 0.3":        "peer 2 has --lr 0.3, the others have 0.2",
		"--seed 5":        "peer 2 has --seed 5, the others have 1",
		"--microbatch 8":  "peer 2 has --microbatch 8, the others have 16",
		"--exact":         "peer 2 has --exact true, the others have false",
		"--compress bf16": "peer 2 has --compress bf16, the others have none",
		"--data " + other: fmt.Sprintf("peer 2 has --data %s with 60000 images, the others have %s with 60000 images", other, data),
	} {
		t.Run(strings.Fields(flags)[0], func(t *testing.T) {
			e := &elrun{job: process.NewJob(t)}
			script := fmt.Sprintf(`[ "$ELRUN_INDEX" = 2 ] && set -- "$@" %s; exec "$@"`, flags)
			e.launch(t, []string{"-n", "4", "--name", e.job.Name, "--listen", listen(), "sh", "-c", script, "sh",
				program, "--data", data, "--model", "softmax", "--steps", "500"})
			if status := e.Wait(t); status != 1 {
				t.Errorf("status %d, want 1", status)
			}
			e.Expect(t, "elrun: the job cannot begin: "+want)
			if strings.Contains(e.Out.String(), "done steps=") {
				t.Error("there is a result")
			}
		})
	}
}

// A newcomer with another setting or other data is refused and ends with status 1, and the job goes on.
func TestNewcomerDiffers(t *testing.T) {
	s := startSoftmax(t, "--pace", "100us", "--steps", "1000000")
	s.expectStep(t, 5)
	_, data := mnist(t)
	other := otherData(t, data)
	for flags, want := range map[string]string{
		"--lr 0.3":        "--lr is 0.2 in the job and 0.3 at the peer",
		"--model mlp":     "--model is softmax in the job and mlp at the peer",
		"--data " + other: fmt.Sprintf("--data is %s with 60000 images in the job and %s with 60000 images at the peer", data, other),
	} {
		late := &elrun{job: s.job}
		late.launch(t, slices.Concat([]string{"join", "--name", s.job.Name, "-n", "1", "--listen", listen()}, s.program, strings.Fields(flags)))
		if status := late.Wait(t); status != 1 {
			t.Errorf("%s: status %d, want 1", flags, status)
		}
		late.Expect(t, want)
	}
	s.goOn(t, 5)
	s.stopped(t)
	if status := s.Wait(t); status != 0 {
		t.Errorf("status %d", status)
	}
	if n := len(s.times(t)[5]); n > 0 {
		t.Errorf("%d steps with five members", n)
	}
}

// otherData copies MNIST to a new folder, changes one pixel of a training image, and returns the
// folder.
func otherData(t *testing.T, data string) string {
	t.Helper()
	dir := t.TempDir()
	files, err := filepath.Glob(filepath.Join(data, "*-ubyte"))
	if err != nil || len(files) == 0 {
		t.Skipf("no plain files in %s", data)
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(f, "train-images") {
			b[len(b)-1]++
		}
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(f)), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
