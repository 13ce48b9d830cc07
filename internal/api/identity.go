package api

import "cofferdam"

// identityRoutes are those of people, programs with an account, and what they
// hold. Who signs in is not known before, and public keys are for all: these
// routes ask for nobody.
func identityRoutes() []Route {
	const members, projects, tokens = "cofferdam/member-list/v1", "cofferdam/project-list/v1", "cofferdam/token-list/v1"
	const organizations = "cofferdam/organization-list/v1"
	return []Route{
		{Method: "POST", Path: "/v1/login", ID: "signIn", Doc: "a token of 12 hours for a person's password, and the code of their application if they have one", Body: cofferdam.LoginRequest{}, Reply: cofferdam.Login{}, Created: true, Open: true, call: func(c *call) (any, error) {
			return c.svc.SignIn(c.ctx, *c.body.(*cofferdam.LoginRequest))
		}},
		{Method: "POST", Path: "/v1/login/begin", ID: "beginSignIn", Doc: "begin to sign in at the identity provider: the address for a browser, which comes back to a port of the person's machine", Body: cofferdam.LoginBegin{}, Reply: cofferdam.LoginFlow{}, Open: true, call: func(c *call) (any, error) {
			return c.svc.BeginSignIn(c.ctx, c.body.(*cofferdam.LoginBegin).Redirect)
		}},
		{Method: "POST", Path: "/v1/login/finish", ID: "finishSignIn", Doc: "a token of 12 hours for what the browser came back with", Body: cofferdam.LoginFinish{}, Reply: cofferdam.Login{}, Created: true, Open: true, call: func(c *call) (any, error) {
			return c.svc.FinishSignIn(c.ctx, *c.body.(*cofferdam.LoginFinish))
		}},
		{Method: "POST", Path: "/v1/login/device", ID: "beginDeviceSignIn", Doc: "begin to sign in at the identity provider on a machine without a browser: an address and a code for a browser anywhere", Reply: cofferdam.LoginDevice{}, Open: true, call: func(c *call) (any, error) {
			return c.svc.BeginDeviceSignIn(c.ctx)
		}},
		{Method: "POST", Path: "/v1/login/device/finish", ID: "finishDeviceSignIn", Doc: "a token of 12 hours once the code was given; until then 202 and when to ask again", Body: cofferdam.LoginTicket{}, Reply: cofferdam.Login{}, Created: true, Open: true, call: func(c *call) (any, error) {
			return c.svc.FinishDeviceSignIn(c.ctx, c.body.(*cofferdam.LoginTicket).Ticket)
		}},
		{Method: "POST", Path: "/v1/login/bind", ID: "bindSignIn", Doc: "whom the identity provider names is the caller from now on; with a fresh proof, if the caller has anything to prove by", Body: cofferdam.LoginFinish{}, call: func(c *call) (any, error) {
			return nil, c.svc.BindSignIn(c.ctx, *c.body.(*cofferdam.LoginFinish))
		}},
		{Method: "GET", Path: "/v1/jwks.json", ID: "jwks", Doc: "public keys that check the tokens of sessions (RFC 7517)", Raw: "application/json", Open: true, call: func(c *call) (any, error) {
			_, err := lazyWriter{c, "application/json"}.Write(c.svc.WorkloadKeys())
			return nil, err
		}},
		{Method: "POST", Path: "/v1/logout", ID: "signOut", Doc: "end the token of the request", call: func(c *call) (any, error) { return nil, c.svc.Logout(c.ctx) }},
		{Method: "GET", Path: "/v1/self", ID: "viewSelf", Doc: "who the caller is in the project", Reply: cofferdam.Member{}, call: func(c *call) (any, error) { return c.svc.Self(c.ctx) }},
		{Method: "GET", Path: "/v1/members", ID: "listMembers", Doc: "who has a role in the project, or in the organisation", Reply: cofferdam.Member{}, List: members, Query: []Param{levelParam}, call: func(c *call) (any, error) {
			all, err := c.svc.ListMembers(c.ctx, cofferdam.MemberLevel(c.query.Get("level")))
			return listOf(members, all, err)
		}},
		{Method: "POST", Path: "/v1/members", ID: "addMember", Doc: "give somebody a role, with a fresh proof; who is new is made, and a person gets an invitation", Body: cofferdam.MemberRequest{}, Reply: cofferdam.MemberAdded{}, Created: true, call: func(c *call) (any, error) {
			return c.svc.AddMember(c.ctx, *c.body.(*cofferdam.MemberRequest))
		}},
		{Method: "GET", Path: "/v1/members/{name}", ID: "viewMember", Doc: "one who has a role in the project", Reply: cofferdam.Member{}, call: func(c *call) (any, error) { return c.svc.Member(c.ctx, c.name) }},
		{Method: "POST", Path: "/v1/members/{name}/remove", ID: "removeMember", Doc: "take a role away, or close the account, with a fresh proof", Body: cofferdam.MemberRemoval{}, call: func(c *call) (any, error) {
			return nil, c.svc.RemoveMember(c.ctx, c.name, *c.body.(*cofferdam.MemberRemoval))
		}},
		{Method: "POST", Path: "/v1/members/{name}/reopen", ID: "reopenMember", Doc: "open a closed account again with one role and nothing else of what it had, with a fresh proof; a person gets an invitation", Body: cofferdam.MemberReopening{}, Reply: cofferdam.MemberAdded{}, Created: true, call: func(c *call) (any, error) {
			return c.svc.ReopenMember(c.ctx, c.name, *c.body.(*cofferdam.MemberReopening))
		}},
		{Method: "GET", Path: "/v1/projects", ID: "listProjects", Doc: "projects that the caller has a role in", Reply: cofferdam.Project{}, List: projects, call: func(c *call) (any, error) {
			all, err := c.svc.ListProjects(c.ctx)
			return listOf(projects, all, err)
		}},
		{Method: "POST", Path: "/v1/projects", ID: "addProject", Doc: "make a project of the organisation", Body: cofferdam.ProjectRequest{}, Reply: cofferdam.Project{}, Created: true, call: func(c *call) (any, error) {
			return c.svc.AddProject(c.ctx, *c.body.(*cofferdam.ProjectRequest))
		}},
		{Method: "GET", Path: "/v1/organizations", ID: "listOrganizations", Doc: "organisations of the server, for who runs it", Reply: cofferdam.Organization{}, List: organizations, call: func(c *call) (any, error) {
			all, err := c.svc.ListOrganizations(c.ctx)
			return listOf(organizations, all, err)
		}},
		{Method: "POST", Path: "/v1/organizations", ID: "addOrganization", Doc: "make an organisation with a project and an owner, who gets an invitation; for who runs the server, with a fresh proof", Body: cofferdam.OrganizationRequest{}, Reply: cofferdam.OrganizationAdded{}, Created: true, call: func(c *call) (any, error) {
			return c.svc.AddOrganization(c.ctx, *c.body.(*cofferdam.OrganizationRequest))
		}},
		{Method: "GET", Path: "/v1/tokens", ID: "listTokens", Doc: "the caller's tokens, and for an owner those of the project, without their texts", Reply: cofferdam.Token{}, List: tokens, call: func(c *call) (any, error) {
			all, err := c.svc.ListTokens(c.ctx)
			return listOf(tokens, all, err)
		}},
		{Method: "POST", Path: "/v1/tokens", ID: "createToken", Doc: "make a token, with a fresh proof; its text is told this once", Body: cofferdam.TokenRequest{}, Reply: cofferdam.Login{}, Created: true, call: func(c *call) (any, error) {
			return c.svc.CreateToken(c.ctx, *c.body.(*cofferdam.TokenRequest))
		}},
		{Method: "DELETE", Path: "/v1/tokens/{name}", ID: "revokeToken", Doc: "end a token", call: func(c *call) (any, error) { return nil, c.svc.RevokeToken(c.ctx, c.name) }},
	}
}
