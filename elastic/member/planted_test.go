package member_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// plantedSeeds is the number of seeds within which the simulator must find a planted bug.
const plantedSeeds = 50000

// mutation is a bug to plant: a piece of a file, and its replacement.
type mutation struct{ name, file, before, after string }

// mutations reads testdata/planted.txt: for each bug a line "# name", a line with the file, and the
// two pieces of text, separated by a line "=>".
func mutations(t *testing.T) []mutation {
	text, err := os.ReadFile("testdata/planted.txt")
	if err != nil {
		t.Fatal(err)
	}
	var all []mutation
	for _, entry := range strings.Split(strings.TrimSpace(string(text)), "\n\n") {
		head, body, _ := strings.Cut(strings.TrimPrefix(entry, "# "), "\n")
		file, body, _ := strings.Cut(body, "\n")
		before, after, found := strings.Cut(body, "\n=>\n")
		if !found {
			t.Fatalf("planted bug %q lacks a line \"=>\"", head)
		}
		all = append(all, mutation{head, file, before, after})
	}
	return all
}

// plant returns the text of the file with the bug. The original piece must occur exactly once, so a
// change of the code may need a change of the list.
func (m mutation) plant() (string, error) {
	text, err := os.ReadFile(m.file)
	if err != nil {
		return "", err
	}
	if n := strings.Count(string(text), m.before); n != 1 {
		return "", fmt.Errorf("%s has %d times, not once:\n%s", m.file, n, m.before)
	}
	return strings.Replace(string(text), m.before, m.after, 1), nil
}

// The list of planted bugs fits the code.
func TestPlantedListFits(t *testing.T) {
	for _, m := range mutations(t) {
		if _, err := m.plant(); err != nil {
			t.Errorf("%s: %v", m.name, err)
		}
	}
}

// The simulator or a script finds every planted bug. The test takes minutes:
//
//	go test ./elastic/member -run Planted -planted -v
func TestPlanted(t *testing.T) {
	if !flagged[bool]("planted") {
		return // TestPlantedListFits checks the list in every run
	}
	for _, m := range mutations(t) {
		t.Run(strings.ReplaceAll(m.name, " ", "_"), func(t *testing.T) {
			overlay := overlayOf(t, m)
			script, seed := find(t, overlay)
			t.Logf("found by: scripts %s, seed %s", script, seed)
			if script == "none" && seed == "none" {
				t.Errorf("not found in %d seeds nor by a script", plantedSeeds)
			}
		})
	}
}

// overlayOf writes the file for the -overlay flag of the go command, with the bug.
func overlayOf(t *testing.T, m mutation) string {
	text, err := m.plant()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	original, err := filepath.Abs(m.file)
	if err != nil {
		t.Fatal(err)
	}
	mutant, overlay := filepath.Join(dir, m.file), filepath.Join(dir, "overlay.json")
	b, err := json.Marshal(map[string]map[string]string{"Replace": {original: mutant}})
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{mutant: []byte(text), overlay: b} {
		if err := os.WriteFile(name, content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return overlay
}

// find returns the scripts and the seed that find the bug, or "none".
func find(t *testing.T, overlay string) (scripts, seed string) {
	scripts, seed = "none", "none"
	if out, failed := goTest(overlay, "-run=TestScripts"); failed {
		var names []string
		for _, m := range regexp.MustCompile(`--- FAIL: TestScripts/(\w+)`).FindAllStringSubmatch(out, -1) {
			names = append(names, m[1])
		}
		scripts = strings.Join(names, ",")
		if len(names) == 0 {
			t.Fatalf("it does not compile, or ends the tests:\n%s", out)
		}
	}
	if out, failed := goTest(overlay, "-run=TestSimulate", fmt.Sprintf("-seeds=%d", plantedSeeds)); failed {
		seed = "hangs"
		if m := regexp.MustCompile(`(?m)seed (\d+: .*)$`).FindAllStringSubmatch(out, -1); m != nil {
			seed = m[len(m)-1][1]
		}
	}
	return scripts, seed
}

// goTest runs this package's tests with the bug.
func goTest(overlay string, args ...string) (output string, failed bool) {
	args = append([]string{"test", "-overlay=" + overlay, "-count=1", "-vet=off", "-timeout=300s", "."}, args...)
	out, err := exec.Command("go", args...).CombinedOutput()
	return string(out), err != nil
}
