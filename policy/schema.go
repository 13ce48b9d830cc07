package policy

import _ "embed"

// Schema is the Cedar schema of what rules may speak of, as text.
//
//go:embed schema.cedarschema
var Schema string
