-- Questions that wait for a person, and what people answered. body is the
-- question as JSON, without its state, answers and uses.

CREATE TABLE question (
  id TEXT PRIMARY KEY CHECK (id GLOB 'a-*'), organization TEXT NOT NULL, project TEXT NOT NULL, task TEXT NOT NULL,
  hash TEXT NOT NULL CHECK (hash <> ''), needs INTEGER NOT NULL CHECK (needs IN (1, 2)),
  state TEXT NOT NULL CHECK (state IN ('open', 'allowed', 'denied', 'expired', 'void')),
  reason TEXT NOT NULL, used INTEGER NOT NULL CHECK (used IN (0, 1)),
  created TEXT NOT NULL, body TEXT NOT NULL CHECK (json_valid(body)),
  FOREIGN KEY (organization, project, task) REFERENCES task(organization, project, id)
) STRICT;
CREATE INDEX question_task ON question (task, created);
CREATE INDEX question_open ON question (state) WHERE state = 'open';

CREATE TABLE answer (
  question TEXT NOT NULL REFERENCES question(id), organization TEXT NOT NULL, project TEXT NOT NULL,
  by_kind TEXT NOT NULL CHECK (by_kind IN ('person', 'test-person')), by_name TEXT NOT NULL CHECK (by_name <> ''),
  allow INTEGER NOT NULL CHECK (allow IN (0, 1)), time TEXT NOT NULL, body TEXT NOT NULL CHECK (json_valid(body)),
  PRIMARY KEY (question, by_kind, by_name)
) STRICT;

-- Acts that passed by what an answer opened for a number of them.
CREATE TABLE opening (question TEXT PRIMARY KEY REFERENCES question(id), used INTEGER NOT NULL CHECK (used > 0)) STRICT;
CREATE TRIGGER opening_insert BEFORE INSERT ON opening BEGIN
  SELECT RAISE(ABORT, 'nobody has allowed it')
    WHERE NOT EXISTS (SELECT 1 FROM question WHERE id = NEW.question AND state = 'allowed');
END;
CREATE TRIGGER opening_update BEFORE UPDATE ON opening BEGIN
  SELECT RAISE(ABORT, 'uses are counted one by one') WHERE NEW.question <> OLD.question OR NEW.used <> OLD.used + 1;
END;
CREATE TRIGGER opening_delete BEFORE DELETE ON opening BEGIN SELECT RAISE(ABORT, 'uses are kept'); END;

CREATE TRIGGER question_insert BEFORE INSERT ON question BEGIN
  SELECT RAISE(ABORT, 'a question begins open and unused') WHERE NEW.state <> 'open' OR NEW.used <> 0;
END;
CREATE TRIGGER question_update BEFORE UPDATE ON question BEGIN
  SELECT RAISE(ABORT, 'what was asked cannot be changed')
    WHERE NEW.id <> OLD.id OR NEW.organization <> OLD.organization OR NEW.project <> OLD.project OR NEW.task <> OLD.task
      OR NEW.hash <> OLD.hash OR NEW.needs <> OLD.needs OR NEW.created <> OLD.created OR NEW.body <> OLD.body;
  SELECT RAISE(ABORT, 'the question is answered or over') WHERE NEW.state <> OLD.state AND OLD.state <> 'open';
  SELECT RAISE(ABORT, 'nobody has allowed it')
    WHERE NEW.state = 'allowed' AND (SELECT COUNT(*) FROM answer WHERE question = NEW.id AND allow = 1) < NEW.needs;
  SELECT RAISE(ABORT, 'somebody has said no')
    WHERE NEW.state = 'allowed' AND EXISTS (SELECT 1 FROM answer WHERE question = NEW.id AND allow = 0);
  SELECT RAISE(ABORT, 'an answer counts once, and only if it allows')
    WHERE NEW.used <> OLD.used AND (OLD.used <> 0 OR NEW.used <> 1 OR OLD.state <> 'allowed');
END;
CREATE TRIGGER question_delete BEFORE DELETE ON question BEGIN SELECT RAISE(ABORT, 'what was asked is kept'); END;
CREATE TRIGGER answer_insert BEFORE INSERT ON answer BEGIN
  SELECT RAISE(ABORT, 'the question is answered or over')
    WHERE NOT EXISTS (SELECT 1 FROM question WHERE id = NEW.question AND state = 'open'
      AND organization = NEW.organization AND project = NEW.project);
END;
CREATE TRIGGER answer_update BEFORE UPDATE ON answer BEGIN SELECT RAISE(ABORT, 'what a person answered cannot be changed'); END;
CREATE TRIGGER answer_delete BEFORE DELETE ON answer BEGIN SELECT RAISE(ABORT, 'what people answered is kept'); END;
