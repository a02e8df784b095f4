package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/elrun/elrun/cmd/elrun/bench"
	"github.com/elrun/elrun/internal/printable"
	"github.com/elrun/elrun/launch"
)

// completionCommand is the command elrun completion. Without words it prints a script for a shell. The script calls it again with
// the words of a command line up to the cursor, and it prints what may stand in place of the last one.
//
// The model of kong says what may stand where. A library would need modules of its own, and knows neither that elrun without a
// command is elrun run, nor that flags end at PROGRAM.
type completionCommand struct {
	Shell string   `arg:"" enum:"bash,zsh,fish" help:"bash, zsh or fish."`
	Words []string `arg:"" optional:"" hidden:"" passthrough:"all"`
}

// Run prints the script, or words.
func (c *completionCommand) Run(t *terminal, k *kong.Kong) error {
	if len(c.Words) == 0 {
		_, err := fmt.Fprint(t.stdout, scriptOf(c.Shell))
		return err
	}
	words := c.Words[1:] // without the "--" before them
	prefix := ""
	if c.Shell == "bash" {
		words = joinBash(words)
		if name, _, given := strings.Cut(slices.Concat([]string{""}, words)[len(words)], "="); given {
			prefix = name + "=" // for bash it is a word of its own
		}
	}
	found := complete(k.Model, words, func() []string {
		names, _ := launch.JobNames() // without names there is nothing to offer
		return names
	})
	var out strings.Builder
	for _, f := range found.words {
		line := strings.TrimPrefix(f.word, prefix)
		if c.Shell != "bash" && f.help != "" {
			line += "\t" + f.help
		}
		out.WriteString(line + "\n")
	}
	if found.files {
		out.WriteString(":files\n")
	}
	_, err := fmt.Fprint(t.stdout, out.String())
	return err
}

// joinBash joins the words of bash, which splits --flag=value in three.
func joinBash(words []string) (joined []string) {
	for i, w := range words {
		last := len(joined) - 1
		switch {
		case last >= 0 && strings.HasPrefix(joined[last], "--") && (w == "=" || words[i-1] == "="):
			joined[last] += w
		default:
			joined = append(joined, w)
		}
	}
	return joined
}

// completion is what may stand in place of a word: words, and the names of files if files is set.
type completion struct {
	words []struct{ word, help string }
	files bool
}

// place is a place in a command line.
type place struct {
	app        *kong.Application
	node       *kong.Node // the command; that of app at the begin
	flag       *kong.Flag // wants a value; nil for none
	positional int        // number of arguments so far
	dashes     bool       // after "--"
	program    bool       // within PROGRAM and its arguments
}

// complete returns what may stand in place of the last of the words after elrun. jobs returns the names of running jobs.
func complete(app *kong.Application, words []string, jobs func() []string) (c completion) {
	if len(words) == 0 {
		return c
	}
	words = nameTicket(words)
	p := place{app: app, node: app.Node}
	for _, w := range words[:len(words)-1] {
		p.pass(w)
	}
	last := words[len(words)-1]
	name, value, given := strings.Cut(last, "=")
	switch {
	case p.program:
		c.files = true
	case p.flag != nil:
		c.values(&p, p.flag.Value, p.flag.PlaceHolder, "", last, jobs)
	case !p.dashes && given && strings.HasPrefix(last, "--"):
		if f := p.find(name); f != nil {
			c.values(&p, f.Value, f.PlaceHolder, name+"=", name+"="+value, jobs)
		}
	case !p.dashes && strings.HasPrefix(last, "-"):
		for _, f := range p.flags() {
			c.add("--"+f.Name, f.Help, last)
		}
	default:
		c.arguments(&p, last, jobs)
	}
	return c
}

// add adds a word if it begins with the given text.
func (c *completion) add(word, help, begin string) {
	if strings.HasPrefix(word, begin) {
		help, _, _ = strings.Cut(help, ". ")
		c.words = append(c.words, struct{ word, help string }{printable.Line(word), clip(help)})
	}
}

// arguments adds the values of the next argument of a command, and without a command the commands.
func (c *completion) arguments(p *place, begin string, jobs func() []string) {
	at := p.node
	if at.Type == kong.ApplicationNode {
		c.commands(p.app, begin)
		at = at.DefaultCmd
	}
	if p.positional < len(at.Positional) {
		v := at.Positional[p.positional]
		c.values(p, v, cmp.Or(v.Tag.PlaceHolder, v.Name), "", begin, jobs)
	}
}

