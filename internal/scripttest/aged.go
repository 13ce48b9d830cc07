package scripttest

import (
	"database/sql"
	"fmt"
	"path/filepath"
	"strconv"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	_ "modernc.org/sqlite"
)

// cmdAged has a secret of the vault, or with "questions" all that people were asked, be
// made so many hours earlier than it was, in the database of a server that is down: what
// takes a day needs no day to be seen. It prints what it has moved.
func cmdAged(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) == 2, "aged SECRET|questions HOURS")
	hours, err := strconv.ParseFloat(args[1], 64)
	ts.Check(err)
	db, err := sql.Open("sqlite", "file:"+filepath.Join(of(ts).state, "cofferdam.db")+"?mode=rw&_pragma=busy_timeout(10000)")
	ts.Check(err)
	defer db.Close()
	tx, err := db.Begin()
	ts.Check(err)
	defer tx.Rollback() // nothing once it is committed
	by := -time.Duration(hours * float64(time.Hour))
	if args[0] == "questions" {
		// What was asked cannot be changed, says a trigger, which comes back.
		var rule string
		ts.Check(tx.QueryRow(`SELECT sql FROM sqlite_master WHERE type = 'trigger' AND name = 'question_update'`).Scan(&rule))
		_, err = tx.Exec(`DROP TRIGGER question_update`)
		ts.Check(err)
		ts.Check(move(ts, tx, by, `SELECT id, created FROM question`, `UPDATE question SET created = ? WHERE id = ?`))
		_, err = tx.Exec(rule)
		ts.Check(err)
	} else {
		ts.Check(move(ts, tx, by, `SELECT name, created FROM secret WHERE name = '`+args[0]+`'`, `UPDATE secret SET created = ? WHERE name = ?`))
	}
	ts.Check(tx.Commit())
}

// move gives each row that list finds, of a key and a time, a time that is that far off.
func move(ts *testscript.TestScript, tx *sql.Tx, by time.Duration, list, change string) error {
	rows, err := tx.Query(list)
	if err != nil {
		return err
	}
	defer rows.Close()
	was := map[string]time.Time{}
	for rows.Next() {
		var key, text string
		if err := rows.Scan(&key, &text); err != nil {
			return err
		}
		if was[key], err = time.Parse(time.RFC3339Nano, text); err != nil {
			return err
		}
	}
	if len(was) == 0 {
		return fmt.Errorf("aged: there is nothing: %s", list)
	}
	for key, t := range was {
		if _, err := tx.Exec(change, t.Add(by).Format(time.RFC3339Nano), key); err != nil {
			return err
		}
		fmt.Fprintln(ts.Stdout(), key, t, by)
	}
	return rows.Err()
}
