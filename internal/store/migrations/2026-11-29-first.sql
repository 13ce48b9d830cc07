-- The first tables. Every row belongs to one project of one organisation.
-- Triggers hold the rules that must not depend on any program: which state may
-- follow which, what "done" needs, and what may never be changed again. Their
-- texts are reasons that people read.

CREATE TABLE organization (
  id TEXT PRIMARY KEY, name TEXT NOT NULL UNIQUE, created TEXT NOT NULL
) STRICT;

CREATE TABLE project (
  id TEXT PRIMARY KEY, organization TEXT NOT NULL REFERENCES organization(id),
  name TEXT NOT NULL, created TEXT NOT NULL,
  UNIQUE (organization, name), UNIQUE (organization, id)
) STRICT;

CREATE TABLE repo (
  id TEXT PRIMARY KEY, organization TEXT NOT NULL, project TEXT NOT NULL,
  name TEXT NOT NULL, upstream TEXT NOT NULL, base TEXT NOT NULL, user TEXT NOT NULL,
  created TEXT NOT NULL, removed TEXT,
  FOREIGN KEY (organization, project) REFERENCES project(organization, id)
) STRICT;
CREATE UNIQUE INDEX repo_name ON repo (organization, project, name) WHERE removed IS NULL;

CREATE TABLE model (
  id TEXT PRIMARY KEY, organization TEXT NOT NULL, project TEXT NOT NULL,
  name TEXT NOT NULL, provider TEXT NOT NULL, url TEXT NOT NULL, rehearsal INTEGER NOT NULL,
  created TEXT NOT NULL, removed TEXT,
  FOREIGN KEY (organization, project) REFERENCES project(organization, id)
) STRICT;
CREATE UNIQUE INDEX model_name ON model (organization, project, name) WHERE removed IS NULL;

CREATE TABLE secret (
  organization TEXT NOT NULL, project TEXT NOT NULL, name TEXT NOT NULL,
  data BLOB NOT NULL, created TEXT NOT NULL,
  PRIMARY KEY (organization, project, name),
  FOREIGN KEY (organization, project) REFERENCES project(organization, id)
) STRICT;

CREATE TABLE task (
  id TEXT PRIMARY KEY, organization TEXT NOT NULL, project TEXT NOT NULL,
  number INTEGER NOT NULL, request TEXT NOT NULL, repo TEXT NOT NULL REFERENCES repo(id),
  state TEXT NOT NULL, reason TEXT NOT NULL, comment TEXT NOT NULL,
  attempt INTEGER NOT NULL, branch TEXT NOT NULL, base TEXT NOT NULL,
  base_commit TEXT NOT NULL, head TEXT NOT NULL, receipt TEXT NOT NULL,
  regression_only INTEGER NOT NULL, landed TEXT NOT NULL, usage TEXT NOT NULL,
  by_kind TEXT NOT NULL, by_name TEXT NOT NULL, created TEXT NOT NULL, updated TEXT NOT NULL,
  UNIQUE (organization, project, number), UNIQUE (organization, project, id),
  FOREIGN KEY (organization, project) REFERENCES project(organization, id)
) STRICT;
CREATE INDEX task_state ON task (state);

CREATE TABLE idempotency (
  organization TEXT NOT NULL, project TEXT NOT NULL, key TEXT NOT NULL,
  request TEXT NOT NULL, task TEXT NOT NULL REFERENCES task(id),
  PRIMARY KEY (organization, project, key)
) STRICT;

CREATE TABLE session (
  id TEXT PRIMARY KEY, organization TEXT NOT NULL, project TEXT NOT NULL,
  task TEXT NOT NULL, attempt INTEGER NOT NULL, purpose TEXT NOT NULL, try INTEGER NOT NULL,
  plan TEXT NOT NULL, result TEXT, created TEXT NOT NULL, ended TEXT,
  UNIQUE (task, attempt, purpose, try),
  FOREIGN KEY (organization, project, task) REFERENCES task(organization, project, id)
) STRICT;

CREATE TABLE receipt (
  id TEXT PRIMARY KEY, organization TEXT NOT NULL, project TEXT NOT NULL,
  task TEXT NOT NULL, attempt INTEGER NOT NULL, commit_id TEXT NOT NULL CHECK (commit_id <> ''),
  report TEXT NOT NULL, note BLOB NOT NULL CHECK (length(note) > 0), created TEXT NOT NULL,
  UNIQUE (task, attempt, commit_id),
  FOREIGN KEY (organization, project, task) REFERENCES task(organization, project, id)
) STRICT;

CREATE TABLE approval (
  organization TEXT NOT NULL, project TEXT NOT NULL, task TEXT NOT NULL,
  commit_id TEXT NOT NULL, by_kind TEXT NOT NULL CHECK (by_kind IN ('person', 'test-person')),
  by_name TEXT NOT NULL CHECK (by_name <> ''), time TEXT NOT NULL,
  PRIMARY KEY (task, commit_id),
  FOREIGN KEY (organization, project, task) REFERENCES task(organization, project, id)
) STRICT;

