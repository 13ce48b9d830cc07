package wire

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/time/rate"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"

	"cofferdam"
	"cofferdam/gateway"
	"cofferdam/policy"
)

const (
	dnsPort      = 53
	dnsInFlight  = 16  // questions that are judged at the same time
	maxQuestion  = 512 // bytes; one question of one name needs less
	answerTTL    = 60  // seconds; an address stands for its name as long as the wire
	refusalTTL   = 1   // seconds
	fieldAddress = "address"
	// A question of a name that is known costs some microseconds, and npm asks for the
	// same one two thousand times. A refused name that is new costs an event.
	questionRate  = 2000 // a second
	questionBurst = 4000
	refusalRate   = 50 // events a second
	refusalBurst  = 1000
	// rememberRefused is how many refused names are remembered, so that asking
	// again (for another type, through another library) is not recorded again.
	rememberRefused = 256
)

// resolver judges names for one wire.
type resolver struct {
	wire      *Wire
	questions *rate.Limiter // of all questions: over it they wait
	refusals  *rate.Limiter // of events about refused names: over it they are only counted

	mu      sync.Mutex              // held while a new name is judged, so that each is judged once
	refused map[cofferdam.Host]bool // the latest; at most rememberRefused; guarded by mu
	by      cofferdam.Digest        // policy that refused them; guarded by mu
}

func newResolver(w *Wire) *resolver {
	return &resolver{
		wire: w, refused: map[cofferdam.Host]bool{},
		questions: rate.NewLimiter(questionRate, questionBurst), refusals: rate.NewLimiter(refusalRate, refusalBurst),
	}
}

// serveUDP answers questions until the wire ends. There is no upstream: no
// question of a box ever becomes a packet on another network.
func (r *resolver) serveUDP(conn *gonet.UDPConn) {
	w := r.wire
	stop := context.AfterFunc(w.live, func() { conn.Close() })
	defer stop()
	var wg sync.WaitGroup
	defer wg.Wait()
	slots := make(chan struct{}, dnsInFlight)
	buf := make([]byte, maxQuestion+1)
	for {
		n, from, err := conn.ReadFrom(buf)
		if err != nil {
			return
		}
		if n > maxQuestion {
			w.drops.note(dropMalformed, "dns question")
			continue
		}
		question := append([]byte(nil), buf[:n]...)
		if r.questions.Wait(w.live) != nil {
			return
		}
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			r.answer(conn, from, question)
		})
	}
}

func (r *resolver) answer(conn net.PacketConn, from net.Addr, question []byte) {
	if reply := r.reply(question); reply != nil {
		_, _ = conn.WriteTo(reply, from) // a lost answer is asked for again
	}
}

// reply is what a question gets; nil for nothing.
func (r *resolver) reply(question []byte) []byte {
	reply, ok := respond(question, func(h cofferdam.Host, t dnsmessage.Type) (netip.Addr, dnsmessage.RCode) {
		return r.resolve(r.wire.live, h, t)
	})
	switch {
	case !ok:
		r.wire.drops.note(dropMalformed, "dns question")
		return nil
	case r.wire.live.Err() != nil:
		return nil // the session has ended; the socket is about to be closed
	}
	return reply
}

// respond parses a question, asks resolve for the address and packs the
// answer. Only A records exist; a name that has none of the asked type gets
// an empty answer, never "no such name" (BR-30). ok is false if there is nothing to
// answer to.
//
// The names of the box's own loopback are answered without being judged, as
// RFC 6761 asks of resolvers (6.3): nothing leaves the box by them. A table of
// hosts may lack them by IPv6 (U-05).
func respond(question []byte, resolve func(cofferdam.Host, dnsmessage.Type) (netip.Addr, dnsmessage.RCode)) (reply []byte, ok bool) {
	var p dnsmessage.Parser
	h, err := p.Start(question)
	if err != nil || h.Response {
		return nil, false
	}
	rh := dnsmessage.Header{
		ID: h.ID, Response: true, OpCode: h.OpCode,
		RecursionDesired: h.RecursionDesired, RecursionAvailable: true,
	}
	qs, err := p.AllQuestions()
	var addr netip.Addr
	switch {
	case err != nil || len(qs) != 1:
		rh.RCode, qs = dnsmessage.RCodeFormatError, nil
	case h.OpCode != 0:
		rh.RCode = dnsmessage.RCodeNotImplemented
	case qs[0].Class != dnsmessage.ClassINET:
		rh.RCode = dnsmessage.RCodeRefused
	default:
		host := cofferdam.ParseHost(qs[0].Name.String())
		if isLocal(host) {
			addr = localAddress(qs[0].Type)
			break
		}
		addr, rh.RCode = resolve(host, qs[0].Type)
	}
	m := dnsmessage.Message{Header: rh, Questions: qs}
	if addr == netip.IPv6Loopback() {
		m.Answers = []dnsmessage.Resource{{
			Header: dnsmessage.ResourceHeader{Name: qs[0].Name, Class: dnsmessage.ClassINET, TTL: answerTTL},
			Body:   &dnsmessage.AAAAResource{AAAA: addr.As16()},
		}}
	}
	if addr.IsValid() && qs[0].Type == dnsmessage.TypeA {
		ttl := uint32(answerTTL)
		if addr == RefusalAddress {
			ttl = refusalTTL
		}
		m.Answers = []dnsmessage.Resource{{
			Header: dnsmessage.ResourceHeader{Name: qs[0].Name, Class: dnsmessage.ClassINET, TTL: ttl},
			Body:   &dnsmessage.AResource{A: addr.As4()},
		}}
	}
	reply, err = m.Pack()
	return reply, err == nil
}

