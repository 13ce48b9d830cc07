// Package redact finds known secrets in bytes and puts a marker in their place,
// also where they are encoded, escaped, broken over lines or split over writes.
//
// It never guesses: only values it was told of are looked for, so ordinary
// text stays as it is. The invariant: what the Writer lets through in any
// division into chunks is byte for byte what Bytes makes of the whole.
//
// # What is found
//
// Each secret of at least MinLength bytes is found as it is; in base64 (standard
// and URL alphabet, at each of the three alignments, so also in the middle of
// a longer text); and in hexadecimal of either case. Each of these is also
// found when line breaks (CR, LF) or terminal colour sequences (ESC [ … m and
// the other CSI sequences) stand between its characters, and when some or all
// characters are written as %XX (also %25XX) or as JSON escapes (\uXXXX, \/,
// \", with any number of backslashes up to 16). What is not found: reversed,
// compressed, encrypted, or cut into pieces by other text.
package redact
