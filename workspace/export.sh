set -eu
# What is in the workspace and not in the repository, as a git bundle on standard
# output; nothing if there is nothing. The agent's own .git is only borrowed from:
# objects are read through it, and its refs are read as files. None of its
# configuration, hooks and filters counts.
umask 077
export GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null GIT_ATTR_NOSYSTEM=1 GIT_TERMINAL_PROMPT=0 GIT_NO_REPLACE_OBJECTS=1 GIT_OPTIONAL_LOCKS=0
export GIT_AUTHOR_NAME=cofferdam GIT_AUTHOR_EMAIL=cofferdam@localhost GIT_COMMITTER_NAME=cofferdam GIT_COMMITTER_EMAIL=cofferdam@localhost
export HOME=/tmp LC_ALL=C
unset GIT_DIR GIT_WORK_TREE GIT_INDEX_FILE
theirs=/work/.git
format=sha1
if [ "$(head -n 1 "$TIPS" | wc -c)" -gt 42 ]; then format=sha256; fi
# What is written goes where more is free. Of a folder that is watched df knows
# nothing: LEFT has the KiB that are left of its size.
free() { df -Pk "$1" | awk 'NR==2 {print $4}'; }
at=/tmp
if [ "${LEFT:-$(free /work)}" -gt "$(free /tmp)" ]; then at=/work; fi
dir=$(mktemp -d $at/.export-XXXXXX)
trap 'rm -rf "$dir"' EXIT
ours=$dir/git
git init -q --bare --template= --object-format=$format "$ours" 1>&2
mkdir -p "$ours/info"
printf '/lost+found/\n/.export-*/\n' >"$ours/info/exclude"
if [ -d "$theirs" ] && [ ! -L "$theirs" ]; then
	[ ! -d "$theirs/objects" ] || echo "$theirs/objects" >"$ours/objects/info/alternates"
	[ ! -f "$theirs/info/exclude" ] || head -c 65536 "$theirs/info/exclude" >>"$ours/info/exclude"
fi
git="git --git-dir=$ours"

# refs: those in one file, then the loose ones, which are newer.
{
	[ ! -f "$theirs/packed-refs" ] || head -n 5000 "$theirs/packed-refs" | awk '$2 ~ /^refs\/(heads|tags)\// || $2 == "refs/stash" {print $1, $2}'
	if [ -d "$theirs/refs" ]; then
		(cd "$theirs" && find refs/heads refs/tags refs/stash -type f 2>/dev/null | head -n 5000 | while IFS= read -r name; do
			IFS= read -r id <"$name" || :
			echo "$id $name"
		done)
	fi
} 2>/dev/null | awk 'length($1) >= 40 && $1 ~ /^[0-9a-f]+$/ && $2 ~ /^refs\/[A-Za-z0-9._\/@+=-]+$/ && NF == 2 {at[$2] = $1} END {for (r in at) print at[r], r}' | head -n 990 >"$dir/refs"
while read -r id name; do
	[ "$name" != refs/stash ] || name=refs/heads/stash
	if $git cat-file -e "$id^{commit}" 2>/dev/null; then $git update-ref "$name" "$id" 2>/dev/null || :; fi
done <"$dir/refs"

# HEAD, which may be on a branch or on none.
head=
if [ -f "$theirs/HEAD" ]; then
	IFS= read -r head <"$theirs/HEAD" || :
	case "$head" in
	"ref: "*) head=$($git rev-parse -q --verify "${head#ref: }^{commit}" 2>/dev/null || :) ;;
	esac
	if [ -n "$head" ] && ! $git cat-file -e "$head^{commit}" 2>/dev/null; then head=; fi
fi
[ -z "$head" ] || $git update-ref refs/heads/workspace-head "$head"

# adds puts what is in the folder into the index.
adds() {
	(cd /work && git --git-dir="$ours" --work-tree=/work -c core.hooksPath=/dev/null -c core.fsmonitor=false -c advice.addEmbeddedRepo=false add -A --ignore-errors . 1>&2) || :
}

# What was not committed. A file that cannot be read, or is larger than 100 MiB
# and in no commit, is left out.
(cd /work && find . -xdev -path ./.git -prune -o -type f -size +204800 -print 2>/dev/null | head -n 1000 |
	sed -e 's/^\.//' -e 's/[][*?\\ ]/\\&/g' >>"$ours/info/exclude")
export GIT_INDEX_FILE="$ours/index"
if [ -n "$head" ] && ! $git read-tree "$head" 1>&2; then head=; fi
# The git of a submodule is not asked whether something changed in it: it would run
# what it is set up to run.
$git ls-files -s -z | sed -z -n 's/^160000 [^\t]*\t//p' | $git --work-tree=/work update-index -z --skip-worktree --stdin
adds
tree=$($git write-tree)
before=
[ -z "$head" ] || before=$($git rev-parse "$head^{tree}")
empty=$($git hash-object -t tree /dev/null)
if [ "$tree" != "$before" ] && { [ -n "$before" ] || [ "$tree" != "$empty" ]; }; then
	left=$(echo "$NOTE" | $git commit-tree "$tree" ${head:+-p "$head"})
	$git update-ref refs/heads/uncommitted "$left"
fi

# What the repository has is left out.
$git cat-file --batch-check='%(objectname) %(objecttype)' <"$TIPS" | awk '$2 == "commit" {print "^" $1}' >"$dir/had"
if [ -z "$($git for-each-ref --count=1)" ]; then exit 0; fi
if [ "$($git rev-list --count --all --stdin <"$dir/had")" = 0 ]; then exit 0; fi
if ! $git rev-list --objects --quiet --all --stdin <"$dir/had" 1>&2; then
	# Its history is not whole: the files alone are.
	$git for-each-ref --format='delete %(refname)' | $git update-ref --stdin
	rm -f "$GIT_INDEX_FILE"
	adds
	$git update-ref refs/heads/uncommitted "$(echo "$NOTE Its history could not be read." | $git commit-tree "$($git write-tree)")"
fi
$git bundle create -q - --all --stdin <"$dir/had"