CREATE TABLE landing (
  organization TEXT NOT NULL, project TEXT NOT NULL, task TEXT NOT NULL,
  attempt INTEGER NOT NULL, commit_id TEXT NOT NULL, base TEXT NOT NULL,
  by_kind TEXT NOT NULL CHECK (by_kind IN ('person', 'test-person')), by_name TEXT NOT NULL,
  asked TEXT NOT NULL, landed TEXT,
  PRIMARY KEY (task, commit_id),
  FOREIGN KEY (organization, project, task) REFERENCES task(organization, project, id)
) STRICT;

-- States. task.Transitions is the same table in Go; a test compares the two.
CREATE TABLE transition (from_state TEXT NOT NULL, to_state TEXT NOT NULL, PRIMARY KEY (from_state, to_state)) STRICT;
INSERT INTO transition VALUES
  ('queued', 'preparing'), ('queued', 'blocked'), ('queued', 'failed'), ('queued', 'cancelled'),
  ('preparing', 'running'), ('preparing', 'blocked'), ('preparing', 'failed'), ('preparing', 'cancelled'),
  ('running', 'verifying'), ('running', 'nothing to do'), ('running', 'timed out'),
  ('running', 'blocked'), ('running', 'failed'), ('running', 'cancelled'),
  ('verifying', 'in review'), ('verifying', 'blocked'), ('verifying', 'failed'), ('verifying', 'cancelled'),
  ('waiting', 'blocked'), ('waiting', 'failed'), ('waiting', 'cancelled'),
  ('in review', 'done'), ('in review', 'queued'), ('in review', 'blocked'), ('in review', 'failed'), ('in review', 'cancelled'),
  ('blocked', 'queued'), ('failed', 'queued'), ('timed out', 'queued'), ('cancelled', 'queued'), ('nothing to do', 'queued');
CREATE TRIGGER transition_insert BEFORE INSERT ON transition BEGIN SELECT RAISE(ABORT, 'the table of states is fixed'); END;
CREATE TRIGGER transition_update BEFORE UPDATE ON transition BEGIN SELECT RAISE(ABORT, 'the table of states is fixed'); END;
CREATE TRIGGER transition_delete BEFORE DELETE ON transition BEGIN SELECT RAISE(ABORT, 'the table of states is fixed'); END;

CREATE TRIGGER task_insert BEFORE INSERT ON task BEGIN
  SELECT RAISE(ABORT, 'a task begins queued, in its first attempt and without results')
    WHERE NEW.state <> 'queued' OR NEW.attempt <> 1 OR NEW.head <> '' OR NEW.receipt <> '' OR NEW.landed <> '';
  SELECT RAISE(ABORT, 'a task with this id or number exists')
    WHERE EXISTS (SELECT 1 FROM task WHERE id = NEW.id OR
      (organization = NEW.organization AND project = NEW.project AND number = NEW.number));
  SELECT RAISE(ABORT, 'the repository belongs to another project')
    WHERE NOT EXISTS (SELECT 1 FROM repo WHERE id = NEW.repo AND organization = NEW.organization AND project = NEW.project AND removed IS NULL);
END;

CREATE TRIGGER task_update BEFORE UPDATE ON task BEGIN
  SELECT RAISE(ABORT, 'what was asked for cannot be changed')
    WHERE NEW.id <> OLD.id OR NEW.organization <> OLD.organization OR NEW.project <> OLD.project
      OR NEW.number <> OLD.number OR NEW.request <> OLD.request OR NEW.repo <> OLD.repo OR NEW.base <> OLD.base
      OR NEW.by_kind <> OLD.by_kind OR NEW.by_name <> OLD.by_name OR NEW.created <> OLD.created;
  SELECT RAISE(ABORT, 'a task that is done cannot be changed') WHERE OLD.state = 'done';
  SELECT RAISE(ABORT, 'this state cannot follow that one')
    WHERE NEW.state <> OLD.state
      AND NOT EXISTS (SELECT 1 FROM transition WHERE from_state = OLD.state AND to_state = NEW.state);
  SELECT RAISE(ABORT, 'an attempt begins queued and without results')
    WHERE NEW.attempt <> OLD.attempt
      AND (NEW.attempt <> OLD.attempt + 1 OR NEW.state <> 'queued' OR NEW.head <> '' OR NEW.receipt <> '');
  SELECT RAISE(ABORT, 'the commit of a task in review cannot be changed')
    WHERE OLD.state = 'in review' AND NEW.head <> OLD.head AND NEW.state <> 'queued';
  SELECT RAISE(ABORT, 'a task needs a receipt for its commit to be in review')
    WHERE NEW.state = 'in review' AND NOT EXISTS
      (SELECT 1 FROM receipt WHERE id = NEW.receipt AND task = NEW.id AND attempt = NEW.attempt AND commit_id = NEW.head);
  SELECT RAISE(ABORT, 'a task needs a receipt for exactly its commit to be done')
    WHERE NEW.state = 'done' AND NOT EXISTS
      (SELECT 1 FROM receipt WHERE id = NEW.receipt AND task = NEW.id AND attempt = NEW.attempt AND commit_id = NEW.head);
  SELECT RAISE(ABORT, 'a task needs the approval of a person for exactly its commit to be done')
    WHERE NEW.state = 'done' AND NOT EXISTS
      (SELECT 1 FROM approval WHERE task = NEW.id AND commit_id = NEW.head);
  SELECT RAISE(ABORT, 'a task is done only when exactly its commit has landed')
    WHERE NEW.state = 'done' AND (NEW.landed <> NEW.head OR NOT EXISTS
      (SELECT 1 FROM landing WHERE task = NEW.id AND commit_id = NEW.head AND landed IS NOT NULL));
