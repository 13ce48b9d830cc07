// Package guest is what a host says to pid 1 of a box, and the host's half of
// that talk: Host starts commands, keeps their output and knows how they ended.
//
// It knows nothing of how a box is built, and it believes nothing that comes
// out of one: every frame is checked, and a box that breaks the protocol is
// treated as lost. Its invariant: no byte of output is lost or doubled. What no
// reader has acknowledged stays in a journal, and at the journal's cap the
// writer in the box waits.
//
// Host moves its box's sandbox.Life to busy and idle, and to failed when the
// talk is lost. While it is held, it takes no calls that the box would have to
// answer. Quiet brings the talk to a border between two frames, where a box can
// be written down; RestoreHost goes on from there, in the same box or a copy.
//
// # Frames
//
// Two pipes join host and pid 1: pid 1 reads descriptor 3 and writes descriptor
// 4. Both carry frames, all numbers big endian:
//
//	u32 length of what follows | u8 kind | u32 command | payload
//
// A command is named by a number that the host gives, from 1; 0 is the talk
// itself. The host sends
//
//	1 config     JSON of Config; first frame, once
//	2 start      Start, encoded as below
//	3 stdin      bytes for the command's standard input
//	4 stdin end  no payload
//	5 kill       no payload; answered by 70
//	6 limit      u8 stream, u64 offset up to which output may be sent
//	7 relieve    no payload; memory runs out: end the process that holds most
//	8 quiet      no payload; answered by 71, and then by silence until wake
//	9 wake       JSON of Identity: who the box is from here on; answered by 72
//	10 count     no payload; answered by 73
//
// and pid 1 sends
//
//	64 hello      JSON of Hello; answer to config
//	65 started    u32 process id, as the box sees it
//	66 output     u8 stream, then bytes
//	67 output end u8 stream
//	68 exit       JSON of Exit; output may still follow, until both ended
//	69 limit      u8 0, u64 offset up to which standard input may be sent
//	70 killed     JSON of Killed
//	71 quiet      no payload; nothing of ours is in the pipes after it
//	72 awake      JSON of Awake
//	73 counted    JSON of Counted
//
// Output and input have limits of their own, as absolute offsets, so that one
// stream that waits holds up no other. Output starts with a limit of 0, input
// with one of Window. Both sides always read: neither may
// block on writing while it should be reading.
//
// Start is encoded as u8 flags (1: with stdin), then the directory, the
// arguments and the environment; a string is u32 length and bytes, a list is
// u32 count and strings. Strings are bytes, not text: nothing is changed.
package guest
