//! What runs on the host. A POSIX shell with GNU find, sort, comm, tar; nothing is interpolated, everything comes as an argument or by stdin.
//!
//! `$1` is the directory that everything is relative to, `$2` where the tree begins in it (`.`, or `./NAME` of a single file), `$3` where
//! the lists are. The tree there is hostile: nothing follows a link, and the directory itself may not be one.

/// Enters the directory. Its parents belong to whoever we log in as; it itself may have been replaced.
macro_rules! enter {
    () => {
        r#"set -eu; LC_ALL=C; export LC_ALL; unset CDPATH TAR_OPTIONS POSIXLY_CORRECT GZIP; umask 077
if [ -L "$1" ]; then echo "$1 is a symbolic link" >&2; exit 3; fi
if [ ! -d "$1" ]; then echo "$1 is no directory" >&2; exit 3; fi
cd -P "$1"
"#
    };
}

/// How an entry is told of, and how several are: `tell FILE WHAT…` runs `find` over the names in a file. What changed in the last instant is
/// marked, so that it differs next time whatever it is. What somebody writes to through a mapping gets a new time only where the page was clean:
/// so before a list that is trusted later, pages are made clean, and whatever is written from `now` on is told by its time.
macro_rules! tell {
    () => {
        r##"now() {
n=$(($(date +%s%N)-50000000)); t=$(printf '@%d.%09d' $((n/1000000000)) $((n%1000000000)))
d='d %m 0 %T@ 0 0 %p//\0' f='%y %m %s %T@ %C@ %i %p//%l\0'; export t d f
}
flush() { sync -f . 2> /dev/null || sync; }
tell() { xargs -0 -r sh -c "find -P \"\$@\" $2 -ignore_readdir_race \\( -type d -printf \"\$d\" \\) -o \\( \\( -newerct \"\$t\" -printf '~' -o -true \\) -printf \"\$f\" \\)" sh < "$1"; }
"##
    };
}

/// A function that lists the tree into `$3/new`, with the word `$4`. What its owner took from himself (`chmod 000`) is given back, or nobody could
/// read it: that is told, each with a `!` before its path.
macro_rules! list {
    () => {
        r##"show() {
printf '#%s\0' "$4" > "$3/raw" || return 1
if [ -e "$2" ] || [ -L "$2" ]; then printf '%s\0' "$2" > "$3/start" && tell "$3/start" '' >> "$3/raw"; fi
}
closed() { [ "$(id -u)" -ne 0 ] && grep -q -z -E '^~?f ([0-7]?[0-7]|[0-3][0-7][0-7]|[0-7][0-3][0-7][0-7]) ' "$3/raw"; }
open_up() {
find -P "$2" \( -type d ! \( -readable -executable \) -exec chmod u+rx {} \; -o -type f ! -readable -exec chmod u+r {} \; \) -printf '!%p\0' 2> /dev/null || :
sleep 0.06; now
}
look() {
now
[ -n "${clean:-}" ] || flush
if ! show "$@" 2> /dev/null || closed "$@"; then open_up "$@"; show "$@"; fi
sort -z -T "$3" "$3/raw" > "$3/new"; rm -f "$3/raw" "$3/start"
}
"##
    };
}

/// Takes the first `$5` bytes of what comes in into `$3/names`, and no more: what follows is for others to read. A name that was cut short
/// would be another name.
macro_rules! take {
    () => {
        r#"head -c "$5" > "$3/names"
if [ "$(wc -c < "$3/names")" -ne "$5" ]; then echo "the connection was cut" >&2; exit 4; fi
"#
    };
}

/// Looks, and tells what differs from the list whose word is among `$5`: what was opened up; `+` where a send was cut; what is there and was not so; an empty
/// record; what was there and is not so any more; an empty record. Where there is no such list, everything is there and was not.
macro_rules! compare {
    () => {
        r##"look "$@"
old=/dev/null
if [ -f "$3/list" ]; then
have=$(head -z -n 1 "$3/list" | tr -d '\0')
case " $5 " in *" ${have#?} "*) old=$3/list ;; esac
fi
if [ -e "$3/sending" ]; then printf '+\0'; fi
comm -z -13 "$old" "$3/new"; printf '\0'; comm -z -23 "$old" "$3/new"; printf '\0'"##
    };
}

/// For a fetch: the tree has to be there. What was written just before is not taken for what is being written.
pub(super) const COMPARE: &str = concat!(enter!(), tell!(), list!(), "sleep 0.06\n", compare!());

/// Refuses where what is about to be made is a link.
macro_rules! no_links {
    () => {
        r#"set -eu; umask 077
if [ -L "$1" ] || [ -L "$3" ]; then echo "$1 or $3 is a symbolic link" >&2; exit 3; fi
"#
    };
}

/// What takes a stream notes its process, when that was started, and its group. One whose connection broke may not have heard of it, and waits for the
/// rest: it is ended, or it would go on writing when it does hear.
macro_rules! alone {
    () => {
        r#"started_at() { [ -r "/proc/$1/stat" ] && cut -d ' ' -f 22 "/proc/$1/stat"; }
waits() { [ "$(started_at "$process")" = "$moment" ] && ! grep -q '^State:.Z' "/proc/$process/status" 2> /dev/null; }
if [ -s "$3/sending" ] && read -r process moment group < "$3/sending" && waits && kill -KILL "-$group" 2> /dev/null; then
left=500
while [ "$left" -gt 0 ] && waits; do left=$((left-1)); sleep 0.01; done
fi
"#
    };
}