// isLocal says whether h is a name of the loopback.
func isLocal(h cofferdam.Host) bool {
	return h == "localhost" || strings.HasSuffix(string(h), ".localhost")
}

// localAddress is the loopback's for a type of question, or none.
func localAddress(t dnsmessage.Type) netip.Addr {
	switch t {
	case dnsmessage.TypeA:
		return netip.AddrFrom4([4]byte{127, 0, 0, 1})
	case dnsmessage.TypeAAAA:
		return netip.IPv6Loopback()
	}
	return netip.Addr{}
}

// resolve returns the address that stands for h on this wire: one of its own,
// which is on record, or RefusalAddress. An invalid address with RCodeSuccess
// is a name without addresses.
func (r *resolver) resolve(ctx context.Context, h cofferdam.Host, t dnsmessage.Type) (netip.Addr, dnsmessage.RCode) {
	if a, ok := r.wire.names.address(h); ok {
		return a, dnsmessage.RCodeSuccess
	}
	if service, base := serviceName(h); service && r.known(base) {
		// _http._tcp.HOST and the like: a permitted host without such a service.
		return netip.Addr{}, dnsmessage.RCodeNameError
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if a, ok := r.wire.names.address(h); ok { // judged while we waited
		return a, dnsmessage.RCodeSuccess
	}
	if d := r.wire.caller.Policy.Digest(); d != r.by { // another one may let them be known
		clear(r.refused)
		r.by = d
	}
	if r.refused[h] {
		return refusedAnswer(h)
	}
	addr, err := r.judge(ctx, h, t)
	switch cofferdam.KindOf(err) {
	case cofferdam.Denied, cofferdam.Exhausted:
		if errors.Is(err, errCounted) { // it goes on record when it is asked for again, and there is room
			return refusedAnswer(h)
		}
		if len(r.refused) >= rememberRefused {
			clear(r.refused)
		}
		r.refused[h] = true
		return refusedAnswer(h)
	}
	if err != nil {
		return netip.Addr{}, dnsmessage.RCodeServerFailure
	}
	return addr, dnsmessage.RCodeSuccess
}

// judge asks policy about h and, if it may be known, gives it an address. The
// address is part of the decision's record, written before the box hears it.
func (r *resolver) judge(ctx context.Context, h cofferdam.Host, t dnsmessage.Type) (netip.Addr, error) {
	q := policy.Query{Action: policy.Resolve, Host: h}
	req := gateway.Request{
		Source: "wire", Kind: cofferdam.EventDNS, Resource: recordable(h), Query: q,
		Fields: map[string]string{"type": strings.TrimPrefix(t.String(), "Type")},
	}
	var addr netip.Addr
	if r.wire.caller.Policy.Decide(q).Verdict == cofferdam.Allowed {
		if err := r.tooMany(ctx, req, h); err != nil {
			return addr, err
		}
		var err error
		if addr, err = r.wire.names.reserve(); err != nil {
			return addr, gateway.Reject(ctx, r.wire.caller, req, RuleNames,
				fmt.Sprintf("this session has used up its %d names", MaxNames), "start another task for the rest of the work")
		}
		req.Fields[fieldAddress] = addr.String()
	} else if !r.refusals.Allow() {
		r.wire.drops.note(dropQuestion, "")
		return addr, errCounted
	}
	err := gateway.Handle(ctx, r.wire.caller, req, func(context.Context) (gateway.Outcome, error) {
		r.wire.names.add(h, addr)
		return gateway.Outcome{}, nil
	})
	return addr, err
}

func (r *resolver) known(h cofferdam.Host) bool {
	_, ok := r.wire.names.address(h)
	return ok || r.wire.caller.Policy.Decide(policy.Query{Action: policy.Resolve, Host: h}).Verdict == cofferdam.Allowed
}

// refusedAnswer is what a refused name gets: the address where the reason is
// told. What is no host name at all does not exist.
func refusedAnswer(h cofferdam.Host) (netip.Addr, dnsmessage.RCode) {
	if policy.CheckHost(h) != nil {
		return netip.Addr{}, dnsmessage.RCodeNameError
	}
	return RefusalAddress, dnsmessage.RCodeSuccess
}

// serviceName takes the labels that start with an underscore off a name.
func serviceName(h cofferdam.Host) (bool, cofferdam.Host) {
	rest := string(h)
	for strings.HasPrefix(rest, "_") {
		_, after, ok := strings.Cut(rest, ".")
		if !ok {
			return false, h
		}
		rest = after
	}
	return rest != string(h), cofferdam.Host(rest)
}

// recordable keeps raw bytes of a question out of the record.
func recordable(h cofferdam.Host) string {
	if policy.CheckHost(h) == nil {
		return string(h)
	}
	return fmt.Sprintf("%q", string(h))
}
