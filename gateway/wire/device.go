package wire

import (
	"errors"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
)

// device is the stack's link to the box: Ethernet frames on a TAP queue. Only
// what the filter lets through reaches the stack.
//
// It is our own and not gVisor's fdbased endpoint for two reasons: that one
// stops reading for good at the first frame that is not addressed to it, which
// a box may send, and tearing its stack down can wait for a packet that waits
// for the stack.
type device struct {
	tap    *os.File
	raw    syscall.RawConn // of tap, for writing from several pieces
	filter filter
	done   chan struct{} // closed when the reader has ended

	mu         sync.RWMutex
	dispatcher stack.NetworkDispatcher // nil until attached; guarded by mu
}

// openDevice takes tap over: it is closed, and the device has a duplicate that
// the runtime's poller serves.
func openDevice(tap *os.File, drops *drops) (*device, error) {
	defer tap.Close()
	old, err := tap.SyscallConn()
	if err != nil {
		return nil, err
	}
	fd, dupErr := -1, error(nil)
	err = old.Control(func(o uintptr) {
		if fd, dupErr = unix.FcntlInt(o, unix.F_DUPFD_CLOEXEC, 3); dupErr == nil {
			dupErr = unix.SetNonblock(fd, true)
		}
	})
	if err = errors.Join(err, dupErr); err != nil {
		return nil, err
	}
	d := &device{tap: os.NewFile(uintptr(fd), "tap"), filter: filter{drops}, done: make(chan struct{})}
	if d.raw, err = d.tap.SyscallConn(); err != nil {
		d.tap.Close()
		return nil, err
	}
	return d, nil
}

// read hands frames to the stack until the queue is closed.
func (d *device) read() {
	defer close(d.done)
	frame := make([]byte, header.EthernetMinimumSize+mtu+1)
	for {
		n, err := d.tap.Read(frame)
		if err != nil {
			return // closed, or the device is gone: there is nothing to serve
		}
		if n >= header.EthernetMinimumSize {
			d.deliver(frame[:n])
		}
	}
}

// deliver hands one frame to the stack, if it is one that the wire serves.
func (d *device) deliver(frame []byte) {
	h := header.Ethernet(frame)
	if to := h.DestinationAddress(); to != gatewayMAC && to != header.EthernetBroadcastAddress {
		if h.Type() == header.IPv6ProtocolNumber {
			d.filter.admit(h.Type(), frame[header.EthernetMinimumSize:]) // counted
		}
		return // for another machine on this network, and there is none
	}
	if !d.filter.admit(h.Type(), frame[header.EthernetMinimumSize:]) {
		return
	}
	pkt := stack.NewPacketBuffer(stack.PacketBufferOptions{Payload: buffer.MakeWithData(frame)})
	defer pkt.DecRef()
	if !d.ParseHeader(pkt) {
		return
	}
	d.mu.RLock()
	to := d.dispatcher
	d.mu.RUnlock()
	if to != nil {
		to.DeliverNetworkPacket(pkt.NetworkProtocolNumber, pkt)
	}
}

// write sends one frame, given in pieces, to the box.
func (d *device) write(pieces [][]byte) error {
	var werr error
	err := d.raw.Write(func(fd uintptr) bool {
		_, werr = unix.Writev(int(fd), pieces)
		return werr != unix.EAGAIN
	})
	return errors.Join(err, werr)
}

// stop closes the queue and waits for the reader.
func (d *device) stop() error {
	err := d.tap.Close()
	<-d.done
	return err
}

// WritePackets implements stack.LinkEndpoint.
func (d *device) WritePackets(list stack.PacketBufferList) (int, tcpip.Error) {
	for i, pkt := range list.AsSlice() {
		if err := d.write(pkt.AsSlices()); err != nil {
			return i, &tcpip.ErrClosedForSend{}
		}
	}
	return list.Len(), nil
}

// Attach implements stack.LinkEndpoint.
func (d *device) Attach(to stack.NetworkDispatcher) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.dispatcher = to
}

// IsAttached implements stack.LinkEndpoint.
func (d *device) IsAttached() bool {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.dispatcher != nil
}

// AddHeader implements stack.LinkEndpoint.
func (d *device) AddHeader(pkt *stack.PacketBuffer) {
	header.Ethernet(pkt.LinkHeader().Push(header.EthernetMinimumSize)).Encode(&header.EthernetFields{
		SrcAddr: gatewayMAC, DstAddr: boxMAC, Type: pkt.NetworkProtocolNumber,
	})
}

// ParseHeader implements stack.LinkEndpoint.
func (d *device) ParseHeader(pkt *stack.PacketBuffer) bool {
	b, ok := pkt.LinkHeader().Consume(header.EthernetMinimumSize)
	if ok {
		pkt.NetworkProtocolNumber = header.Ethernet(b).Type()
	}
	return ok
}

// Capabilities implements stack.LinkEndpoint. Checksums of what the box sends
// are not checked: the device is memory of this machine, and a box that spoils
// them spoils its own streams only.
func (d *device) Capabilities() stack.LinkEndpointCapabilities {
	return stack.CapabilityRXChecksumOffload | stack.CapabilityResolutionRequired
}

// MTU implements stack.LinkEndpoint.
func (d *device) MTU() uint32 { return mtu }

// SetMTU implements stack.LinkEndpoint; the MTU is fixed.
func (d *device) SetMTU(uint32) {}

// MaxHeaderLength implements stack.LinkEndpoint.
func (d *device) MaxHeaderLength() uint16 { return header.EthernetMinimumSize }

// LinkAddress implements stack.LinkEndpoint.
func (d *device) LinkAddress() tcpip.LinkAddress { return gatewayMAC }

// SetLinkAddress implements stack.LinkEndpoint; the address is fixed.
func (d *device) SetLinkAddress(tcpip.LinkAddress) {}

// ARPHardwareType implements stack.LinkEndpoint.
func (d *device) ARPHardwareType() header.ARPHardwareType { return header.ARPHardwareEther }

// Wait implements stack.LinkEndpoint. The reader is waited for by stop, before
// the stack is taken down.
func (d *device) Wait() {}

// Close implements stack.LinkEndpoint; stop does it.
func (d *device) Close() {}

// SetOnCloseAction implements stack.LinkEndpoint.
func (d *device) SetOnCloseAction(func()) {}
