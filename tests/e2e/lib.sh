# lib.sh -- sourced by tests: runs the command, checks exit code, stdout and stderr
#
#   expect CODE ARGUMENTS...     run; stdout goes to ./out, stderr to ./err
#   says PATTERN                 stderr of the last run matches (grep -E)
#   error_names WORD...          an error on stderr of the last run contains every WORD as a whole word
#   warning_names WORD...        the same for a warning
#   log_names WORD...            the same for any line on stderr
#   prints PATTERN               stdout of the last run matches
#   silent                       stdout of the last run is empty
#   finish                       at the end: exits with 1 if any check failed
#
# A message may be reworded, but must keep its facts: error_names and the like check files, options, numbers and
# names.  says and prints are for texts that are documented literally, and for a word that distinguishes two failures.
bad=0
last=

complain() {
    echo "$(basename "$0"): $last: $*" >&2
    sed 's/^/    out: /' out | head -5 >&2
    sed 's/^/    err: /' err | head -5 >&2
    bad=1
}

expect() {
    wanted=$1
    shift
    last="tandem $*"
    code=0
    "$TANDEM" "$@" >out 2>err </dev/null || code=$?
    [ "$code" = "$wanted" ] || complain "exit code $code, wanted $wanted"
}

says() {
    grep -Eq -e "$1" err || complain "stderr does not say '$1'"
}

# judges_words FILE KIND START WORD...: checks that a line of FILE that matches START contains every WORD
judges_words() {
    message_file=$1
    message_kind=$2
    messages=$(grep -a "$3" "$1") || { complain "$1 has no $2"; return; }
    shift 3
    for message_word; do
        messages=$(printf '%s\n' "$messages" | grep -aFw -e "$message_word") ||
            { complain "no $message_kind in $message_file names $message_word"; return; }
    done
}

error_names() {
    judges_words err error '^tandem: error: ' "$@"
}

warning_names() {
    judges_words err warning '^tandem: warning: ' "$@"
}

log_names() {
    judges_words err line '' "$@"
}

prints() {
    grep -Eq -e "$1" out || complain "stdout does not print '$1'"
}

silent() {
    [ ! -s out ] || complain "stdout is not empty"
}

finish() {
    exit $bad
}
