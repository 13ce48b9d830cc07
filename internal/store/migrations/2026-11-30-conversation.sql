-- What our own agent and its model said to each other in a session. It is only
-- ever added to, in order.

CREATE TABLE conversation (
  session TEXT NOT NULL REFERENCES session(id), organization TEXT NOT NULL, project TEXT NOT NULL,
  number INTEGER NOT NULL, time TEXT NOT NULL, body BLOB NOT NULL,
  PRIMARY KEY (session, number),
  FOREIGN KEY (organization, project) REFERENCES project(organization, id)
) STRICT;

CREATE TRIGGER conversation_insert BEFORE INSERT ON conversation BEGIN
  SELECT RAISE(ABORT, 'an entry follows the one before it')
    WHERE NEW.number <> (SELECT COALESCE(MAX(number), 0) + 1 FROM conversation WHERE session = NEW.session);
  SELECT RAISE(ABORT, 'the session belongs to another project')
    WHERE NOT EXISTS (SELECT 1 FROM session WHERE id = NEW.session AND organization = NEW.organization AND project = NEW.project);
  SELECT RAISE(ABORT, 'the session has ended')
    WHERE EXISTS (SELECT 1 FROM session WHERE id = NEW.session AND result IS NOT NULL);
END;
CREATE TRIGGER conversation_update BEFORE UPDATE ON conversation BEGIN SELECT RAISE(ABORT, 'what was said cannot be changed'); END;
CREATE TRIGGER conversation_delete BEFORE DELETE ON conversation BEGIN SELECT RAISE(ABORT, 'what was said is kept'); END;
