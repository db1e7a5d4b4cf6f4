# lib.sh -- sourced by tests: run the command, judge exit code, stdout and stderr
#
#   expect CODE ARGUMENTS...     run; stdout goes to ./out, stderr to ./err
#   says PATTERN                 stderr of the last run matches (grep -E)
#   error_names WORD...          an error on stderr of the last run has every WORD, none as part of a longer one
#   prints PATTERN               stdout of the last run matches
#   silent                       stdout of the last run is empty
#   finish                       at the end: exit 1 when anything was wrong
#
# A message may be reworded, but not name less: error_names for files, options, numbers and names.
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

error_names() {
    errors=$(grep -a '^tandem: error: ' err) || complain "stderr has no error"
    for word; do
        errors=$(printf '%s\n' "$errors" | grep -aFw -e "$word") || complain "the error does not name $word"
    done
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
