-- The words of further people for a commit that somebody has approved: a policy
-- may want two.

CREATE TABLE approval_more (
  organization TEXT NOT NULL, project TEXT NOT NULL, task TEXT NOT NULL,
  commit_id TEXT NOT NULL, by_kind TEXT NOT NULL CHECK (by_kind IN ('person', 'test-person')),
  by_name TEXT NOT NULL CHECK (by_name <> ''), time TEXT NOT NULL,
  PRIMARY KEY (task, commit_id, by_kind, by_name),
  FOREIGN KEY (task, commit_id) REFERENCES approval(task, commit_id),
  FOREIGN KEY (organization, project, task) REFERENCES task(organization, project, id)
) STRICT;

CREATE TRIGGER approval_more_insert BEFORE INSERT ON approval_more BEGIN
  SELECT RAISE(ABORT, 'the same person has approved this commit')
    WHERE EXISTS (SELECT 1 FROM approval WHERE task = NEW.task AND commit_id = NEW.commit_id AND by_kind = NEW.by_kind AND by_name = NEW.by_name);
  SELECT RAISE(ABORT, 'only the commit of a task in review can be approved')
    WHERE NOT EXISTS (SELECT 1 FROM task WHERE id = NEW.task AND state = 'in review' AND head = NEW.commit_id);
END;
CREATE TRIGGER approval_more_update BEFORE UPDATE ON approval_more BEGIN SELECT RAISE(ABORT, 'an approval cannot be changed'); END;
CREATE TRIGGER approval_more_delete BEFORE DELETE ON approval_more BEGIN SELECT RAISE(ABORT, 'approvals are kept'); END;
