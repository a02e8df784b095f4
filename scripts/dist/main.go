// Command dist writes a reproducible tarball: its bytes depend only on the names, contents and
// execute permissions of its files. Entries are sorted and have owner 0 and a fixed time.
//
//	go run ./scripts/dist OUT.tar.gz FOLDER FILE...
//
// The entries are FOLDER, and in it the files by their base names. Executable files have the mode
// 0755, others 0644.
package main

import (
	"archive/tar"
	"cmp"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"time"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "dist:", err)
		os.Exit(1)
	}
}

// run writes the tarball. After an error it leaves no incomplete file.
func run(args []string) error {
	if len(args) < 3 {
		return errors.New("usage: dist OUT.tar.gz FOLDER FILE, with one FILE or more")
	}
	part := args[0] + ".part"
	out, err := os.Create(part)
	if err != nil {
		return err
	}
	err = cmp.Or(write(out, args[1], args[2:]), out.Close())
	if err == nil {
		return os.Rename(part, args[0])
	}
	return errors.Join(err, os.Remove(part))
}

// write writes the compressed archive to out.
func write(out io.Writer, folder string, files []string) error {
	files = slices.SortedFunc(slices.Values(files), func(a, b string) int { return cmp.Compare(filepath.Base(a), filepath.Base(b)) })
	z, err := gzip.NewWriterLevel(out, gzip.BestCompression)
	if err != nil {
		return err
	}
	t := tar.NewWriter(z)
	if err := t.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: folder + "/", Mode: 0o755, ModTime: epoch(), Format: tar.FormatUSTAR}); err != nil {
		return err
	}
	for i, f := range files {
		if i > 0 && filepath.Base(f) == filepath.Base(files[i-1]) {
			return fmt.Errorf("%s and %s have the same name", files[i-1], f)
		}
		if err := add(t, folder, f); err != nil {
			return fmt.Errorf("%s: %w", f, err)
		}
	}
	if err := t.Close(); err != nil {
		return err
	}
	return z.Close()
}

// add writes a file as an entry in the folder.
func add(t *tar.Writer, folder, name string) error {
	b, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	info, err := os.Stat(name)
	if err != nil {
		return err
	}
	mode := int64(0o644)
	if info.Mode()&0o111 != 0 {
		mode = 0o755
	}
	err = t.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: path.Join(folder, filepath.Base(name)), Mode: mode,
		Size: int64(len(b)), ModTime: epoch(), Format: tar.FormatUSTAR})
	if err != nil {
		return err
	}
	_, err = t.Write(b)
	return err
}

// epoch returns the modification time of all entries. Some tools treat 1970 as an error.
func epoch() time.Time { return time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC) }
