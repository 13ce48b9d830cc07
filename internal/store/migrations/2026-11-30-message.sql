-- What people say to a task while it runs, in order, and which sessions are
-- past hearing it: their agent has ended and its work is being judged.

CREATE TABLE message (
  organization TEXT NOT NULL, project TEXT NOT NULL, task TEXT NOT NULL,
  number INTEGER NOT NULL, text TEXT NOT NULL CHECK (text <> ''),
  by_kind TEXT NOT NULL CHECK (by_kind IN ('person', 'test-person')), by_name TEXT NOT NULL CHECK (by_name <> ''),
  time TEXT NOT NULL,
  PRIMARY KEY (task, number),
  FOREIGN KEY (organization, project, task) REFERENCES task(organization, project, id)
) STRICT;

CREATE TABLE deaf (
  session TEXT PRIMARY KEY REFERENCES session(id), organization TEXT NOT NULL, project TEXT NOT NULL, since TEXT NOT NULL
) STRICT;

CREATE TRIGGER message_insert BEFORE INSERT ON message BEGIN
  SELECT RAISE(ABORT, 'a message follows the one before it')
    WHERE NEW.number <> (SELECT COALESCE(MAX(number), 0) + 1 FROM message WHERE task = NEW.task);
  SELECT RAISE(ABORT, 'only a task that has not ended can be told anything')
    WHERE NOT EXISTS (SELECT 1 FROM task WHERE id = NEW.task AND state IN ('queued', 'preparing', 'running', 'waiting'));
END;
CREATE TRIGGER message_update BEFORE UPDATE ON message BEGIN SELECT RAISE(ABORT, 'what a person said cannot be changed'); END;
CREATE TRIGGER message_delete BEFORE DELETE ON message BEGIN SELECT RAISE(ABORT, 'what people said is kept'); END;
CREATE TRIGGER deaf_update BEFORE UPDATE ON deaf BEGIN SELECT RAISE(ABORT, 'the end of an agent cannot be changed'); END;
CREATE TRIGGER deaf_delete BEFORE DELETE ON deaf BEGIN SELECT RAISE(ABORT, 'the end of an agent is kept'); END;
