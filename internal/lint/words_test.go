package lint_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/elrun/elrun/internal/lint"
)

// A word that is private everywhere is found in every text. A word of ordinary English is found in names only.
func TestWords(t *testing.T) {
	private := func(word string) []string { return []string{`"` + word + `" is a private word here`} }
	checkSamples(t, "words", []sample{
		{"terms of the field", "ring/a.go", "// Package ring is round.\npackage ring\n\nvar ticketLock = \"a room early on, beyond doubt\"", nil},

		{"comment", "ring/a.go", "package ring\n\n// f has a habit.\nfunc f() {}", private("habit")},
		{"comment in a function", "ring/a.go", "package ring\nfunc f() {\n\t/* two\nHabits */\n}", private("habit")},
		{"text", "ring/a.go", "package ring\nconst c = `no plea`", private("plea")},
		{"imported path", "ring/a.go", "package ring\nimport \"x/desk\"", private("desk")},
		{"name", "ring/a.go", "package ring\ntype vigil int", private("vigil")},
		{"part of a name", "ring/a.go", "package ring\nfunc f() { keepVigil() }", private("vigil")},
		{"part of a longer word", "ring/a.go", "package ring\nvar desktop, bellow, plead1 int", private("plead")},
		{"capitals", "ring/a.go", "package ring\nconst c = \"SHM_VIGIL\"", private("vigil")},
		{"local name", "ring/a.go", "package ring\nfunc f() { for _, rope := range x {} }", private("rope")},
		{"test", "ring/a_test.go", "package ring\nfunc TestLobby() {}", private("lobby")},
		{"file", "ring/bell_linux.go", "package ring", private("bell")},
		{"folder", "ring/bell/a.go", "package ring", private("bell")},
		{"once in a file", "ring/a.go", "package ring\n// A bell.\nvar bell, bells int", private("bell")},
		{"two words", "ring/a.go", "package ring\nvar bellRope int", []string{`"bell"`, `"rope"`}},

		{"part of an identifier", "ring/a.go", "package ring\nfunc f() { x := inDoubt }", private("doubt")},
		{"in a sentence", "ring/a.go", "package ring\n\n// f is beyond doubt.\nfunc f() {}", nil},

		{"type", "ring/a.go", "package ring\ntype verdict int", private("verdict")},
		{"function", "ring/a.go", "package ring\nfunc handBack() {}", private("handBack")},
		{"method", "ring/a.go", "package ring\nfunc (t T) handBack() {}", private("handBack")},
		{"constant", "ring/a.go", "package ring\nconst a, apart = 1, 2", private("apart")},
		{"field", "ring/a.go", "package ring\ntype T struct { a, apart int }", private("apart")},
		{"field of a field", "ring/a.go", "package ring\ntype T []struct { a struct { apart int } }", private("apart")},
		{"method of an interface", "ring/a.go", "package ring\ntype T interface { apart() }", private("apart")},
		{"parameters", "ring/a.go", "package ring\ntype T func(apart int)\nfunc f(said bool) {}\ntype U interface { f(apart int) }", nil},
		{"local variable", "ring/a.go", "package ring\nfunc f() { apart := struct{ said int }{} }", nil},
		{"longer name", "ring/a.go", "package ring\ntype verdictOf int", nil},
		{"name of a file", "ring/apart_linux_test.go", "package ring", private("apart")},
		{"package", "ring/a.go", "package apart", private("apart")},

		{"where it had another meaning", "trainer/nn/a.go", "package nn\nfunc settle() {}", private("settle")},
		{"where it has none", "ring/a.go", "package ring\nfunc settle() {}", nil},
		{"folder of a similar name", "trainers/a.go", "package trainers\nfunc settle() {}", nil},
	})
}

// Documents and the lists of planted bugs do not contain words that are private everywhere.
// CHANGELOG.md names old identifiers.
func TestWordsOfDocuments(t *testing.T) {
	for name, text := range texts(t) {
		for _, word := range lint.PrivateWords(text) {
			t.Errorf("%s has the private word %s", name, word)
		}
	}
}

// A private word is found in a document.
func TestPrivateWords(t *testing.T) {
	text := "| `keepVigil` | a Habit\n\nwhen the lobby's bells, early beyond doubt |"
	if got := strings.Join(lint.PrivateWords(text), " "); got != "vigil habit lobby bell" {
		t.Errorf("got %q", got)
	}
}

// texts returns the documents and the lists of planted bugs by name, except for CHANGELOG.md.
func texts(t *testing.T) map[string]string {
	t.Helper()
	all := make(map[string]string)
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(name) != ".md" || d.Name() == "CHANGELOG.md" {
			return err
		}
		text, err := os.ReadFile(name)
		all[name] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 50 {
		t.Errorf("%d documents were found", len(all))
	}
	return all
}
