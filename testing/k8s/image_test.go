package k8s

import (
	"debug/elf"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/elrun/elrun/testing/process"
)

// image is the image that a container engine builds from the Containerfile.
type image struct {
	root       string
	env        []string
	user       string
	entrypoint []string
}

// buildImage performs the instructions of the Containerfile in a folder. The map sources has other
// paths for sources that are not taken from the repository.
func buildImage(t *testing.T, root string, sources map[string]string) image {
	t.Helper()
	text, err := os.ReadFile("../../Containerfile")
	if err != nil {
		t.Fatal(err)
	}
	im := image{root: root}
	for line := range strings.Lines(string(text)) {
		word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch word {
		case "", "#", "#\tmake", "LABEL":
		case "FROM":
			if rest != "scratch" {
				t.Fatalf("FROM %s: want scratch", rest)
			}
		case "COPY":
			im.copy(t, strings.Fields(rest), sources)
		case "ENV":
			im.env = append(im.env, rest)
		case "USER":
			im.user = rest
		case "ENTRYPOINT":
			if err := json.Unmarshal([]byte(rest), &im.entrypoint); err != nil {
				t.Fatal(err)
			}
		default:
			t.Fatalf("%q: an engine knows this, the test does not", line)
		}
	}
	return im
}

// copy performs COPY. It copies files to a folder. If a source is a folder, it copies the contents of the source.
func (im image) copy(t *testing.T, words []string, sources map[string]string) {
	t.Helper()
	into := words[len(words)-1]
	target := filepath.Join(im.root, into)
	for _, source := range words[:len(words)-1] {
		from, ok := sources[source]
		if !ok {
			from = filepath.Join("../..", source)
		}
		info, err := os.Stat(from)
		if err != nil {
			t.Fatal(err)
		}
		if !info.IsDir() {
			run(t, "install", "-D", "-m", "0755", from, filepath.Join(target, path.Base(source)))
			continue
		}
		run(t, "mkdir", "-p", target)
		run(t, "cp", "-RL", from+"/.", target)
	}
}

// run runs a command.
func run(t *testing.T, words ...string) {
	t.Helper()
	if out, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %v: %s", words, err, out)
	}
}

// find finds a command in the image, as a container runtime does.
func (im image) find(command string) (string, error) {
	for _, e := range im.env {
		list, ok := strings.CutPrefix(e, "PATH=")
		if !ok {
			continue
		}
		for _, dir := range filepath.SplitList(list) {
			if info, err := os.Stat(filepath.Join(im.root, dir, command)); err == nil && info.Mode()&0o111 != 0 {
				return filepath.Join(dir, command), nil
			}
		}
	}
	return "", errors.New(command + " is not in the PATH of the image")
}

// An image from the Containerfile contains the manifest's command and the program. Both are
// statically linked, and run as a user other than root.
func TestContainerfile(t *testing.T) {
	data, mnist := t.TempDir(), process.Example(t, "mnist")
	im := buildImage(t, t.TempDir(), map[string]string{"bin/elrun": process.Elrun(), "bin/mnist": mnist, "data/mnist": data})
	if !slices.Equal(im.entrypoint, []string{"/bin/elrun"}) || im.user != "65532:65532" {
		t.Errorf("%q as %q", im.entrypoint, im.user)
	}
	for _, command := range []string{"elrun", "mnist"} {
		name, err := im.find(command)
		if err != nil {
			t.Fatal(err)
		}
		if !isStatic(t, filepath.Join(im.root, name)) {
			t.Errorf("%s is not static", name)
		}
	}
}

// isStatic reports whether a program is statically linked.
func isStatic(t *testing.T, path string) bool {
	t.Helper()
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	return !slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP })
}
