package collect

import _ "embed"

// Schema is the JSON Schema (2020-12) of the result document.
//
//go:embed schema.json
var Schema []byte
