package api

import "cofferdam"

// environmentRoutes are those of what boxes are made from.
func environmentRoutes() []Route {
	const list = "cofferdam/environment-list/v1"
	return []Route{
		{Method: "GET", Path: "/v1/environments", ID: "listEnvironments", Doc: "results of setups and images that are kept, newest first", Reply: cofferdam.Environment{}, List: list, call: func(c *call) (any, error) {
			all, err := c.svc.ListEnvironments(c.ctx)
			return listOf(list, all, err)
		}},
		{Method: "GET", Path: "/v1/environments/{name}", ID: "viewEnvironment", Doc: "one of them, by digest or unique prefix", Reply: cofferdam.Environment{}, call: func(c *call) (any, error) { return c.svc.Environment(c.ctx, c.name) }},
		{Method: "DELETE", Path: "/v1/environments/{name}", ID: "removeEnvironment", Doc: "remove one, so that it is made anew", call: func(c *call) (any, error) { return nil, c.svc.RemoveEnvironment(c.ctx, c.name) }},
		{Method: "POST", Path: "/v1/environments/{name}/rollback", ID: "rollbackEnvironment", Doc: "put the result of the setup before the last one back", call: func(c *call) (any, error) { return nil, c.svc.RollbackEnvironment(c.ctx, c.name) }},
		{Method: "POST", Path: "/v1/environments/prune", ID: "pruneEnvironments", Doc: "remove by age and size; returns what went", Body: cofferdam.PruneRequest{}, Reply: cofferdam.Environment{}, List: list, call: func(c *call) (any, error) {
			all, err := c.svc.PruneEnvironments(c.ctx, *c.body.(*cofferdam.PruneRequest))
			return listOf(list, all, err)
		}},
	}
}
