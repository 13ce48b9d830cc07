package api

import (
	"net/url"

	"cofferdam"
)

var discardParam = Param{"discard", "string", "true: without exporting what is in it and nowhere else"}

// flag reads a parameter that is true, false or not there.
func flag(q url.Values, name string) (bool, error) {
	switch v := q.Get(name); v {
	case "", "false":
		return false, nil
	case "true":
		return true, nil
	default:
		return false, invalid(name, "it is neither true nor false", "leave it away, or give true")
	}
}

// workspaceRoutes are those of what agents worked in.
func workspaceRoutes() []Route {
	const list = "cofferdam/workspace-list/v1"
	return []Route{
		{Method: "GET", Path: "/v1/workspaces", ID: "listWorkspaces", Doc: "workspaces that are kept, and bundles of those that are not, newest first", Reply: cofferdam.Workspace{}, List: list, call: func(c *call) (any, error) {
			all, err := c.svc.ListWorkspaces(c.ctx)
			return listOf(list, all, err)
		}},
		{Method: "GET", Path: "/v1/workspaces/{name}", ID: "viewWorkspace", Doc: "one of them, by its task, its id or a unique prefix", Reply: cofferdam.Workspace{}, call: func(c *call) (any, error) { return c.svc.Workspace(c.ctx, c.name) }},
		{Method: "POST", Path: "/v1/workspaces/{name}/export", ID: "exportWorkspace", Doc: "make a bundle of what is in it and in no branch of the repository", Reply: cofferdam.Workspace{}, call: func(c *call) (any, error) {
			return c.svc.ExportWorkspace(c.ctx, c.name)
		}},
		{Method: "GET", Path: "/v1/workspaces/{name}/bundle", ID: "workspaceBundle", Doc: "the bundle that was made of it, for git fetch", Raw: "application/octet-stream", call: func(c *call) (any, error) {
			write, err := c.svc.WorkspaceBundle(c.ctx, c.name)
			if err != nil {
				return nil, err
			}
			return nil, write(lazyWriter{c, "application/octet-stream"})
		}},
		{Method: "DELETE", Path: "/v1/workspaces/{name}", ID: "removeWorkspace", Doc: "remove one now; it is exported before", Query: []Param{discardParam}, call: func(c *call) (any, error) {
			discard, err := flag(c.query, "discard")
			if err != nil {
				return nil, err
			}
			return nil, c.svc.RemoveWorkspace(c.ctx, c.name, discard)
		}},
	}
}
