package wire

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"time"

	"cofferdam/gateway"
)

// dnsIdle is how long a connection for questions may say nothing. Source: RFC 7766,
// section 6.2.3, "of the order of a few seconds".
const dnsIdle = 10 * time.Second

// Serve implements gateway.Handler: questions over TCP, one after the other, as by
// RFC 7766. Clients ask that way who were told to, or do not trust UDP.
func (r *resolver) Serve(_ *gateway.Caller, conn net.Conn, _ gateway.Target) {
	defer context.AfterFunc(r.wire.live, func() { conn.Close() })()
	var size [2]byte
	for {
		if conn.SetDeadline(time.Now().Add(dnsIdle)) != nil {
			return
		}
		if _, err := io.ReadFull(conn, size[:]); err != nil {
			return
		}
		n := binary.BigEndian.Uint16(size[:])
		if n > maxQuestion {
			r.wire.drops.note(dropMalformed, "dns question")
			return
		}
		question := make([]byte, n)
		if _, err := io.ReadFull(conn, question); err != nil {
			return
		}
		if r.questions.Wait(r.wire.live) != nil {
			return
		}
		reply := r.reply(question)
		if reply == nil {
			return
		}
		if _, err := conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(reply))), reply...)); err != nil {
			return
		}
	}
}
