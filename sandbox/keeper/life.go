package keeper

import (
	"context"

	"cofferdam"
	"cofferdam/sandbox"
)

func (b *box) Wait(ctx context.Context, states ...sandbox.BoxState) (sandbox.Change, error) {
	re, err := b.client.call(ctx, request{Op: opWait, Box: b.id, States: states})
	if err != nil || re.Change == nil {
		return sandbox.Change{}, err
	}
	return *re.Change, nil
}

func (b *box) Jobs(ctx context.Context) ([]cofferdam.BoxJob, error) {
	re, err := b.client.call(ctx, request{Op: opJobs, Box: b.id})
	return re.Jobs, err
}

func (b *box) Pause(ctx context.Context) error {
	_, err := b.client.call(ctx, request{Op: opPause, Box: b.id})
	return err
}

func (b *box) Suspend(ctx context.Context) error {
	_, err := b.client.call(ctx, request{Op: opSuspend, Box: b.id})
	return err
}

func (b *box) Resume(ctx context.Context) error {
	_, err := b.client.call(ctx, request{Op: opResume, Box: b.id})
	return err
}
