package service

import (
	"context"

	"cofferdam"
)

// ListOrganizations returns those of the server, for who runs it: that one has
// others is nothing to their members.
func (s *Service) ListOrganizations(ctx context.Context) ([]cofferdam.Organization, error) {
	const op = "service.ListOrganizations"
	a, err := s.enter(ctx, op)
	if err != nil {
		return nil, err
	}
	if err := mustRun(op, a); err != nil {
		return nil, err
	}
	return s.Accounts.Organizations(ctx)
}

// AddOrganization makes an organisation, with a fresh proof that it is a person who
// runs the server that does; its owner gets an invitation.
func (s *Service) AddOrganization(ctx context.Context, r cofferdam.OrganizationRequest) (cofferdam.OrganizationAdded, error) {
	const op = "service.AddOrganization"
	none := cofferdam.OrganizationAdded{}
	a, err := s.enter(ctx, op)
	if err != nil {
		return none, err
	}
	if err := mustRun(op, a); err != nil {
		return none, err
	}
	if _, err := s.present(ctx, a.Caller, r.Proof, digestOf("organization", r.Name, r.Owner)); err != nil {
		return none, err
	}
	o, text, err := s.Accounts.NewOrganization(ctx, a.Caller, r.Name, r.Owner)
	if err != nil {
		return none, err
	}
	return cofferdam.OrganizationAdded{Schema: "cofferdam/organization-added/v1", Organization: o, Owner: r.Owner, Invitation: text}, nil
}

// mustRun refuses who does not run the server. A token says nothing of that,
// whosever it is.
func mustRun(op string, a Acting) error {
	if a.Caller.Runs {
		return nil
	}
	return &cofferdam.Error{
		Op: op, Kind: cofferdam.Forbidden, Subject: "organisations", Reason: "they are for who runs the server: its own user, on its socket or with its own token", Hint: "ask them",
	}
}
