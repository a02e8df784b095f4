package main

import (
	"fmt"
	"reflect"
	"strconv"
	"time"

	"github.com/alecthomas/kong"
)

// decoders returns the decoders of flags and arguments that replace those of kong.
func decoders() []kong.Option {
	return []kong.Option{kong.KindMapper(reflect.String, kong.MapperFunc(decodeString)),
		kong.TypeMapper(reflect.TypeFor[time.Duration](), kong.MapperFunc(decodeDuration))}
}

// decodeString decodes a flag or an argument to its own bytes. The decoder of kong passes strings
// through JSON, which replaces bytes that are not UTF-8, as in old names of files, by U+FFFD.
func decodeString(ctx *kong.DecodeContext, target reflect.Value) error {
	token, err := ctx.Scan.PopValue("string")
	if err == nil {
		target.SetString(fmt.Sprint(token.Value))
	}
	return err
}

// decodeDuration decodes a duration. Its error names the form that is missing, a unit.
func decodeDuration(ctx *kong.DecodeContext, target reflect.Value) error {
	token, err := ctx.Scan.PopValue("duration")
	if err != nil {
		return err
	}
	text := fmt.Sprint(token.Value)
	d, err := time.ParseDuration(text)
	if err != nil {
		example := "90s, 5m or 2h"
		if _, err := strconv.ParseFloat(text, 64); err == nil {
			example = text + "s"
		}
		return fmt.Errorf("%q: want a duration with its unit, as in %s", text, example)
	}
	target.SetInt(int64(d))
	return nil
}
