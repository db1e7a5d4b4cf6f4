# lib_background.sh -- for e2e tests that run the command beside themselves: start it, wait for its words, see how it ended

# starts NAME ARGUMENTS...: the command in the background, $pid; stderr goes to NAME.err
starts() {
    name=$1
    shift
    last="tandem $*"
    : >"$name.err"
    "$TANDEM" "$@" >out 2>"$name.err" </dev/null &
    pid=$!
}

# waits NAME PATTERN: until stderr has the pattern; 60 s
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

# ends NAME CODE: how the background run ended
ends() {
    code=0
    wait $pid || code=$?
    cp "$1.err" err
    [ $code = "$2" ] || complain "exit code $code, wanted $2"
}
