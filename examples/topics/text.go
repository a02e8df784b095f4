package main

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"unicode"
)

// Text is a list of documents. A word is a number, the index of its spelling in Vocabulary.
type Text struct {
	Vocabulary []string
	Documents  [][]int32 // to train with
	Held       [][]int32 // held out, for Sampler.Perplexity
}

// hold moves each tenth document to those that are held out.
func (t *Text) hold(documents [][]int32) *Text {
	for i, d := range documents {
		if i%10 == 9 {
			t.Held = append(t.Held, d)
		} else {
			t.Documents = append(t.Documents, d)
		}
	}
	return t
}

// Generate returns documents of 100 words that follow a model with a number of topics. Each topic
// prefers its own words, and each document has about two topics.
func Generate(documents, words, topics int) *Text {
	t := new(Text)
	for w := range words {
		t.Vocabulary = append(t.Vocabulary, fmt.Sprintf("t%dw%d", w%topics, w))
	}
	var all [][]int32
	for i := range documents {
		r := rand.New(rand.NewPCG(5, uint64(i)))
		mine := [2]int{r.IntN(topics), r.IntN(topics)}
		var d []int32
		for range 100 {
			// Of the words of a topic the first are the most frequent.
			x := r.Float64()
			w := int(x*x*float64(words/topics))*topics + mine[r.IntN(2)]
			if r.IntN(10) == 0 {
				w = r.IntN(words)
			}
			d = append(d, int32(w))
		}
		all = append(all, d)
	}
	return t.hold(all)
}

// Bounds of the words and documents of a text.
const (
	rarest        = 5   // a rarer word is left out
	mostFrequent  = 120 // so many of the most frequent words, which tell nothing about topics, are left out
	shortest      = 3   // letters of a word
	documentWords = 150 // consecutive paragraphs are one document until it has so many words
)

// ReadText reads a text whose paragraphs are separated by empty lines.
func ReadText(file string) (*Text, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("%w: \"make data\" fetches a text into data", err)
	}
	t := parse(string(b))
	if len(t.Documents) == 0 || len(t.Held) == 0 {
		return nil, fmt.Errorf("%s: the text is too short: want 10 documents of %d words that occur %d times", file, documentWords, rarest)
	}
	return t, nil
}

// parse divides a text into words and documents.
func parse(text string) *Text {
	split := func(s string) []string {
		return slices.DeleteFunc(strings.FieldsFunc(strings.ToLower(s), func(c rune) bool { return !unicode.IsLetter(c) }),
			func(w string) bool { return len(w) < shortest })
	}
	count := make(map[string]int)
	for _, w := range split(text) {
		count[w]++
	}
	words := slices.SortedFunc(maps.Keys(count), func(a, b string) int { return cmp.Or(count[b]-count[a], cmp.Compare(a, b)) })
	words = words[min(mostFrequent, len(words)):]
	t, number := new(Text), make(map[string]int32)
	for _, w := range words {
		if count[w] >= rarest {
			number[w] = int32(len(t.Vocabulary))
			t.Vocabulary = append(t.Vocabulary, w)
		}
	}
	var all [][]int32
	var d []int32
	for paragraph := range strings.SplitSeq(strings.ReplaceAll(text, "\r\n", "\n"), "\n\n") {
		for _, w := range split(paragraph) {
			if n, is := number[w]; is {
				d = append(d, n)
			}
		}
		if len(d) >= documentWords {
			all, d = append(all, d), nil
		}
	}
	return t.hold(all)
}
