-- People, programs with an account, what they may and by what they prove it.

CREATE TABLE person (
  id TEXT PRIMARY KEY CHECK (id GLOB 'u-*'), organization TEXT NOT NULL REFERENCES organization(id),
  name TEXT NOT NULL CHECK (name <> ''), service INTEGER NOT NULL CHECK (service IN (0, 1)),
  created TEXT NOT NULL, disabled TEXT NOT NULL,
  UNIQUE (organization, name)
) STRICT;

-- project '' is all of the organisation's.
CREATE TABLE membership (
  organization TEXT NOT NULL, member TEXT NOT NULL REFERENCES person(id), project TEXT NOT NULL,
  role TEXT NOT NULL CHECK (role IN ('viewer', 'author', 'reviewer', 'operator', 'owner')),
  PRIMARY KEY (member, project)
) STRICT;
CREATE TRIGGER membership_insert BEFORE INSERT ON membership BEGIN
  SELECT RAISE(ABORT, 'the member belongs to another organisation')
    WHERE NOT EXISTS (SELECT 1 FROM person WHERE id = NEW.member AND organization = NEW.organization);
  SELECT RAISE(ABORT, 'the project belongs to another organisation')
    WHERE NEW.project <> '' AND NOT EXISTS (SELECT 1 FROM project WHERE id = NEW.project AND organization = NEW.organization);
END;

CREATE TABLE token (
  id TEXT PRIMARY KEY CHECK (id GLOB 'k-*'), hash TEXT NOT NULL UNIQUE CHECK (length(hash) = 64),
  organization TEXT NOT NULL, project TEXT NOT NULL, member TEXT NOT NULL REFERENCES person(id),
  expires TEXT NOT NULL, revoked TEXT NOT NULL, used TEXT NOT NULL, created TEXT NOT NULL, body TEXT NOT NULL CHECK (json_valid(body))
) STRICT;
CREATE INDEX token_organization ON token (organization, created);
CREATE TRIGGER token_update BEFORE UPDATE ON token BEGIN
  SELECT RAISE(ABORT, 'a token is what it was made')
    WHERE NEW.id <> OLD.id OR NEW.hash <> OLD.hash OR NEW.organization <> OLD.organization OR NEW.project <> OLD.project
      OR NEW.member <> OLD.member OR NEW.expires <> OLD.expires OR NEW.created <> OLD.created OR NEW.body <> OLD.body;
  SELECT RAISE(ABORT, 'a token that is revoked stays so') WHERE OLD.revoked <> '' AND NEW.revoked <> OLD.revoked;
END;

CREATE TABLE factor (
  id TEXT PRIMARY KEY CHECK (id GLOB 'f-*'), person TEXT NOT NULL REFERENCES person(id),
  kind TEXT NOT NULL CHECK (kind IN ('password', 'totp', 'passkey')), name TEXT NOT NULL,
  data BLOB NOT NULL, step INTEGER NOT NULL, created TEXT NOT NULL
) STRICT;
CREATE INDEX factor_person ON factor (person);
CREATE TRIGGER factor_update BEFORE UPDATE ON factor BEGIN
  SELECT RAISE(ABORT, 'a factor is what it was made, and its steps go on')
    WHERE NEW.id <> OLD.id OR NEW.person <> OLD.person OR NEW.kind <> OLD.kind OR NEW.step < OLD.step OR NEW.created <> OLD.created;
END;

-- Proofs that did not hold. They are forgotten with the next one that does.
CREATE TABLE attempt (person TEXT NOT NULL REFERENCES person(id), time TEXT NOT NULL) STRICT;
CREATE INDEX attempt_person ON attempt (person, time);

-- People of an identity provider.
CREATE TABLE subject (
  issuer TEXT NOT NULL, subject TEXT NOT NULL, person TEXT NOT NULL REFERENCES person(id), created TEXT NOT NULL,
  PRIMARY KEY (issuer, subject)
) STRICT;
