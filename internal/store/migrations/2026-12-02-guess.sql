-- Wrong proofs are counted by where they came from: '' is the person, or a program
-- of theirs; others do not lock the person out. person may be one that is not
-- there, so that a guess at a name is as much work as one at a person.

DROP TABLE attempt;
CREATE TABLE attempt (person TEXT NOT NULL, source TEXT NOT NULL, time TEXT NOT NULL) STRICT;
CREATE INDEX attempt_person ON attempt (person, source, time);
