package daemon

import (
	"context"

	"cofferdam"
	"cofferdam/approval"
	"cofferdam/internal/config"
)

// notices returns what tells the operator's webhook of questions; nil for none.
func (s *server) notices(ctx context.Context) (func(cofferdam.Question), error) {
	if s.Webhook == "" {
		return nil, nil
	}
	secret, err := config.ReadToken(s.WebhookSecret)
	if err != nil {
		return nil, err
	}
	hook := approval.NewWebhook(s.Webhook, []byte(secret), s.log)
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		hook.Run(ctx)
	}()
	s.onStop(func() {
		cancel()
		<-ended
	})
	return hook.Told, nil
}
