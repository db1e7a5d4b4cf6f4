# lib_background.sh -- for e2e tests that run the command beside themselves: start it, wait for its words, see how it ended
#
#   starts NAME ARGUMENTS...         the command in the background, $pid; stderr goes to NAME.err
#   waits NAME WORDS                 until stderr has WORDS; 60 s
#   holds NAME WORDS ARGUMENTS...    both, and the command gets no further than the line with WORDS until it is let go
#   ends NAME CODE                   let go, and how it ended
#   process NAME RANK                the number of a rank's process; `launch --log debug` prints it
#   linked ARGUMENTS... ::: ARGUMENTS...   the command twice, as ranks 0 and 1 of one run; $code and $code1, err and err1
#
# A run that could end before a signal comes is held: who waits for words only sees them late on a busy machine.
# Ranks of `launch` cannot be: the launcher takes their words for them.

process() {
    sed -n "s/^launch: rank $2 is process //p" "$1.err"
}

starts() {
    run=$1
    shift
    last="tandem $*"
    : >"$run.err"
    "$TANDEM" "$@" >out 2>"$run.err" </dev/null &
    pid=$!
}

waits() {
    n=0
    until grep -q "$2" "$1.err"; do
        n=$((n + 1))
        if [ $n -gt 6000 ] || ! kill -0 $pid 2>/dev/null; then
            cp "$1.err" err
            complain "never said '$2'"
            return 1
        fi
        sleep 0.01
    done
}

holds() {
    run=$1
    words=$2
    shift 2
    last="tandem $*"
    : >"$run.err"
    "$TANDEM_BUILD/tests/held" "$run.err" "$words" "$TANDEM" "$@" >out </dev/null &
    pid=$!
    waits "$run" "$words"
}

ends() {
    code=0
    : >"$1.err.go"
    wait $pid || code=$?
    n=0
    while [ -e "$1.err.open" ] && [ $n -le 1000 ]; do
        n=$((n + 1))
        sleep 0.01
    done
    rm -f "$1.err.go"
    cp "$1.err" err
    [ $code = "$2" ] || complain "exit code $code, wanted $2"
}

linked() {
    last="two ranks: $*"
    first="" # the arguments have no blanks
    while [ "$1" != ::: ]; do
        first="$first $1"
        shift
    done
    shift
    code=0
    set -f
    "$TANDEM_BUILD/tests/linked" "$TANDEM" $first ::: "$TANDEM" "$@" >out 2>err </dev/null || code=$?
    set +f
    code1=$(cat code1)
}
