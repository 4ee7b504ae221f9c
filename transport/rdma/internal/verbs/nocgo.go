//go:build !cgo

package verbs

// Built says that this binary can speak to the RDMA libraries at all.
const Built = false

var errNotBuilt = &LoadError{File: "librdmacm.so.1", Text: "this binary was built without cgo"}

// Load fails: this binary was built without a C compiler.
func Load() error { return errNotBuilt }

// Devices fails: this binary was built without a C compiler.
func Devices() ([]Device, error) { return nil, errNotBuilt }
