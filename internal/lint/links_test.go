package lint

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// top is the folder of go.mod, relative to the folder of this package.
const top = "../.."

// sources returns the files of the project whose names pick accepts. It leaves out files that are built, fetched, or data of
// tests.
func sources(t *testing.T, pick func(base string) bool) (names []string) {
	t.Helper()
	skipped := []string{".git", "bin", "data", "dist", "testdata"}
	err := filepath.WalkDir(top, func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && slices.Contains(skipped, d.Name()):
			return filepath.SkipDir
		case !d.IsDir() && pick(d.Name()):
			names = append(names, name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// documents returns the names of all documents.
func documents(t *testing.T) []string {
	t.Helper()
	return sources(t, func(base string) bool { return strings.HasSuffix(base, ".md") })
}

// prose returns the lines of a document that are not in fenced blocks.
func prose(t *testing.T, name string) (lines []string) {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	fenced := false
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "```") {
			fenced = !fenced
		} else if !fenced {
			lines = append(lines, strings.TrimRight(line, "\n"))
		}
	}
	return lines
}

// anchors returns the names of a document's headings in the form that GitHub gives them.
func anchors(t *testing.T, name string) (all []string) {
	t.Helper()
	dropped := regexp.MustCompile(`[^a-z0-9 _-]`)
	for _, line := range prose(t, name) {
		if title := strings.TrimLeft(line, "#"); title != line && strings.HasPrefix(title, " ") {
			title = dropped.ReplaceAllString(strings.ToLower(strings.TrimSpace(title)), "")
			all = append(all, strings.ReplaceAll(title, " ", "-"))
		}
	}
	return all
}

// links returns the targets of a document's links to files, as they are in the document.
func links(t *testing.T, name string) (targets []string) {
	t.Helper()
	link := regexp.MustCompile(`\]\(([^()\s]+)\)`)
	for _, found := range link.FindAllStringSubmatch(strings.Join(prose(t, name), "\n"), -1) {
		if !strings.Contains(found[1], "://") {
			targets = append(targets, found[1])
		}
	}
	return targets
}

// The file of each link in a document exists. If a link names a heading, the heading exists, too.
func TestLinks(t *testing.T) {
	count := 0
	for _, name := range documents(t) {
		for _, link := range links(t, name) {
			count++
			file, anchor, named := strings.Cut(link, "#")
			target := name
			if file != "" {
				target = filepath.Join(filepath.Dir(name), file)
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s links to %s: %v", name, link, err)
			} else if named && !slices.Contains(anchors(t, target), anchor) {
				t.Errorf("%s links to %s, and there is no such heading", name, link)
			}
		}
	}
	if count < 50 {
		t.Errorf("%d links were found", count)
	}
}

// If a comment, a script or a message names a document, the document exists.
func TestNamedDocuments(t *testing.T) {
	named := regexp.MustCompile(`\b(?:docs/[\w./-]*\w|[A-Z]{4,}\.md\b)`)
	for _, name := range sources(t, func(base string) bool {
		return base == "Makefile" || base == "Containerfile" || slices.Contains([]string{".go", ".sh", ".yaml", ".yml", ".md"}, filepath.Ext(base))
	}) {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, document := range named.FindAllString(string(text), -1) {
			if document == "docs/planted-bugs.md" {
				continue // a test of scripts/planted checks that it is gone
			}
			if _, err := os.Stat(filepath.Join(top, document)); err != nil {
				t.Errorf("%s names %s: %v", name, document, err)
			}
		}
	}
}

// If a document for contributors names a file or a folder, the file or folder exists.
func TestNamedFiles(t *testing.T) {
	named := regexp.MustCompile("`((?:[a-z0-9_]+/)+[a-z0-9_]+(?:\\.go)?)`")
	for _, name := range documents(t) {
		page, err := filepath.Rel(top, name)
		if err != nil {
			t.Fatal(err)
		}
		if dir := filepath.Dir(page); dir != "docs/internals" && dir != "docs/howto" && page != "docs/architecture.md" && page != "docs/limits.md" && page != "CONTRIBUTING.md" {
			continue
		}
		lines := slices.DeleteFunc(prose(t, name), func(line string) bool { return strings.HasPrefix(line, "New file ") })
		for _, found := range named.FindAllStringSubmatch(strings.Join(lines, "\n"), -1) {
			if _, err := os.Stat(filepath.Join(top, found[1])); err != nil {
				t.Errorf("%s names %s: %v", name, found[1], err)
			}
		}
	}
}

// If a comment names a Go file, the file is in the same folder, or the comment names its folder.
func TestFilesInComments(t *testing.T) {
	comment := regexp.MustCompile(`(?m)(?:^|\s)//.*$`)
	named := regexp.MustCompile(`(?:^|[^\w/.%])((?:[\w-]+/)*\w+\.go)\b`)
	count := 0
	for _, name := range sources(t, func(base string) bool { return filepath.Ext(base) == ".go" }) {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range comment.FindAllString(string(text), -1) {
			for _, found := range named.FindAllStringSubmatch(line, -1) {
				count++
				_, here := os.Stat(filepath.Join(filepath.Dir(name), found[1]))
				_, there := os.Stat(filepath.Join(top, found[1]))
				if here != nil && there != nil {
					t.Errorf("%s names %s, which is neither in its folder nor a path from the top", name, found[1])
				}
			}
		}
	}
	if count < 50 {
		t.Errorf("%d files were found", count)
	}
}

// The Debian package contains the documents to which the README links.
func TestPackedDocuments(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(top, "scripts/deb/nfpm.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	packed := make(map[string]bool)
	for _, source := range regexp.MustCompile(`(?m)^  - src: (.+)$`).FindAllStringSubmatch(string(text), -1) {
		names, err := filepath.Glob(filepath.Join(top, source[1]))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			packed[name] = true
		}
	}
	for _, link := range links(t, filepath.Join(top, "README.md")) {
		file, _, _ := strings.Cut(link, "#")
		if !packed[filepath.Join(top, file)] {
			t.Errorf("the README links to %s, which scripts/deb/nfpm.yaml does not pack", file)
		}
	}
}
