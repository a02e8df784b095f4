package slurm

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/elrun/elrun/testing/process"
)

// blocks returns the indented blocks in the section about Slurm in docs/hosts.md.
func blocks(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile("../../docs/hosts.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## Slurm\n")
	section, _, _ = strings.Cut(section, "\n## ")
	var out []string
	for part := range strings.SplitSeq(strings.TrimLeft(section, "\n"), "\n\n") {
		if strings.HasPrefix(part, "    ") {
			out = append(out, strings.ReplaceAll(strings.TrimPrefix(part, "    "), "\n    ", "\n"))
		}
	}
	return out
}

// The commands about Slurm in docs/hosts.md have the documented effect. Each command runs in a
// folder that has a program named train, as in the document. Commands that contain the number of a
// job run while this job runs.
func documented(t *testing.T, l *lab) {
	script, ran := "", 0
	for _, block := range blocks(t) {
		switch {
		case strings.HasPrefix(block, "#!"):
			script = block + "\n"
			continue
		case strings.Contains(block, "--jobid=12"):
			l.grows(t, block)
		default:
			l.obeys(t, block, script)
		}
		ran++
	}
	if ran != 4 {
		t.Errorf("%d blocks were run", ran)
	}
}

// obeys runs a command that starts a job, and checks the result of the job. script is the content
// of job.sh in the command's folder.
func (l *lab) obeys(t *testing.T, command, script string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "job.sh"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	command = strings.Replace(command, "sbatch ", "sbatch --wait --output=out ", 1)
	l.again(t, dir, "sh", "-c", command).finishes(t, 0)
}

// grows runs commands that add two peers to a running job of three.
func (l *lab) grows(t *testing.T, commands string) {
	t.Helper()
	j := l.start(t, perNode("elrun", "--events", "events", "./train")...)
	j.trains(t, 3)
	more := l.again(t, j.dir, "sh", "-c", strings.ReplaceAll(commands, "--jobid=12", "--jobid="+j.id(t)))
	j.trains(t, 5)
	j.finishes(t, 0)
	if status := more.p.Wait(t); status != 0 {
		t.Errorf("%s: status %d", commands, status)
	}
	process.Until(t, "the end of all jobs", func() bool { return l.slurm(t, "squeue", "-h") == "" })
}
