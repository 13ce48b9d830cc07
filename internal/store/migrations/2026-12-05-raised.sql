-- What was asked for stays as it was; limits that a retry names stand beside it.
ALTER TABLE task ADD COLUMN raised TEXT NOT NULL DEFAULT 'null';
