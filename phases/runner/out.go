package runner

import (
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"rankstorm/rank"
)

// CheckOut says, before a job, that its result document cannot be written to path as far as that can be seen without
// writing: there is no such folder, it must not be written to, or path is one. The error is of KindResource. "" (a name of
// our own) and "-" (standard output) are always fine.
func CheckOut(path string) error {
	if path == "" || path == "-" {
		return nil
	}
	refuse := func(format string, args ...any) error {
		return rank.Errorf(rank.KindResource, "-o/--out %s: "+format, append([]any{path}, args...)...)
	}
	st, err := os.Stat(path)
	switch {
	case err == nil && st.IsDir():
		return refuse("this is a folder: name a file in it")
	case err == nil && !st.Mode().IsRegular(): // a device or a pipe
		if err := unix.Access(path, unix.W_OK); err != nil {
			return refuse("%w: name a file that can be written", err)
		}
		return nil
	}
	dir := filepath.Dir(path)
	st, err = os.Stat(dir)
	switch {
	case err == nil && !st.IsDir():
		err = unix.ENOTDIR
	case err == nil: // a new file takes the place of the old one
		err = unix.Access(dir, unix.W_OK|unix.X_OK)
	}
	if err != nil {
		return refuse("folder %s: %w: name a file in a folder that can be written", dir, unwrapped(err))
	}
	return nil
}

// unwrapped is what went wrong without where: the caller says that.
func unwrapped(err error) error {
	if pe, ok := err.(*fs.PathError); ok { //nolint:errorlint // os returns it unwrapped
		return pe.Err
	}
	return err
}
