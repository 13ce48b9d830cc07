package daemon

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"sync"
	"time"

	"cofferdam"
	"cofferdam/approval"
	"cofferdam/secret"
)

// Names of what notices are signed with, in the vault.
const (
	hookSecret       = "webhook/secret"
	hookSecretBefore = "webhook/secret-before"
)

// hookOverlap is how long a secret signs beside the one that replaced it. Source:
// docs/SPECIFICATION.md, "Approvals".
const hookOverlap = 24 * time.Hour

// hook is what signs the notices of questions.
type hook struct {
	vault *secret.Vault
	scope cofferdam.Scope // of the server
	mu    sync.Mutex      // one rotation at a time
}

// sign is an approval.Signer.
func (h *hook) sign(ctx context.Context, message []byte) ([][]byte, error) {
	v, err := h.vault.Get(ctx, h.scope, hookSecret)
	if err != nil && cofferdam.KindOf(err) == cofferdam.NotFound {
		return nil, &cofferdam.Error{Op: "daemon.Sign", Kind: cofferdam.NotFound, Subject: "notice", Reason: "there is no secret to sign it with", Hint: "cofferdam approval webhook makes one", Err: err}
	}
	if err != nil {
		return nil, err
	}
	first, err := v.Sign(message)
	if err != nil {
		return nil, err
	}
	made, err := h.vault.Made(ctx, h.scope, hookSecret)
	if err != nil || time.Since(made) > hookOverlap {
		return [][]byte{first}, err
	}
	v, err = h.vault.Get(ctx, h.scope, hookSecretBefore)
	if err != nil && cofferdam.KindOf(err) == cofferdam.NotFound {
		return [][]byte{first}, nil
	}
	if err != nil {
		return nil, err
	}
	second, err := v.Sign(message)
	return [][]byte{first, second}, err
}

// rotate makes another secret and returns it.
func (h *hook) rotate(ctx context.Context) (string, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	before, err := h.vault.Get(ctx, h.scope, hookSecret)
	if err == nil {
		err = h.vault.Put(ctx, h.scope, hookSecretBefore, before)
	} else if cofferdam.KindOf(err) == cofferdam.NotFound {
		err = nil
	}
	if err != nil {
		return "", err
	}
	key := make([]byte, 32)
	rand.Read(key) // never fails since Go 1.24
	text := secret.KeyPrefix + base64.StdEncoding.EncodeToString(key)
	return text, h.vault.Put(ctx, h.scope, hookSecret, secret.NewValue([]byte(text)))
}

// notices returns what tells the operator's webhook of questions; nil for none.
func (s *server) notices(ctx context.Context) func(cofferdam.Question) {
	if s.Webhook == "" {
		return nil
	}
	s.hook = &hook{vault: s.vault, scope: s.scope}
	w := approval.NewWebhook(s.Webhook, s.hook.sign, s.log)
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w.Run(ctx)
	}()
	s.onStop(func() {
		cancel()
		<-ended
	})
	return w.Told
}

// outside are the systems that bring people's answers.
func outside(s *server) *approval.Systems {
	list := map[string]approval.System{}
	for name, o := range s.Systems {
		list[name] = approval.System{Keys: o.Keys, Proves: o.Proves}
	}
	return approval.NewSystems(approval.SystemsOptions{List: list, Store: s.store, Record: s.trace.Host(), Scope: s.scope})
}

// maker makes another secret; nil where there is no webhook.
func (h *hook) maker() func(context.Context) (string, error) {
	if h == nil {
		return nil
	}
	return h.rotate
}
