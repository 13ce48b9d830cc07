// Package trace keeps the record: one append-only log for each session and one
// for the host, redacted before anything is written, sealed by a signed head,
// and exported in the form that package proof checks.
//
// It never changes or removes an event once Record has returned, and never
// decides what an event means. The invariant: an event is on record, complete
// and in its place, or Record returned an error; what an error left behind is
// cut before the next event, and the gap itself goes on record.
//
// # Files
//
//	DIR/host.jsonl            what concerns the host: task states, receipts, approvals, landings, seals
//	DIR/host.head             signed head of host.jsonl, written at every seal and at Close
//	DIR/sessions/ID.jsonl     one session
//	DIR/sessions/ID.seal      its signed head, once it is sealed
//
// A log is lines of JSON, each one cofferdam.Event whose "seq" is its line
// number from 0. Every event is one write(2) to a descriptor opened with
// O_APPEND, so it survives the end of this process; a durable one is synced
// before Record returns, and those that come together share one sync. A log is
// open in one process at a time (flock).
//
// A value of Fields that is not valid UTF-8 is stored in base64 under its key
// and ":base64"; Bytes gives it back. Other text has its invalid bytes replaced
// by U+FFFD.
//
// After a power loss the last events that were not durable may be gone or
// half there. Open cuts what is not a whole event at the end and records
// that as trace.gap; an event that does not fit in the middle is Tampered, as is
// a host log that does not hold what its signed head says.
package trace