END;
CREATE TRIGGER task_delete BEFORE DELETE ON task BEGIN SELECT RAISE(ABORT, 'tasks are kept'); END;

CREATE TRIGGER receipt_insert BEFORE INSERT ON receipt BEGIN
  SELECT RAISE(ABORT, 'there is a receipt for this commit already')
    WHERE EXISTS (SELECT 1 FROM receipt WHERE id = NEW.id OR (task = NEW.task AND attempt = NEW.attempt AND commit_id = NEW.commit_id));
  SELECT RAISE(ABORT, 'a receipt is for the commit that is being verified')
    WHERE NOT EXISTS (SELECT 1 FROM task WHERE id = NEW.task AND state = 'verifying' AND attempt = NEW.attempt AND head = NEW.commit_id);
END;
CREATE TRIGGER receipt_update BEFORE UPDATE ON receipt BEGIN SELECT RAISE(ABORT, 'a receipt cannot be changed'); END;
CREATE TRIGGER receipt_delete BEFORE DELETE ON receipt BEGIN SELECT RAISE(ABORT, 'receipts are kept'); END;

CREATE TRIGGER approval_insert BEFORE INSERT ON approval BEGIN
  SELECT RAISE(ABORT, 'this commit is approved already')
    WHERE EXISTS (SELECT 1 FROM approval WHERE task = NEW.task AND commit_id = NEW.commit_id);
  SELECT RAISE(ABORT, 'only the commit of a task in review can be approved')
    WHERE NOT EXISTS (SELECT 1 FROM task WHERE id = NEW.task AND state = 'in review' AND head = NEW.commit_id);
  SELECT RAISE(ABORT, 'a commit without a receipt cannot be approved')
    WHERE NOT EXISTS (SELECT 1 FROM receipt WHERE task = NEW.task AND commit_id = NEW.commit_id);
END;
CREATE TRIGGER approval_update BEFORE UPDATE ON approval BEGIN SELECT RAISE(ABORT, 'an approval cannot be changed'); END;
CREATE TRIGGER approval_delete BEFORE DELETE ON approval BEGIN SELECT RAISE(ABORT, 'approvals are kept'); END;

CREATE TRIGGER landing_insert BEFORE INSERT ON landing BEGIN
  SELECT RAISE(ABORT, 'this landing was asked for already')
    WHERE EXISTS (SELECT 1 FROM landing WHERE task = NEW.task AND commit_id = NEW.commit_id);
  SELECT RAISE(ABORT, 'a landing begins as a wish') WHERE NEW.landed IS NOT NULL;
  SELECT RAISE(ABORT, 'only the commit of a task in review can land')
    WHERE NOT EXISTS (SELECT 1 FROM task WHERE id = NEW.task AND state = 'in review' AND attempt = NEW.attempt AND head = NEW.commit_id AND base = NEW.base);
  SELECT RAISE(ABORT, 'only an approved commit can land')
    WHERE NOT EXISTS (SELECT 1 FROM approval WHERE task = NEW.task AND commit_id = NEW.commit_id);
END;
CREATE TRIGGER landing_update BEFORE UPDATE ON landing BEGIN
  SELECT RAISE(ABORT, 'of a landing only its end can be added')
    WHERE OLD.landed IS NOT NULL OR NEW.landed IS NULL OR NEW.task <> OLD.task OR NEW.commit_id <> OLD.commit_id
      OR NEW.organization <> OLD.organization OR NEW.project <> OLD.project OR NEW.attempt <> OLD.attempt
      OR NEW.base <> OLD.base OR NEW.by_kind <> OLD.by_kind OR NEW.by_name <> OLD.by_name OR NEW.asked <> OLD.asked;
END;
CREATE TRIGGER landing_delete BEFORE DELETE ON landing BEGIN
  SELECT RAISE(ABORT, 'a landing that happened is kept') WHERE OLD.landed IS NOT NULL;
END;

CREATE TRIGGER session_update BEFORE UPDATE ON session BEGIN
  SELECT RAISE(ABORT, 'a session''s plan cannot be changed, and its result is written once')
    WHERE NEW.id <> OLD.id OR NEW.organization <> OLD.organization OR NEW.project <> OLD.project OR NEW.task <> OLD.task
      OR NEW.attempt <> OLD.attempt OR NEW.purpose <> OLD.purpose OR NEW.try <> OLD.try OR NEW.plan <> OLD.plan
      OR NEW.created <> OLD.created OR OLD.result IS NOT NULL;
END;
CREATE TRIGGER session_delete BEFORE DELETE ON session BEGIN SELECT RAISE(ABORT, 'sessions are kept'); END;
