#!/bin/sh
# Asks whoever started git whether the one update of this push may happen. The
# new objects are in quarantine. Says on descriptor 3 whether the update rewinds
# its branch and where the quarantine is; goes on only if "go" comes back on 4.
# What cannot be told counts as a rewind.
read -r old new ref || exit 1
test "$(git cat-file -t "$new")" = commit || { echo "$ref: not a commit" >&2; exit 1; }
force=0
case $old in
*[!0]*) git merge-base --is-ancestor "$old" "$new" || force=1 ;;
esac
echo "$force $GIT_QUARANTINE_PATH" >&3
read -r verdict <&4
test "$verdict" = go
