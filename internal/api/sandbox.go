package api

import "cofferdam"

// Bodies of requests about boxes.
type (
	checkpointBody struct {
		Comment string `json:"comment,omitempty"` // one line
	}
	restoreBody struct {
		Checkpoint string `json:"checkpoint"` // its name
	}
)

// sandboxRoutes are those of boxes and of the checkpoints of what is in them.
func sandboxRoutes() []Route {
	const boxes, checkpoints = "cofferdam/sandbox-list/v1", "cofferdam/checkpoint-list/v1"
	return []Route{
		{Method: "GET", Path: "/v1/sandboxes", ID: "listSandboxes", Doc: "boxes of sessions that run", Reply: cofferdam.Sandbox{}, List: boxes, call: func(c *call) (any, error) {
			all, err := c.svc.ListSandboxes(c.ctx)
			return listOf(boxes, all, err)
		}},
		{Method: "GET", Path: "/v1/sandboxes/{name}", ID: "viewSandbox", Doc: "the box of a session, by the session's id or its task", Reply: cofferdam.Sandbox{}, call: func(c *call) (any, error) {
			return c.svc.Sandbox(c.ctx, c.name)
		}},
		{Method: "POST", Path: "/v1/sandboxes/{name}/restore", ID: "restoreSandbox", Doc: "put the workspace of a running session back to a checkpoint", Body: restoreBody{}, Reply: cofferdam.Restored{}, call: func(c *call) (any, error) {
			return c.svc.RestoreSandbox(c.ctx, c.name, c.body.(*restoreBody).Checkpoint)
		}},
		{Method: "POST", Path: "/v1/sandboxes/{name}/checkpoints", ID: "createCheckpoint", Doc: "keep the workspace of a running session as it is now", Body: checkpointBody{}, Reply: cofferdam.Checkpoint{}, Created: true, call: func(c *call) (any, error) {
			return c.svc.CreateCheckpoint(c.ctx, c.name, c.body.(*checkpointBody).Comment)
		}},
		{Method: "GET", Path: "/v1/sandboxes/{name}/checkpoints", ID: "listCheckpoints", Doc: "checkpoints of a workspace, by its task or a session, newest first", Reply: cofferdam.Checkpoint{}, List: checkpoints, call: func(c *call) (any, error) {
			all, err := c.svc.ListCheckpoints(c.ctx, c.name)
			return listOf(checkpoints, all, err)
		}},
		{Method: "GET", Path: "/v1/checkpoints", ID: "listAllCheckpoints", Doc: "checkpoints of all workspaces of the project, newest first", Reply: cofferdam.Checkpoint{}, List: checkpoints, call: func(c *call) (any, error) {
			all, err := c.svc.ListCheckpoints(c.ctx, "")
			return listOf(checkpoints, all, err)
		}},
		{Method: "GET", Path: "/v1/sandboxes/{name}/checkpoints/{checkpoint}", ID: "viewCheckpoint", Doc: "one of them, with its manifest and how its signature is", Reply: cofferdam.Checkpoint{}, call: func(c *call) (any, error) {
			return c.svc.Checkpoint(c.ctx, c.name, c.part)
		}},
		{Method: "DELETE", Path: "/v1/sandboxes/{name}/checkpoints/{checkpoint}", ID: "removeCheckpoint", Doc: "remove one", call: func(c *call) (any, error) {
			return nil, c.svc.RemoveCheckpoint(c.ctx, c.name, c.part)
		}},
		{Method: "GET", Path: "/v1/sandboxes/{name}/checkpoints/{checkpoint}/diff", ID: "diffCheckpoint", Doc: "what differs between one and another, or the workspace as it is now", Reply: cofferdam.Difference{}, Query: []Param{
			{"to", "string", "name of the other; the workspace now if not given"},
		}, call: func(c *call) (any, error) {
			return c.svc.DiffCheckpoint(c.ctx, c.name, c.part, c.query.Get("to"))
		}},
	}
}
