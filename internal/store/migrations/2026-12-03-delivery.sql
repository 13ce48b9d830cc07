-- Ids of messages of systems outside, for as long as they could count: each counts once.

CREATE TABLE delivery (system TEXT NOT NULL, id TEXT NOT NULL, time TEXT NOT NULL, PRIMARY KEY (system, id)) STRICT;
CREATE TRIGGER delivery_update BEFORE UPDATE ON delivery BEGIN SELECT RAISE(ABORT, 'a message is kept as it came'); END;
