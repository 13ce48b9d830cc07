-- Documents of policy: of an organisation (project '') and of its projects. The
-- active one of each is the highest version that was taken.

CREATE TABLE policy (
  organization TEXT NOT NULL REFERENCES organization(id), project TEXT NOT NULL, version INTEGER NOT NULL CHECK (version > 0),
  text TEXT NOT NULL, digest TEXT NOT NULL, state TEXT NOT NULL CHECK (state IN ('proposed', 'taken', 'rejected')),
  why TEXT NOT NULL, proposed_by TEXT NOT NULL, proposed TEXT NOT NULL, decided_by TEXT NOT NULL, decided TEXT NOT NULL, signature TEXT NOT NULL,
  PRIMARY KEY (organization, project, version)
) STRICT;
CREATE TRIGGER policy_insert BEFORE INSERT ON policy BEGIN
  SELECT RAISE(ABORT, 'a version follows the one before it')
    WHERE NEW.version <> (SELECT COALESCE(MAX(version), 0) + 1 FROM policy WHERE organization = NEW.organization AND project = NEW.project);
  SELECT RAISE(ABORT, 'a version begins as a proposal') WHERE NEW.state <> 'proposed';
  SELECT RAISE(ABORT, 'the project belongs to another organisation')
    WHERE NEW.project <> '' AND NOT EXISTS (SELECT 1 FROM project WHERE id = NEW.project AND organization = NEW.organization);
END;
CREATE TRIGGER policy_update BEFORE UPDATE ON policy BEGIN
  SELECT RAISE(ABORT, 'a version is what was proposed')
    WHERE NEW.organization <> OLD.organization OR NEW.project <> OLD.project OR NEW.version <> OLD.version OR NEW.text <> OLD.text
      OR NEW.digest <> OLD.digest OR NEW.why <> OLD.why OR NEW.proposed_by <> OLD.proposed_by OR NEW.proposed <> OLD.proposed;
  SELECT RAISE(ABORT, 'a version is decided once') WHERE OLD.state <> 'proposed';
  SELECT RAISE(ABORT, 'a version that counts is signed') WHERE NEW.state = 'taken' AND (NEW.signature = '' OR NEW.decided_by = '');
  SELECT RAISE(ABORT, 'a later version counts already')
    WHERE NEW.state = 'taken' AND EXISTS (SELECT 1 FROM policy WHERE organization = NEW.organization AND project = NEW.project
      AND version > NEW.version AND state = 'taken');
END;
CREATE TRIGGER policy_delete BEFORE DELETE ON policy BEGIN SELECT RAISE(ABORT, 'versions are kept'); END;
