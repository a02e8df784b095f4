package lint

import (
	"go/ast"
	"go/token"
	"path"
	"regexp"
	"strings"
	"unicode"
)

// checkWords reports words of vocabulary() in the names, comments and texts of a package.
func checkWords(p *Package) (found []Problem) {
	rules := wordRulesOf(p.Dir)
	for _, f := range p.Files {
		if matches(f.Name, "internal/lint/vocabulary.go", "internal/lint/words_test.go") {
			continue // these files name the refused words
		}
		c := wordCheck{wordRules: rules, file: f, checked: make(map[string]bool), reported: make(map[string]bool)}
		c.name(f.Syntax.Name)
		c.whole(f.Syntax.Package, fileSubject(f.Name))
		c.parts(f.Syntax.Package, f.Name, identifiers)
		ast.Inspect(f.Syntax, c.node)
		for _, d := range f.Syntax.Decls {
			c.declared(d)
		}
		found = append(found, c.found...)
	}
	return found
}

// wordRules are the words that are forbidden in a folder.
type wordRules struct {
	asPart map[string]word // words that must not be a part of an identifier, by lower case
	asName map[string]word // words that must not be a whole name
}

// wordRulesOf returns the words that are forbidden in a folder.
func wordRulesOf(dir string) wordRules {
	r := wordRules{make(map[string]word), make(map[string]word)}
	for _, w := range vocabulary() {
		switch {
		case w.folder != "" && !matches(dir, w.folder+"/..."):
		case w.where == names:
			r.asName[w.text] = w
		default:
			r.asPart[w.text] = w
		}
	}
	return r
}

// part returns the forbidden word that equals a part of an identifier or text, or its singular.
func (w wordRules) part(part string) (found word, ok bool) {
	if found, ok = w.asPart[part]; !ok {
		found, ok = w.asPart[strings.TrimSuffix(part, "s")]
	}
	return found, ok
}

// wordCheck looks for words in one file.
type wordCheck struct {
	wordRules
	file     *File
	checked  map[string]bool // identifiers whose parts were checked
	reported map[string]bool // words that were found
	found    []Problem
}

// node looks for words in identifiers, texts and comments. It is an argument of ast.Inspect.
func (w *wordCheck) node(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.Ident:
		if !w.checked[n.Name] {
			w.checked[n.Name] = true
			w.parts(n.Pos(), n.Name, identifiers)
		}
	case *ast.BasicLit:
		if n.Kind == token.STRING {
			w.parts(n.Pos(), n.Value, anywhere)
		}
	case *ast.File:
		for _, group := range n.Comments {
			for _, comment := range group.List {
				w.parts(comment.Pos(), comment.Text, anywhere)
			}
		}
	}
	return true
}

// declared checks the names in a declaration at package level: functions, constants, variables,
// types, fields and methods. It skips the names of parameters, which are local.
func (w *wordCheck) declared(d ast.Decl) {
	if f, ok := d.(*ast.FuncDecl); ok {
		w.name(f.Name)
	}
	for _, spec := range specsOf[*ast.ValueSpec](d) {
		for _, name := range spec.Names {
			w.name(name)
		}
	}
	for _, spec := range specsOf[*ast.TypeSpec](d) {
		w.name(spec.Name)
		ast.Inspect(spec.Type, func(n ast.Node) bool {
			if field, ok := n.(*ast.Field); ok {
				for _, name := range field.Names {
					w.name(name)
				}
			}
			_, signature := n.(*ast.FuncType)
			return !signature
		})
	}
}

// name checks a declared name.
func (w *wordCheck) name(name *ast.Ident) { w.whole(name.Pos(), name.Name) }

// whole reports a name that equals a forbidden word.
func (w *wordCheck) whole(pos token.Pos, name string) {
	if word, ok := w.asName[name]; ok {
		w.report(pos, word)
	}
}

// parts reports the forbidden words in an identifier (where is identifiers) or in another text
// (where is anywhere). A word that is forbidden only in identifiers may occur in other texts.
func (w *wordCheck) parts(pos token.Pos, text string, where scope) {
	for _, part := range wordsOf(text) {
		if word, ok := w.part(part); ok && (word.where == anywhere || where == identifiers) {
			w.report(pos, word)
		}
	}
}

// PrivateWords returns the words in a document that are forbidden everywhere. The tests use it on
// Markdown files.
func PrivateWords(text string) (found []string) {
	rules := wordRulesOf("")
	for _, part := range wordsOf(text) {
		if w, ok := rules.part(part); ok && w.where == anywhere {
			found = append(found, w.text)
		}
	}
	return found
}

// report adds a problem for a word, once per file.
func (w *wordCheck) report(pos token.Pos, forbidden word) {
	if !w.reported[forbidden.text] {
		w.reported[forbidden.text] = true
		w.found = append(w.found, w.file.problem(pos, "%q is a private word here: write %s, or the term of the field for it", forbidden.text, forbidden.instead))
	}
}

// wordsOf returns the words of a text in lower case. It splits an identifier where a small letter comes before a capital one.
func wordsOf(text string) []string {
	var spaced strings.Builder
	small := false
	for _, r := range text {
		if unicode.IsUpper(r) && small {
			spaced.WriteByte(' ')
		}
		small = unicode.IsLower(r)
		spaced.WriteRune(unicode.ToLower(r))
	}
	return strings.FieldsFunc(spaced.String(), func(r rune) bool { return !unicode.IsLetter(r) })
}

// fileSubject returns the name of a file without its folder and without suffixes that are build
// constraints or mark a test.
func fileSubject(name string) string {
	subject := strings.TrimSuffix(strings.TrimSuffix(path.Base(name), ".go"), "_test")
	return regexp.MustCompile(`(_(linux|darwin|unix|other|amd64|arm64))+$`).ReplaceAllString(subject, "")
}
