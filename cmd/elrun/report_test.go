package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Runs are compared as a table and as a page, each by a name that no other has.
func TestReportCompare(t *testing.T) {
	const log = "../../event/trace/testdata/job.jsonl.gz"
	dir := t.TempDir()
	b, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(dir, "job.jsonl.gz")
	if err := os.WriteFile(other, b, 0o600); err != nil {
		t.Fatal(err)
	}
	table, errs, status := command(t, "report", "--compare", log, other)
	if status != 0 || !strings.Contains(table, log) || !strings.Contains(table, other) {
		t.Errorf("status %d, errors %q\n%s", status, errs, table)
	}
	page := filepath.Join(dir, "runs.html")
	if out, errs, status := command(t, "report", "--compare", log, other, "-o", page); status != 0 || out != "" {
		t.Fatalf("status %d, output %q, errors %q", status, out, errs)
	}
	if b, err = os.ReadFile(page); err != nil || len(b) > 3<<20 || !strings.Contains(string(b), `"results":[{"name":"end"`) {
		t.Errorf("a page of %d bytes, %v", len(b), err)
	}
	for want, args := range map[string][]string{
		"two runs or more":         {log, "-o", page},
		"at most 8 runs":           {log, log, log, log, log, log, log, log, log, "-o", page},
		"--json, --csv, and":       {log, log, "--csv"},
		"no such file":             {log, filepath.Join(dir, "none")},
		"no such file or director": {log, log, "-o", filepath.Join(dir, "none", "runs.html")},
	} {
		if _, errs, status := command(t, append([]string{"report", "--compare"}, args...)...); status != statusUsage && status != statusFailed || !strings.Contains(errs, want) {
			t.Errorf("%v: status %d, %q", args, status, errs)
		}
	}
}
