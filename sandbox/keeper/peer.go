package keeper

// peer is who is at the other end of a socket.
type peer struct {
	Uid uint32
	Pid int32
}
