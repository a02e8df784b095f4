package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// helpCommand is the command elrun help.
type helpCommand struct {
	Command []string `arg:"" optional:"" help:"Command, as in: elrun help run."`
}

// Run prints the help of a command, or of elrun, as --help does.
func (h *helpCommand) Run(t *terminal, k *kong.Kong) error {
	names := commandNames(k)
	if len(h.Command) > 0 && !slices.Contains(names, h.Command[0]) {
		text := fmt.Sprintf("%s is no command", h.Command[0])
		if near := nearest(h.Command[0], names); near != "" {
			text += ": did you mean elrun help " + near + "?"
		}
		fmt.Fprintf(t.stderr, "elrun: %s; elrun --help lists all\n", text)
		return exitStatus(statusUsage)
	}
	if status := run(append(slices.Clone(h.Command), "--help"), t); status != 0 {
		return exitStatus(status)
	}
	return nil
}

// commandNames returns the names of the commands that the help shows.
func commandNames(k *kong.Kong) []string {
	var names []string
	for _, c := range k.Model.Children {
		if !c.Hidden {
			names = append(names, c.Name)
		}
	}
	return names
}

// checkProgramName returns an error if a command line begins with a bare name that is no command,
// and that hardly anybody means as a program to train with: a misspelt command, or a program of the
// system. A flag before it, or the command run, says that a program is meant.
func checkProgramName(args, commands []string) error {
	if len(args) == 0 || strings.HasPrefix(args[0], "-") || strings.Contains(args[0], "/") || slices.Contains(commands, args[0]) {
		return nil
	}
	name := args[0]
	path, err := exec.LookPath(name)
	_, here := os.Stat(name)
	near := nearest(name, commands)
	switch {
	case errors.Is(err, exec.ErrNotFound) && here != nil && near != "":
		return fmt.Errorf("there is neither a command nor a program named %s: did you mean elrun %s?", name, near)
	case err != nil || !isSystemFolder(filepath.Dir(path)) || isScript(args[1:]):
		return nil
	}
	return fmt.Errorf("%s is a program of the system and no command of elrun: elrun run -- %s starts a peer for each core", name, clip(strings.Join(args, " ")))
}

// isSystemFolder reports whether a folder has the programs that come with the system.
func isSystemFolder(dir string) bool {
	return slices.Contains([]string{"/bin", "/sbin", "/usr/bin", "/usr/sbin"}, dir)
}

// isScript reports whether the arguments of an interpreter name a program, as in elrun python3
// train.py or elrun python3 -m train.
func isScript(args []string) bool {
	return slices.ContainsFunc(args, func(a string) bool {
		info, err := os.Stat(a)
		return a == "-m" || a == "-c" || err == nil && info.Mode().IsRegular()
	})
}

// clip cuts a text that is too long for a message.
func clip(text string) string {
	const most = 80
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most-3], "") + "..."
}

// nearest returns the name with the fewest mistakes in word, if these are at most two and less than
// half of the letters; otherwise "".
func nearest(word string, names []string) string {
	best, fewest := "", min(2, (len(word)-1)/2)
	for _, name := range names {
		if n := mistakes(word, name); n <= fewest && (best == "" || n < fewest) {
			best, fewest = name, n
		}
	}
	return best
}

// mistakes returns the number of letters to insert, delete, replace, or swap with their neighbour
// to get from one word to another (optimal string alignment).
func mistakes(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		for j := range rows[i] {
			switch {
			case i == 0 || j == 0:
				rows[i][j] = i + j
				continue
			case a[i-1] == b[j-1]:
				rows[i][j] = rows[i-1][j-1]
			default:
				rows[i][j] = 1 + min(rows[i-1][j], rows[i][j-1], rows[i-1][j-1])
			}
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				rows[i][j] = min(rows[i][j], 1+rows[i-2][j-2])
			}
		}
	}
	return rows[len(a)][len(b)]
}
