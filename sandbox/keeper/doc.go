// Package keeper is the protocol between the server and the program that owns
// the boxes: Serve offers sandbox drivers on a unix socket, and Client, a
// sandbox.Driver itself, uses them from elsewhere. So a server can come and go
// while boxes, commands and their output stay.
//
// It starts and keeps nothing of its own, and it serves only the user it runs
// as: the kernel says who is at the other end. Its invariant: a client that
// vanishes at any moment loses its own calls and nothing else; output it had
// not acknowledged is sent again to the next one.
//
// # Protocol
//
// Every call has a connection of its own. Both directions carry frames, numbers
// big endian:
//
//	u32 length of what follows | u8 kind | payload
//
// Kind 1 is JSON, kind 2 data (u8 stream, u64 offset, bytes) and kind 3 an
// acknowledgement without payload. A call goes so:
//
//	client: hello, request         both JSON, without waiting in between
//	keeper: hello                  with an error if it will not serve
//	keeper: data …                 attach: each is acknowledged by the client
//	client: data …                 write: each is acknowledged by the keeper
//	keeper: reply                  JSON; wire: a descriptor rides on it (SCM_RIGHTS)
//
// A client that closes its connection ends the call: an attachment is detached,
// a creation undone; commands and boxes that exist stay. Versions must be equal;
// hello is the same in all of them, so that each side can say whom it met.
package keeper
