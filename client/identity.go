package client

import (
	"context"
	"net/url"

	"cofferdam"
)

// SignIn returns a token of 12 hours. It needs no token.
func (c *Client) SignIn(ctx context.Context, r cofferdam.LoginRequest) (cofferdam.Login, error) {
	return post[cofferdam.Login](ctx, c, "/v1/login", r, "")
}

// BeginSignIn begins to sign in at the server's identity provider. It needs no token.
func (c *Client) BeginSignIn(ctx context.Context, redirect string) (cofferdam.LoginFlow, error) {
	return post[cofferdam.LoginFlow](ctx, c, "/v1/login/begin", cofferdam.LoginBegin{Redirect: redirect}, "")
}

// FinishSignIn ends it with a token of 12 hours. It needs no token.
func (c *Client) FinishSignIn(ctx context.Context, r cofferdam.LoginFinish) (cofferdam.Login, error) {
	return post[cofferdam.Login](ctx, c, "/v1/login/finish", r, "")
}

// BeginDeviceSignIn begins to sign in there without a browser. It needs no token.
func (c *Client) BeginDeviceSignIn(ctx context.Context) (cofferdam.LoginDevice, error) {
	return post[cofferdam.LoginDevice](ctx, c, "/v1/login/device", nil, "")
}

// FinishDeviceSignIn ends it with a token of 12 hours; an error of the kind
// AwaitsPerson says that nobody has given the code yet. It needs no token.
func (c *Client) FinishDeviceSignIn(ctx context.Context, ticket string) (cofferdam.Login, error) {
	return post[cofferdam.Login](ctx, c, "/v1/login/device/finish", cofferdam.LoginTicket{Ticket: ticket}, "")
}

// BindSignIn makes whom the provider names be the caller.
func (c *Client) BindSignIn(ctx context.Context, r cofferdam.LoginFinish) error {
	return c.call(ctx, request{method: "POST", path: "/v1/login/bind", body: r}, nil)
}

// SignOut ends the token by which the client calls.
func (c *Client) SignOut(ctx context.Context) error {
	return c.call(ctx, request{method: "POST", path: "/v1/logout"}, nil)
}

// Self returns who the caller is in the project.
func (c *Client) Self(ctx context.Context) (cofferdam.Member, error) {
	return get[cofferdam.Member](ctx, c, "/v1/self")
}

// Members lists who has a role in the project, or in the organisation.
func (c *Client) Members(ctx context.Context, level cofferdam.MemberLevel) ([]cofferdam.Member, error) {
	return items[cofferdam.Member](ctx, c, "/v1/members?level="+url.QueryEscape(string(level)))
}

// Member finds one of the project by name or id.
func (c *Client) Member(ctx context.Context, name string) (cofferdam.Member, error) {
	return get[cofferdam.Member](ctx, c, at("members", name))
}

// AddMember gives somebody a role.
func (c *Client) AddMember(ctx context.Context, r cofferdam.MemberRequest) (cofferdam.MemberAdded, error) {
	return post[cofferdam.MemberAdded](ctx, c, "/v1/members", r, "")
}

// RemoveMember takes a role away, or closes an account.
func (c *Client) RemoveMember(ctx context.Context, name string, r cofferdam.MemberRemoval) error {
	return c.call(ctx, request{method: "POST", path: at("members", name) + "/remove", body: r}, nil)
}

// ReopenMember opens a closed account again.
func (c *Client) ReopenMember(ctx context.Context, name string, r cofferdam.MemberReopening) (cofferdam.MemberAdded, error) {
	return post[cofferdam.MemberAdded](ctx, c, at("members", name)+"/reopen", r, "")
}

// Projects lists those that the caller has a role in.
func (c *Client) Projects(ctx context.Context) ([]cofferdam.Project, error) {
	return items[cofferdam.Project](ctx, c, "/v1/projects")
}

// AddProject makes a project of the caller's organisation.
func (c *Client) AddProject(ctx context.Context, r cofferdam.ProjectRequest) (cofferdam.Project, error) {
	return post[cofferdam.Project](ctx, c, "/v1/projects", r, "")
}

// Organizations lists those of the server, for who runs it.
func (c *Client) Organizations(ctx context.Context) ([]cofferdam.Organization, error) {
	return items[cofferdam.Organization](ctx, c, "/v1/organizations")
}

// AddOrganization makes an organisation with an owner; the invitation is in the
// answer this once.
func (c *Client) AddOrganization(ctx context.Context, r cofferdam.OrganizationRequest) (cofferdam.OrganizationAdded, error) {
	return post[cofferdam.OrganizationAdded](ctx, c, "/v1/organizations", r, "")
}

// Tokens lists the caller's tokens, and for an owner those of the project.
func (c *Client) Tokens(ctx context.Context) ([]cofferdam.Token, error) {
	return items[cofferdam.Token](ctx, c, "/v1/tokens")
}

// CreateToken makes a token; its text is in the answer this once.
func (c *Client) CreateToken(ctx context.Context, r cofferdam.TokenRequest) (cofferdam.Login, error) {
	return post[cofferdam.Login](ctx, c, "/v1/tokens", r, "")
}

// RevokeToken ends a token.
func (c *Client) RevokeToken(ctx context.Context, id string) error {
	return c.call(ctx, request{method: "DELETE", path: at("tokens", id)}, nil)
}

// RegisterPasskey has a browser make a passkey of the caller; Enroll keeps it.
func (c *Client) RegisterPasskey(ctx context.Context) error {
	return c.call(ctx, request{method: "POST", path: "/v1/passkeys/register"}, nil)
}

// Unenroll takes a factor of the caller away.
func (c *Client) Unenroll(ctx context.Context, id string, p cofferdam.Proof) error {
	return c.call(ctx, request{method: "POST", path: at("factors", id) + "/remove", body: p}, nil)
}
