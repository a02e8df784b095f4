package checkpoint

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"
)

// headersRefused returns headers of files with 8 bytes of data, keyed by the text of the error. The format or its reference
// implementation refuses them.
func headersRefused() map[string][]string {
	tensor := func(info string) string { return `{"a":{` + info + `}}` }
	return map[string][]string{
		`"data_offsets": 3 numbers`:     {tensor(`"dtype":"F32","shape":[2],"data_offsets":[0,8,8]`)},
		`"data_offsets": 1 numbers`:     {tensor(`"dtype":"F32","shape":[2],"data_offsets":[0]`)},
		`"data_offsets": 0 numbers`:     {tensor(`"dtype":"F32","shape":[2],"data_offsets":[]`)},
		`"data_offsets": want an array`: {tensor(`"dtype":"F32","shape":[2],"data_offsets":null`), tensor(`"dtype":"F32","shape":[2],"data_offsets":8`)},
		`<nil> is not a size`:           {tensor(`"dtype":"F32","shape":[2],"data_offsets":[null,8]`), tensor(`"dtype":"F32","shape":[2,null],"data_offsets":[0,8]`)},
		`is not a size`: {
			tensor(`"dtype":"F32","shape":[2.0],"data_offsets":[0,8]`), tensor(`"dtype":"F32","shape":[2],"data_offsets":[-0,8]`),
			tensor(`"dtype":"F32","shape":[2],"data_offsets":[0,8e0]`), tensor(`"dtype":"F32","shape":["2"],"data_offsets":[0,8]`),
			tensor(`"dtype":"F32","shape":[[2]],"data_offsets":[0,8]`), tensor(`"dtype":"F32","shape":[18446744073709551618],"data_offsets":[0,8]`),
			tensor(`"dtype":"F32","shape":[true],"data_offsets":[0,8]`),
		},
		`"dtype" is missing`:        {tensor(`"shape":[2],"data_offsets":[0,8]`), tensor(`"DType":"F32","shape":[2],"data_offsets":[0,8]`)},
		`"shape" is missing`:        {tensor(`"dtype":"F32","data_offsets":[0,8]`), tensor(`"dtype":"F32","SHAPE":[2],"data_offsets":[0,8]`)},
		`"data_offsets" is missing`: {tensor(`"dtype":"F32","shape":[2]`), tensor(`"dtype":"F32","shape":[2],"Data_Offsets":[0,8]`)},
		`"dtype": want a string`:    {tensor(`"dtype":null,"shape":[2],"data_offsets":[0,8]`), tensor(`"dtype":32,"shape":[2],"data_offsets":[0,8]`)},
		`"shape": want an array`:    {tensor(`"dtype":"F32","shape":null,"data_offsets":[0,8]`), tensor(`"dtype":"F32","shape":{},"data_offsets":[0,8]`)},
		`"shape" occurs twice`:      {tensor(`"dtype":"F32","shape":[3],"shape":[2],"data_offsets":[0,8]`)},
		`"a" occurs twice`: {
			`{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"\u0061":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}`,
			`{"__metadata__":{"a":"1","a":"2"}}`,
		},
		`"__metadata__" occurs twice`: {`{"__metadata__":{},"__metadata__":{}}`},
		`"a": want an object`:         {`{"a":["F32",[2],[0,8]]}`, `{"a":null}`},
		`want a string`:               {`{"__metadata__":{"a":null}}`},
		`want an object`:              {`{"__metadata__":[]}`},
		`is not UTF-8`:                {"{\"a\xff\":{}}", "{\"\xed\xa0\x80\":{}}", "{}\xff"},
		`half of a surrogate pair`:    {`{"\ud800":{}}`, `{"\ud800\ud800":{}}`, `{"\udc00\ud800":{}}`, `{"\\\ud800x":{}}`, `{"\ud800\n":{}}`},
		`is not JSON`:                 {`{}{}`, `{} x`, "{}\x00", `{"a":{"dtype":"F32","shape":[02],"data_offsets":[0,8]}}`, `{"a":}`, `{'a':1}`, `{"a":1,}`},
		`does not begin with {`:       {` {}`, "\ufeff{}", `[]`, ``, `null`},
		`from byte 0 on`:              {tensor(`"dtype":"F32","shape":[1],"data_offsets":[4,8]`), tensor(`"dtype":"F32","shape":[2],"data_offsets":[8,0]`)},
		`8 bytes of data`:             {`{}`, tensor(`"dtype":"F32","shape":[1],"data_offsets":[0,4]`), tensor(`"dtype":"F32","shape":[3],"data_offsets":[0,12]`)},
		`want F32`:                    {tensor(`"dtype":"f32","shape":[2],"data_offsets":[0,8]`), tensor(`"dtype":"X9","shape":[2],"data_offsets":[0,8]`), tensor(`"dtype":"","shape":[2],"data_offsets":[0,8]`)},
		`of the shape`: {
			tensor(`"dtype":"F32","shape":[4611686018427387905,4],"data_offsets":[0,8]`),
			tensor(`"dtype":"F32","shape":[9223372036854775807,9223372036854775807,0],"data_offsets":[0,0]`),
		},
	}
}

