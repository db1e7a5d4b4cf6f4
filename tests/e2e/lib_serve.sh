# lib_serve.sh -- sourced after lib.sh by tests of `tandem serve`
#
#   serve OPTIONS...                     start a server of w.safetensors; $port and $server
#   stop                                 SIGTERM, and the exit code is 0
#   ask STATUS METHOD PATH [HEADER]...   stdin is the body; the status and the answer go to ./out
#   answer_names WORD...                 that answer is an error that has every WORD, none as part of a longer one
#   loads MODEL REQUESTS CONNECTIONS     answers as in ./answers beside broken and malformed requests
#   drains MODEL CONNECTIONS STOP        likewise, with SIGTERM after STOP requests: no answer is lost, the exit code is 0
load=$TANDEM_BUILD/tests/http_load
server=

serve() {
    rm -f address
    "$TANDEM" serve --weights w.safetensors --port 0 --json "$@" >address 2>talk </dev/null &
    server=$!
    tries=0
    while [ ! -s address ] && [ $tries -lt 600 ]; do
        sleep 0.1
        tries=$((tries + 1))
        kill -0 $server 2>/dev/null || break
    done
    port=$(sed -n 's/.*"port": \([0-9]*\).*/\1/p' address)
    [ -n "$port" ] || { last=serve; complain "it does not start: $(cat talk)"; finish; }
}

stop() {
    kill -TERM $server
    code=0
    wait $server || code=$?
    [ $code = 0 ] || complain "the server's exit code is $code: $(tail -3 talk)"
    server=
}
trap '[ -z "$server" ] || kill -KILL $server' EXIT

ask() {
    wanted=$1
    shift
    last="$1 $2"
    "$load" ask $port "$@" >out 2>err || complain "no answer"
    [ "$(head -1 out)" = "$wanted" ] || complain "status $(head -1 out), wanted $wanted"
}

answer_names() {
    judges_words out error '"error": "' "$@"
}

loads() {
    last=load
    "$load" load $port "$1" answers "$2" "$3" >out 2>err || complain "wrong or lost answers"
    ask 200 GET /metrics
    prints '^tandem_queue_length 0$'
}

drains() {
    last="load, stopped"
    "$load" load $port "$1" answers 100000 "$2" $server "$3" >out 2>err || complain "SIGTERM loses answers"
    code=0
    wait $server || code=$?
    [ $code = 0 ] || complain "the drained server's exit code is $code"
    server=
}
