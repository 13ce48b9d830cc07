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

// cmdAged has a secret of the vault be made so many hours earlier than it was, in the
// database of a server that is down: what takes a day needs no day to be seen.
func cmdAged(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) == 2, "aged SECRET HOURS")
	hours, err := strconv.ParseFloat(args[1], 64)
	ts.Check(err)
	db, err := sql.Open("sqlite", "file:"+filepath.Join(of(ts).state, "cofferdam.db")+"?mode=rw&_pragma=busy_timeout(10000)")
	ts.Check(err)
	defer db.Close()
	var text string
	ts.Check(db.QueryRow(`SELECT created FROM secret WHERE name = ?`, args[0]).Scan(&text))
	made, err := time.Parse(time.RFC3339Nano, text)
	ts.Check(err)
	earlier := made.Add(-time.Duration(hours * float64(time.Hour)))
	_, err = db.Exec(`UPDATE secret SET created = ? WHERE name = ?`, earlier.Format(time.RFC3339Nano), args[0])
	ts.Check(err)
	_, err = fmt.Fprintf(ts.Stdout(), "%s\n%s\n", text, earlier)
	ts.Check(err)
}
