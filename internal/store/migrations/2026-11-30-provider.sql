-- What a model's registration says besides its address: lists and maps are JSON.

ALTER TABLE model ADD COLUMN default_id TEXT NOT NULL DEFAULT '';
ALTER TABLE model ADD COLUMN allow TEXT NOT NULL DEFAULT 'null' CHECK (json_valid(allow));
ALTER TABLE model ADD COLUMN alias TEXT NOT NULL DEFAULT 'null' CHECK (json_valid(alias));
ALTER TABLE model ADD COLUMN fallback TEXT NOT NULL DEFAULT 'null' CHECK (json_valid(fallback));
ALTER TABLE model ADD COLUMN keep_text INTEGER NOT NULL DEFAULT 0;
ALTER TABLE model ADD COLUMN no_key INTEGER NOT NULL DEFAULT 0;