// values adds the values of a flag or an argument, by the words of its placeholder. before is what stands before the value.
func (c *completion) values(p *place, v *kong.Value, placeholder, before, begin string, jobs func() []string) {
	add := func(values []string) {
		for _, value := range values {
			c.add(before+value, "", begin)
		}
	}
	if v.Enum != "" {
		add(v.EnumSlice())
	}
	for kind := range strings.SplitSeq(strings.ToLower(placeholder), "|") {
		switch {
		case kind == "job" && (v.Flag == nil || p.node.Name == "join"): // with other commands the flag names a new job
			add(jobs())
		case kind == "collective":
			add(bench.Collectives())
		case kind == "command":
			c.commands(p.app, begin)
		case slices.Contains([]string{"file", "dir", "log", "logs", "path", "program", "file.html"}, kind):
			c.files = true
		}
	}
}

// commands adds the commands.
func (c *completion) commands(app *kong.Application, begin string) {
	for _, n := range app.Children {
		if !n.Hidden {
			c.add(n.Name, n.Help, begin)
		}
	}
}

// pass goes on by a whole word.
func (p *place) pass(w string) {
	switch {
	case p.program:
	case p.flag != nil:
		p.flag = nil
	case !p.dashes && w == "--":
		p.dashes = true
	case !p.dashes && len(w) > 1 && strings.HasPrefix(w, "-"):
		if f := p.find(w); f != nil && !f.IsBool() {
			p.flag = f
		}
	default:
		p.argument(w)
	}
}

// argument goes on by a word that is no flag.
func (p *place) argument(w string) {
	if p.node.Type == kong.ApplicationNode {
		for _, n := range p.node.Children {
			if n.Name == w && !p.dashes {
				p.node = n
				return
			}
		}
		p.node = p.node.DefaultCmd
	}
	if p.positional >= len(p.node.Positional) {
		return
	}
	v := p.node.Positional[p.positional]
	p.program = v.Passthrough
	if !v.IsSlice() {
		p.positional++
	}
}

// flags returns the flags that may stand here.
func (p *place) flags() (all []*kong.Flag) {
	at := p.node
	if at.Type == kong.ApplicationNode { // elrun -n 4 is elrun run -n 4
		at = at.DefaultCmd
	}
	for _, group := range at.AllFlags(true) {
		all = append(all, group...)
	}
	return all
}

// find returns the flag of a word; nil if there is none, or if its value is in the word, as in --np=4 and -n4.
func (p *place) find(w string) *kong.Flag {
	for _, f := range p.flags() {
		if w == "--"+f.Name || f.Short != 0 && w == "-"+string(f.Short) || w == "-np" && f.Name == "np" { // as mpirun has it
			return f
		}
	}
	return nil
}

// scriptOf returns the script for a shell. Functions of scripts get a line for each word, and then :files if names of files may stand there.
func scriptOf(shell string) string {
	switch shell {
	case "zsh":
		return zshScript
	case "fish":
		return fishScript
	}
	return bashScript
}

// For a loop within the script bash must split at line ends only.
const bashScript = `# Completion of elrun for bash. elrun completion bash prints it.
_elrun() {
    local IFS=$'\n' line cur=${COMP_WORDS[COMP_CWORD]}
    [ "$cur" = = ] && cur=
    COMPREPLY=()
    for line in $("${COMP_WORDS[0]/#\~/$HOME}" completion bash -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null); do
        if [ "$line" = :files ]; then
            COMPREPLY+=($(compgen -f -- "$cur"))
            compopt -o filenames 2>/dev/null
        else
            COMPREPLY+=("$line")
        fi
    done
}
complete -F _elrun elrun
`

const zshScript = `#compdef elrun
# Completion of elrun for zsh. elrun completion zsh prints it.
_elrun() {
    local line files
    local -a found
    for line in "${(@f)$(${~words[1]} completion zsh -- "${(@)words[2,CURRENT]}" 2>/dev/null)}"; do
        if [[ $line == :files ]]; then
            files=1
        elif [[ $line == *$'\t'* ]]; then
            found+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}")
        elif [[ -n $line ]]; then
            found+=("${line//:/\\:}")
        fi
    done
    local ret=1
    (( $#found )) && _describe elrun found && ret=0
    if [[ -n $files ]]; then
        compset -P '--*='
        _files && ret=0
    fi
    return ret
}
if [[ $funcstack[1] == _elrun ]]; then
    _elrun "$@"
else
    compdef _elrun elrun
fi
`

const fishScript = `# Completion of elrun for fish. elrun completion fish prints it.
function __elrun_complete
    set -l words (commandline -opc)
    set -l last (commandline -ct)
    set -l elrun $words[1]
    set -e words[1]
    for line in ($elrun completion fish -- $words "$last" 2>/dev/null)
        if test "$line" = :files
            set -l before (string match -r -- '^--[^=]*=' "$last")
            for file in (__fish_complete_path (string replace -r -- '^--[^=]*=' '' "$last"))
                echo "$before$file"
            end
        else
            echo $line
        end
    end
end
complete -c elrun -f -a '(__elrun_complete)'
`
