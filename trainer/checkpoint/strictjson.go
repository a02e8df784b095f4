package checkpoint

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"unicode/utf8"
)

// The usual decoding of JSON forgives what the reference implementation of safetensors
// refuses: names in other letters, values that are null or missing, arrays that are too
// long or too short, names that come twice, text that is not UTF-8. What two readers take
// for different tensors is of no use to either, so headers are read by what follows.

// checkText wants a header to be one JSON object in valid UTF-8, without anything before it.
func checkText(header []byte) error {
	switch {
	case !bytes.HasPrefix(header, []byte("{")):
		return errors.New("does not begin with {")
	case !utf8.Valid(header):
		return errors.New("is not UTF-8")
	case !json.Valid(header):
		return errors.New("is not JSON")
	case halfCharacter(header):
		return errors.New("has half of a surrogate pair in a string")
	}
	return nil
}

// halfCharacter reports whether a string of valid JSON has an escape that is half of a
// character, such as \ud800 alone.
func halfCharacter(text []byte) bool {
	for i := 0; i < len(text); i++ {
		if text[i] != '\\' {
			continue
		}
		switch first := escaped(text[i:]); {
		case first < 0xd800 || first > 0xdfff:
			i++
		case first >= 0xdc00:
			return true
		default:
			if second := escaped(text[i+6:]); second < 0xdc00 || second > 0xdfff {
				return true
			}
			i += 11
		}
	}
	return false
}

// escaped returns the number of an escape such as \u00e4 at the beginning of text, and -1
// where there is none.
func escaped(text []byte) int64 {
	if len(text) < 6 || text[0] != '\\' || text[1] != 'u' {
		return -1
	}
	n, err := strconv.ParseInt(string(text[2:6]), 16, 32)
	if err != nil {
		return -1
	}
	return n
}

// field is a name of an object and its value.
type field struct {
	name  string
	value json.RawMessage
}

// fieldsOf reads an object with its names in order; a name must not come twice.
func fieldsOf(object json.RawMessage) ([]field, error) {
	d := json.NewDecoder(bytes.NewReader(object))
	if token, err := d.Token(); err != nil || token != json.Delim('{') {
		return nil, errors.New("want an object")
	}
	var fields []field
	seen := make(map[string]bool)
	for d.More() {
		token, err := d.Token()
		if err != nil {
			return nil, err
		}
		f := field{name: token.(string)} // what else would a valid object have here
		if seen[f.name] {
			return nil, fmt.Errorf("%q comes twice", f.name)
		}
		seen[f.name] = true
		if err := d.Decode(&f.value); err != nil {
			return nil, err
		}
		fields = append(fields, f)
	}
	return fields, nil
}

// metadataOf reads an object of strings. null stands for none.
func metadataOf(value json.RawMessage) (map[string]string, error) {
	if string(value) == "null" {
		return nil, nil
	}
	fields, err := fieldsOf(value)
	if err != nil {
		return nil, err
	}
	metadata := make(map[string]string, len(fields))
	for _, f := range fields {
		if metadata[f.name], err = stringOf(f.value); err != nil {
			return nil, fmt.Errorf("%q: %w", f.name, err)
		}
	}
	return metadata, nil
}

// tensorInfoOf reads what a header says of one tensor. Names that it does not know are
// passed over, as the reference does.
func tensorInfoOf(value json.RawMessage) (info tensorInfo, err error) {
	fields, err := fieldsOf(value)
	if err != nil {
		return info, err
	}
	missing := map[string]bool{"dtype": true, "shape": true, "data_offsets": true}
	for _, f := range fields {
		delete(missing, f.name)
		switch f.name {
		case "dtype":
			info.DType, err = stringOf(f.value)
		case "shape":
			info.Shape, err = sizesOf(f.value)
		case "data_offsets":
			info.Offsets, err = offsetsOf(f.value)
		}
		if err != nil {
			return info, fmt.Errorf("%q: %w", f.name, err)
		}
	}
	for _, name := range []string{"dtype", "shape", "data_offsets"} {
		if missing[name] {
			return info, fmt.Errorf("%q is missing", name)
		}
	}
	return info, nil
}

// offsetsOf reads two whole numbers.
func offsetsOf(value json.RawMessage) (offsets [2]int64, err error) {
	numbers, err := sizesOf(value)
	if err != nil {
		return offsets, err
	}
	if len(numbers) != 2 {
		return offsets, fmt.Errorf("%d numbers, want 2", len(numbers))
	}
	return [2]int64{int64(numbers[0]), int64(numbers[1])}, nil
}

// sizesOf reads an array of whole numbers from 0, written as such.
func sizesOf(value json.RawMessage) ([]int, error) {
	d := json.NewDecoder(bytes.NewReader(value))
	d.UseNumber()
	if token, err := d.Token(); err != nil || token != json.Delim('[') {
		return nil, errors.New("want an array")
	}
	sizes := []int{}
	for d.More() {
		token, err := d.Token()
		if err != nil {
			return nil, err
		}
		text, ok := token.(json.Number)
		n, err := strconv.ParseUint(text.String(), 10, strconv.IntSize-1)
		if !ok || err != nil {
			return nil, fmt.Errorf("%v is not a size", token)
		}
		sizes = append(sizes, int(n))
	}
	return sizes, nil
}

// stringOf reads a string.
func stringOf(value json.RawMessage) (text string, err error) {
	if !bytes.HasPrefix(value, []byte(`"`)) {
		return "", errors.New("want a string")
	}
	err = json.Unmarshal(value, &text)
	return text, err
}