/// For a send: what is missing is made.
pub(super) const COMPARE_OR_MAKE: &str =
    concat!(no_links!(), alone!(), "mkdir -p \"$1\" \"$3\"\n", enter!(), tell!(), list!(), compare!());

/// Takes what is sent: from here on to its end, what is there is neither the old nor the new. What comes in first is directories to be given access to
/// (`$6` bytes), what is to be removed (`$7`), and what is going to be written (up to `$5`). Where that is little, notes which records of
/// `$3/new` will not be true any more; where they are not what was listed, everything is listed again in the end. Then comes a tar stream, `$8`. One that was cut
/// between two members is whole to `tar`: so the last member is one that nothing else is called like.
macro_rules! extract {
    () => {
        r#"read -r one two three four group rest < "/proc/$$/stat"
echo "$$ $(cut -d ' ' -f 22 "/proc/$$/stat") $group" > "$3/sending"
rm -f "$3/drop"
head -c "$6" "$3/names" > "$3/closed"
tail -c "+$(($6+1))" "$3/names" | head -c "$7" > "$3/gone"
tail -c "+$(($6+$7+1))" "$3/names" > "$3/goes"
if [ -s "$3/goes" ] && ! grep -q -z '^~' "$3/new"; then
now
{ tell "$3/gone" '' || :; tell "$3/goes" '-maxdepth 0' || :; } > "$3/raw" 2> /dev/null
sort -z -u -T "$3" "$3/raw" > "$3/drop"
comm -z -23 "$3/drop" "$3/new" > "$3/raw"
if [ -s "$3/raw" ]; then rm -f "$3/drop"; fi
fi
xargs -0 -r sh -c 'find -P "$@" -maxdepth 0 -type d -exec chmod u+rwx {} +' sh < "$3/closed"
xargs -0 -r rm -rf -- < "$3/gone" 2> /dev/null || {
xargs -0 -r sh -c 'find -P "$@" -type d -exec chmod u+rwx {} + 2> /dev/null' sh < "$3/gone" || :
xargs -0 -r rm -rf -- < "$3/gone"
}
rm -f "$3/closed" "$3/gone" "$3/names" "$3/raw"
take() { tar -x -v -p --no-same-owner --delay-directory-restore --xattrs --xattrs-include='user.*' --warning=no-timestamp -f - > "$3/told"; }
c=0
if [ "$8" = gzip ]; then gzip -dc | take "$@" || c=$?; else take "$@" || c=$?; fi
if [ "$c" -ne 0 ]; then
df -P -k . | tail -n 1 | { read -r f1 f2 f3 free rest; [ "$free" -gt 64 ] || echo "No space left on the disk of the host" >&2; }
exit "$c"
fi
case $(tail -n 1 "$3/told") in ./. | ././) ;; *) echo "the connection was cut" >&2; exit 4 ;; esac
"#
    };
}

/// Both sides are equal: lists the tree as it is, or what of it was written, and puts the list in place. The pause is for what was written in
/// the last instant. Pages that somebody has mapped were made clean by the comparison, and nobody writes to them since.
macro_rules! commit {
    () => {
        r#"sleep 0.06; clean=yes
if [ -f "$3/drop" ] && now && tell "$3/goes" '-maxdepth 0' > "$3/raw"; then
sort -z -T "$3" "$3/raw" > "$3/after"
comm -z -23 "$3/new" "$3/drop" | sort -z -m -T "$3" - "$3/after" > "$3/raw"
mv -f "$3/raw" "$3/new"
else look "$@"; fi
rm -f "$3/drop" "$3/goes" "$3/after" "$3/raw" "$3/told"
mv -f "$3/new" "$3/list"; rm -f "$3/sending""#
    };
}

/// Takes what is sent after a comparison.
pub(super) const TAKE: &str = concat!(enter!(), tell!(), list!(), take!(), extract!(), commit!());

/// Takes what is sent to where nothing is; ends with [`SOMETHING_THERE`] where that is not so, and has changed nothing then.
pub(super) const TAKE_FIRST: &str = concat!(
    no_links!(),
    r#"if [ -e "$1/$2" ] || [ -L "$1/$2" ]; then exit 6; fi
mkdir -p "$1" "$3"
"#,
    enter!(),
    tell!(),
    list!(),
    take!(),
    extract!(),
    commit!()
);

/// How [`TAKE_FIRST`] says so.
pub(super) const SOMETHING_THERE: i32 = 6;

/// The same with the list that was compared last.
pub(super) const ACCEPT: &str = r##"set -eu
have=$(head -z -n 1 "$3/new" | tr -d '\0')
if [ "$have" != "#$4" ]; then echo "another list was made meanwhile" >&2; exit 5; fi
mv -f "$3/new" "$3/list""##;

/// Sends the files that are named by what comes in, without their holes. A file that changes while it is read is sent as it is read (1).
pub(super) const PACK: &str = concat!(
    enter!(),
    take!(),
    r#"give() { c=0; tar -c -S --format=pax --pax-option=delete=atime,delete=ctime --no-recursion --null --verbatim-files-from --xattrs --xattrs-include='user.*' -T "$3/names" -f - || c=$?; echo "$c" > "$3/status"; }
rm -f "$3/status"
if [ "$4" = gzip ]; then give "$@" | gzip -1; else give "$@"; fi
c=$(cat "$3/status"); rm -f "$3/status" "$3/names"
[ "$c" -le 1 ]"#
);
