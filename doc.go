// Package cofferdam holds the words that every room of the program shares:
// identifiers, the nouns a user meets (Task, Session, Change), who acts
// (Principal), what was decided (Decision), what happened (Event), what went
// wrong (Error) and the one interface through which anything is put on record
// (Recorder).
//
// It is types, and what follows from their values alone. It never does I/O, keeps no state and imports nothing of
// this module; everything else may import it. Its one invariant: a word means
// one thing, and travels under one JSON name.
package cofferdam
