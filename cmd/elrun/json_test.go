package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/elrun/elrun/cmd/elrun/bench"
	"github.com/elrun/elrun/cmd/elrun/summary"
	"github.com/elrun/elrun/collective/flight"
	"github.com/elrun/elrun/event/timeline"
	"github.com/elrun/elrun/launch"
)

// Each command has --json and a line in the document about it, or is known to print no table.
func TestJSONOfEachCommand(t *testing.T) {
	tableless := strings.Fields("run join dashboard ticket kick scale checkpoint stop bootstrap k8s completion version help")
	text, err := os.ReadFile("../../docs/json.md")
	if err != nil {
		t.Fatal(err)
	}
	var c commands
	parser, err := newParser(&c, &terminal{stdout: os.Stdout, stderr: os.Stderr}, func(int) {})
	if err != nil {
		t.Fatal(err)
	}
	for _, node := range parser.Model.Children {
		has := false
		for _, flag := range node.Flags {
			has = has || flag.Name == "json"
		}
		switch {
		case node.Hidden:
		case has == slices.Contains(tableless, node.Name):
			t.Errorf("elrun %s: has --json is %v: give a command that prints a table --json, and others a place in tableless", node.Name, has)
		case has && !regexp.MustCompile("`elrun "+node.Name+" [^`]*--json`").Match(text):
			t.Errorf("docs/json.md does not tell what elrun %s --json prints", node.Name)
		}
	}
}

// The document names the fields of what --json prints, and no other ones.
func TestFieldsInDocument(t *testing.T) {
	text, err := os.ReadFile("../../docs/json.md")
	if err != nil {
		t.Fatal(err)
	}
	sections := make(map[string]string)
	for part := range strings.SplitSeq(string(text), "\n## ") {
		name, body, _ := strings.Cut(part, "\n")
		sections[name] = body
	}
	for name, types := range map[string][]any{
		"Job": {launch.Status{}, launch.MemberStatus{}, launch.PeerPath{}, launch.Balanced{}, launch.Ended{}}, "Snapshot": {timeline.Snapshot{}},
		"Comparison": {summary.Comparison{}, summary.Row{}}, "Lines": {timeline.Lines{}}, "Check": {launch.Check{}},
		"Finding": {flight.Finding{}}, "Result": {bench.Result{}},
	} {
		var want []string
		for _, v := range types {
			want = append(want, fieldsOf(reflect.TypeOf(v))...)
		}
		for _, field := range want {
			if !strings.Contains(sections[name], "`"+field+"`") {
				t.Errorf("section %s of docs/json.md lacks %s", name, field)
			}
		}
		for _, found := range regexp.MustCompile("`([a-z0-9_]+)`").FindAllStringSubmatch(sections[name], -1) {
			if !slices.Contains(want, found[1]) && !slices.Contains([]string{"ok", "warn", "fail"}, found[1]) {
				t.Errorf("section %s of docs/json.md has %s, which is no field", name, found[1])
			}
		}
	}
}

// fieldsOf returns the names of the fields in the JSON of a type.
func fieldsOf(of reflect.Type) (names []string) {
	for i := range of.NumField() {
		f := of.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && name == "":
			names = append(names, fieldsOf(f.Type)...)
		case f.IsExported() && name != "-":
			names = append(names, name)
		}
	}
	return names
}

// The checks of doctor as JSON, and a comparison.
func TestJSONOfTables(t *testing.T) {
	stdout, stderr, status := command(t, "doctor", "--json")
	var checks []launch.Check
	if err := json.Unmarshal([]byte(stdout), &checks); err != nil || status != 0 || stderr != "" || len(checks) < 3 || checks[0].Level == "" || checks[0].Found == "" {
		t.Errorf("doctor: %v, status %d, stderr %q, stdout:\n%s", err, status, stderr, stdout)
	}
	log := filepath.Join(t.TempDir(), "a.jsonl")
	if err := os.WriteFile(log, []byte(`{"time":"2000-01-01T00:00:00Z","event":"job","peer":"","index":-1,"epoch":0,"step":0,"job":"m"}`+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	stdout, stderr, status = command(t, "report", "--compare", "--json", log, log)
	var table summary.Comparison
	if err := json.Unmarshal([]byte(stdout), &table); err != nil || status != 0 || !slices.Equal(table.Runs, []string{"a", "a"}) || len(table.Rows) == 0 || len(table.Rows[0].Cells) != 2 {
		t.Errorf("report: %v, status %d, stderr %q, stdout:\n%s", err, status, stderr, stdout)
	}
}
