package checkpoint

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"unicode/utf8"
)

// Strict decoding of a safetensors header. encoding/json accepts headers that the reference
// implementation refuses: with names in other letter case, null or missing values, arrays of the
// wrong length, duplicate names, or text that is not UTF-8. Readers that disagree on such a file
// would see different tensors, so the header is decoded by the functions below.

// checkText requires a header that is one JSON object in valid UTF-8, with nothing before it.
func checkText(header []byte) error {
	switch {
	case !bytes.HasPrefix(header, []byte("{")):
		return errors.New("does not begin with {")
	case !utf8.Valid(header):
		return errors.New("is not UTF-8")
	case !json.Valid(header):
		return errors.New("is not JSON")
	case hasLoneSurrogate(header):
		return errors.New("has half of a surrogate pair in a string")
	}
	return nil
}

// hasLoneSurrogate reports whether a string in valid JSON has an unpaired surrogate, such as \ud800
// alone. encoding/json replaces it by U+FFFD, so two different names could become equal.
func hasLoneSurrogate(text []byte) bool {
	for i := 0; i < len(text); i++ {
		if text[i] != '\\' {
			continue
		}
		switch first := escapedUnit(text[i:]); {
		// Three cases: no surrogate; a low surrogate without a high one before it; a high
		// surrogate, which needs a low one after it.
		case first < 0xd800 || first > 0xdfff:
			i++ // the character after the backslash may be a backslash itself
		case first >= 0xdc00:
			return true
		default:
			if second := escapedUnit(text[i+6:]); second < 0xdc00 || second > 0xdfff {
				return true
			}
			i += 11 // both escapes are 12 bytes, and the loop adds one
		}
	}
	return false
}

// escapedUnit returns the code unit of an escape such as \u00e4 at the beginning of text; -1 if
// there is none.
func escapedUnit(text []byte) int64 {
	if len(text) < 6 || text[0] != '\\' || text[1] != 'u' {
		return -1
	}
	n, err := strconv.ParseInt(string(text[2:6]), 16, 32)
	if err != nil {
		return -1
	}
	return n
}

// field is a name in a JSON object with its value.
type field struct {
	name  string
	value json.RawMessage
}

// fieldsOf decodes a JSON object into its fields, in order. A duplicate name is an error: decoders
// differ on which of the two values counts. The values are not decoded, and share no memory with
// the object.
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
		f := field{name: token.(string)} // valid objects have only strings here
		if seen[f.name] {
			return nil, fmt.Errorf("%q occurs twice", f.name)
		}
		seen[f.name] = true
		if err := d.Decode(&f.value); err != nil {
			return nil, err
		}
		fields = append(fields, f)
	}
	return fields, nil
}

// metadataOf decodes an object whose values are strings, or null, which means no metadata.
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

// tensorInfoOf decodes the header entry of one tensor. Unknown names are ignored, as by the
// reference implementation.
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

// offsetsOf decodes an array of two sizes.
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

// sizesOf decodes an array of integers that are not negative. It refuses a fraction or an exponent,
// as in 1e2.
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

// stringOf decodes a string. It refuses null, which encoding/json would decode as an empty string.
func stringOf(value json.RawMessage) (text string, err error) {
	if !bytes.HasPrefix(value, []byte(`"`)) {
		return "", errors.New("want a string")
	}
	err = json.Unmarshal(value, &text)
	return text, err
}
