-- What an answer opened for a number of bytes, counted before they flow, and
-- openings that are over before their time. The bound is that of the answers.

CREATE TABLE opening_bytes (question TEXT PRIMARY KEY REFERENCES question(id), used INTEGER NOT NULL CHECK (used >= 0)) STRICT;
CREATE TRIGGER opening_bytes_insert BEFORE INSERT ON opening_bytes BEGIN
  SELECT RAISE(ABORT, 'nobody has allowed it')
    WHERE NOT EXISTS (SELECT 1 FROM question WHERE id = NEW.question AND state = 'allowed');
  SELECT RAISE(ABORT, 'more than people opened')
    WHERE NEW.used > (SELECT MIN(json_extract(body, '$.bounds.bytes')) FROM answer WHERE question = NEW.question AND allow = 1);
END;
CREATE TRIGGER opening_bytes_update BEFORE UPDATE ON opening_bytes BEGIN
  SELECT RAISE(ABORT, 'what was opened cannot be changed') WHERE NEW.question <> OLD.question;
  SELECT RAISE(ABORT, 'more than people opened')
    WHERE NEW.used > OLD.used AND NEW.used > (SELECT MIN(json_extract(body, '$.bounds.bytes')) FROM answer WHERE question = NEW.question AND allow = 1);
END;
CREATE TRIGGER opening_bytes_delete BEFORE DELETE ON opening_bytes BEGIN SELECT RAISE(ABORT, 'bytes are kept'); END;

CREATE TABLE opening_end (question TEXT PRIMARY KEY REFERENCES question(id), time TEXT NOT NULL, reason TEXT NOT NULL CHECK (reason <> '')) STRICT;
CREATE TRIGGER opening_end_update BEFORE UPDATE ON opening_end BEGIN SELECT RAISE(ABORT, 'what is over stays over'); END;
CREATE TRIGGER opening_end_delete BEFORE DELETE ON opening_end BEGIN SELECT RAISE(ABORT, 'what is over stays over'); END;
