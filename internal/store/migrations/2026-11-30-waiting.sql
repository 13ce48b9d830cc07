-- A task whose agent asks a person waits, and goes on when it is answered.

DROP TRIGGER transition_insert;
INSERT INTO transition VALUES ('running', 'waiting'), ('waiting', 'running'), ('waiting', 'timed out');
CREATE TRIGGER transition_insert BEFORE INSERT ON transition BEGIN SELECT RAISE(ABORT, 'the table of states is fixed'); END;