// A header that the reference implementation refuses is refused here, with the reason.
func TestSafetensorsHeadersRefused(t *testing.T) {
	for want, headers := range headersRefused() {
		for _, header := range headers {
			b := file(header, 8)
			_, _, err := decodeTensors(bytes.NewReader(b), int64(len(b)))
			if err == nil || !strings.Contains(err.Error(), want) || !errors.Is(err, ErrDamaged) && want != `want F32` {
				t.Errorf("%q: error %v, want %s", header, err, want)
			}
		}
	}
}

// Unusual headers that the reference implementation accepts are accepted here.
func TestSafetensorsHeadersAccepted(t *testing.T) {
	for _, header := range []string{
		`{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}    `,
		`{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"__metadata__":null}`,
		`{"a":{"data_offsets" : [ 0 , 8 ], "shape":[1,2,1], "dtype":"F32", "more":{"dtype":null}}}`,
		`{"\ud83d\ude00":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"__metadata__":{"\\ud800":"\u00e4"}}`,
		`{"":{"dtype":"F32","shape":[],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}`,
		`{"b":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"a":{"dtype":"F32","shape":[0,9223372036854775807],"data_offsets":[8,8]}}`,
	} {
		b := file(header, 8)
		if _, _, err := decodeTensors(bytes.NewReader(b), int64(len(b))); err != nil {
			t.Errorf("%q: %v", header, err)
		}
	}
}

// checkAccepted checks the header of an accepted file in a simple way. It must be UTF-8, and have all necessary fields for the
// number of tensors that were read.
func checkAccepted(t *testing.T, b []byte, tensors int) {
	header := b[8:][:uint64(b[0])|uint64(b[1])<<8|uint64(b[2])<<16|uint64(b[3])<<24]
	var all map[string]json.RawMessage
	if err := json.Unmarshal(header, &all); err != nil || !utf8.Valid(header) || header[0] != '{' {
		t.Fatalf("%q was accepted: %v", header, err)
	}
	delete(all, metadataKey)
	if len(all) != tensors {
		t.Fatalf("%d tensors of %q", tensors, header)
	}
	for name, value := range all {
		var info map[string]any
		err := json.Unmarshal(value, &info)
		offsets, _ := info["data_offsets"].([]any)
		shape, ok := info["shape"].([]any)
		if err != nil || info["dtype"] != "F32" || !ok || len(offsets) != 2 {
			t.Fatalf("%q: %s was accepted: %v", name, value, err)
		}
		for _, n := range append(offsets, shape...) {
			if f, ok := n.(float64); !ok || f < 0 {
				t.Fatalf("%q: %s was accepted", name, value)
			}
		}
	}
}
