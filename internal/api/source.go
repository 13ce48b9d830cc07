package api

import (
	"context"
	"encoding/binary"
	"net"
	"net/netip"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

type sourceKey struct{}

// withSource keeps where a connection comes from, for as long as it lasts.
func withSource(ctx context.Context, conn net.Conn) context.Context {
	b, ok := conn.(*boundedConn)
	if !ok {
		return ctx
	}
	return context.WithValue(ctx, sourceKey{}, b.source)
}

// sourceOf says where a connection comes from: which user of this machine the
// kernel says opened it, else its address. It names nobody who may do anything;
// what people do before they are known is shared out by it.
func sourceOf(conn net.Conn) string {
	switch c := conn.(type) {
	case *net.UnixConn:
		if p := peerOf(c); p.err == nil {
			return uidSource(p.uid)
		}
		return "socket"
	case *net.TCPConn:
		far, near := c.RemoteAddr().(*net.TCPAddr).AddrPort(), c.LocalAddr().(*net.TCPAddr).AddrPort()
		if uid, err := ownerOf(far, near); err == nil {
			return uidSource(uid)
		}
		return "address " + far.Addr().Unmap().String()
	}
	return conn.RemoteAddr().String()
}

func uidSource(uid int) string { return "uid " + strconv.Itoa(uid) }

// Sizes of what is asked of the kernel and answered. Source: sock_diag(7),
// linux/inet_diag.h: a header of 16 bytes, inet_diag_req_v2 of 56, and
// inet_diag_msg, whose uid is behind 4 bytes of state, 48 of the socket's name,
// and three counts of 4.
const (
	diagHeader  = 16
	diagRequest = diagHeader + 56
	diagUID     = diagHeader + 4 + 48 + 12
	diagWait    = 100 * time.Millisecond // the kernel answers at once
)

// ownerOf returns the user whose socket at near is connected to far, both on this
// machine. An error says that the kernel does not tell, or that there is none.
func ownerOf(near, far netip.AddrPort) (int, error) {
	near, far = netip.AddrPortFrom(near.Addr().Unmap(), near.Port()), netip.AddrPortFrom(far.Addr().Unmap(), far.Port())
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, unix.NETLINK_INET_DIAG)
	if err != nil {
		return 0, os.NewSyscallError("socket", err)
	}
	defer unix.Close(fd)
	wait := unix.NsecToTimeval(diagWait.Nanoseconds())
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &wait); err != nil {
		return 0, os.NewSyscallError("setsockopt", err)
	}
	q := make([]byte, diagRequest)
	binary.NativeEndian.PutUint32(q[0:], diagRequest)
	binary.NativeEndian.PutUint16(q[4:], unix.SOCK_DIAG_BY_FAMILY)
	binary.NativeEndian.PutUint16(q[6:], unix.NLM_F_REQUEST)
	q[16], q[17] = unix.AF_INET6, unix.IPPROTO_TCP
	if near.Addr().Is4() {
		q[16] = unix.AF_INET
	}
	binary.NativeEndian.PutUint32(q[20:], 1<<1) // established
	binary.BigEndian.PutUint16(q[24:], near.Port())
	binary.BigEndian.PutUint16(q[26:], far.Port())
	copy(q[28:44], near.Addr().AsSlice())
	copy(q[44:60], far.Addr().AsSlice())
	binary.NativeEndian.PutUint64(q[64:], 1<<64-1) // no cookie
	if err := unix.Sendto(fd, q, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return 0, os.NewSyscallError("sendto", err)
	}
	answer := make([]byte, 4096)
	n, _, err := unix.Recvfrom(fd, answer, 0)
	switch {
	case err != nil:
		return 0, os.NewSyscallError("recvfrom", err)
	case n < diagUID+4 || binary.NativeEndian.Uint16(answer[4:]) != unix.SOCK_DIAG_BY_FAMILY:
		return 0, unix.ENOENT
	}
	return int(binary.NativeEndian.Uint32(answer[diagUID:])), nil
}
