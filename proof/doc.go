// Package proof makes and checks evidence: a hash tree over events, signed
// heads of it, signed receipts for a commit, and exports of a task's whole
// trace that anybody can check with the file and one public key.
//
// It never opens a file, a socket or a store: it works on bytes and readers, so
// that the checker stays small enough to read. The invariant: whatever Verify
// accepts was written in exactly these bytes and this order by the holder of
// the key; one byte more, fewer or other is an error of kind Tampered.
//
// # Notes
//
// Everything signed is a C2SP signed note (golang.org/x/mod/sumdb/note) with
// exactly one Ed25519 signature. The first line of the text says what it is, so
// that no note can stand in for another:
//
//	<key name>                      head of the host's log
//	<key name>/<session id>         head of a session's log
//	cofferdam receipt v2            receipt; the second line is its JSON
//	cofferdam policy change v1      a version of a policy counts; so is this
//	cofferdam export v1             end of an export
//
// # Heads
//
// A head is a C2SP checkpoint: origin line, number of events, root hash of the
// RFC 6962 tree in base64, and one extension line "time <RFC 3339>". A leaf is
// the event's line as stored, without its newline.
//
// A session is sealed when its last event is of kind session.seal and a signed
// head covers exactly that many events. The seal's fields hold "events" (how
// many there were before it), "kind <kind>" and "verdict <verdict>" counts.
//
// # Export
//
// An export is lines of JSON in this order. Lines with a "type" are written in
// one canonical way, and any other spelling is refused; lines without one are
// events exactly as stored.
//
//	{"type":"header","schema":"cofferdam/export/v2","time":…,"key":…,"task":…}
//	{"type":"session","session":"s-…"}     then its events, then, if sealed,
//	{"type":"seal","note":…}               the signed head
//	{"type":"host","note":…}               signed head of the host's log
//	{"type":"entry","index":…,"proof":[…],"event":{…}}
//	                                       one event of the host's log about the
//	                                       task, with its proof of inclusion
//	{"type":"policy","note":…,"text":…}    a document by which a session was judged, with
//	                                       the signed change by which it came to count
//	{"type":"receipt","note":…}
//	{"type":"end","note":…}                signs: task, number of lines before
//	                                       this one, SHA-256 of their bytes
//
// The host's log holds a trace.seal event for every sealed session (Resource:
// session id; Fields "size" and "root"): an export in which that session is
// missing, shorter or other is refused. A proof.create event's field "note" is
// the digest of a receipt; the report names those that are not in the export. A
// session without a seal, and an export without its end, are "not sealed".
//
// A decision's field "policy_base" is the digest of its policy. The session.state
// event of the resource "policy" that has the same names the digests of the
// documents in it, and each of those is here as a line of type "policy". What
// people opened is named by a decision's rule, "given." and the id of a question,
// whose answer is an entry of the host's log.
//
// Receipts of version 1, which have no terms, and exports of version 1, which have
// no policies, are checked as they were.
package proof
