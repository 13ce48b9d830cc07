-- Workspaces that outlive their boxes, one of an attempt at a time. body is JSON;
-- what is removed and has no bundle any more is kept for the record.

CREATE TABLE workspace (
  id TEXT PRIMARY KEY CHECK (id GLOB 'w-*'), organization TEXT NOT NULL, project TEXT NOT NULL, task TEXT NOT NULL,
  attempt INTEGER NOT NULL, gone INTEGER NOT NULL, made TEXT NOT NULL, body TEXT NOT NULL CHECK (json_valid(body)),
  UNIQUE (task, attempt),
  FOREIGN KEY (organization, project, task) REFERENCES task(organization, project, id)
) STRICT;

CREATE TRIGGER workspace_update BEFORE UPDATE ON workspace BEGIN
  SELECT RAISE(ABORT, 'whose a workspace is cannot be changed, and its epoch does not go back')
    WHERE NEW.id <> OLD.id OR NEW.organization <> OLD.organization OR NEW.project <> OLD.project OR NEW.task <> OLD.task
      OR json_extract(NEW.body, '$.epoch') < json_extract(OLD.body, '$.epoch');
END;
CREATE TRIGGER workspace_delete BEFORE DELETE ON workspace BEGIN SELECT RAISE(ABORT, 'the record of a workspace is kept'); END;
