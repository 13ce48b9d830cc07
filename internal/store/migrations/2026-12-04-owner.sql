-- A program's account owns nothing, whatever program writes: it decides about no
-- members and no policy.
CREATE TRIGGER membership_owner BEFORE INSERT ON membership WHEN NEW.role = 'owner' BEGIN
  SELECT RAISE(ABORT, 'a program is no owner') WHERE EXISTS (SELECT 1 FROM person WHERE id = NEW.member AND service = 1);
END;
CREATE TRIGGER membership_owner_later BEFORE UPDATE ON membership WHEN NEW.role = 'owner' BEGIN
  SELECT RAISE(ABORT, 'a program is no owner') WHERE EXISTS (SELECT 1 FROM person WHERE id = NEW.member AND service = 1);
END;
