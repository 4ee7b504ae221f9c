package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"rankstorm/rendezvous"
)

const (
	secretVariable = "RANKSTORM_SECRET"
	maxSecret      = 64 << 10 // bytes
)

// secret of the job, nil if there is none: what the parent of a spawned job
// handed on, else the file, else the text in the variable. A line break at the
// end does not count, so that a file and a variable can say the same.
func (a *app) secret(command, file string, in *rendezvous.Inheritance) ([]byte, error) {
	switch text := a.env.get(secretVariable); {
	case in != nil:
		return in.Secret, nil
	case file != "":
		secret, err := readSecret(file)
		if err != nil {
			if errors.Is(err, os.ErrNotExist) {
				err = fmt.Errorf("%w: make one, the same for all processes: head -c 32 /dev/urandom | base64 > %s; chmod 600 %[2]s", err, file)
			}
			return nil, usagef("%s: --secret-file %s: %w", command, file, err)
		}
		return secret, nil
	case text != "":
		secret, err := trimSecret([]byte(text))
		if err != nil {
			return nil, usagef("%s: %s: %w", command, secretVariable, err)
		}
		return secret, nil
	}
	return nil, nil
}

// readSecret reads a file that only its owner can read. One that belongs to
// another user, as root's do that a container is given, may be readable by its
// group: how else would it be by this user.
func readSecret(name string) ([]byte, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a pipe nobody writes to must not hold the program up
	if err != nil {
		return nil, plainPathError(err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, plainPathError(err)
	}
	if !st.Mode().IsRegular() {
		return nil, errors.New("not a file: give a file with the secret")
	}
	others := os.FileMode(0o007)
	if sys, ok := st.Sys().(*syscall.Stat_t); ok && int(sys.Uid) == os.Geteuid() {
		others = 0o077
	}
	if st.Mode().Perm()&others != 0 {
		return nil, fmt.Errorf("others may read or change it (mode %04o): chmod 600 %s", st.Mode().Perm(), name)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxSecret+1))
	if err != nil {
		return nil, plainPathError(err)
	}
	return trimSecret(text)
}

func trimSecret(text []byte) ([]byte, error) {
	switch secret := bytes.TrimRight(text, "\r\n"); {
	case len(text) > maxSecret:
		return nil, fmt.Errorf("larger than %d bytes", maxSecret)
	case len(secret) == 0:
		return nil, errors.New("empty: write for instance 32 random bytes into it (head -c 32 /dev/urandom | base64)")
	default:
		return secret, nil
	}
}
