# serve_limits.sh -- what one client cannot do to others: large images, idle and half-sent connections, and what a signal
# does not do: lose connections that the kernel has accepted, or wait for a request that never becomes whole
# ctest: timeout 300
set -u
. "$TANDEM_SOURCE/tests/e2e/lib.sh"
. "$TANDEM_SOURCE/tests/e2e/lib_serve.sh"
expect 0 init --arch resnet18 --image-size 32 --num-classes 4 --seed 1 -o w.safetensors
"$load" png 64 64 >small.png
"$load" png 4000 3000 >large.png
"$load" png 4001 3000 >larger.png
printf 'POST /classify HTTP/1.1\r\nHost: test\r\nContent-Length: 1000\r\n\r\nhalf' >half
holder=
trap '[ -z "$server" ] || kill -KILL $server; [ -z "$holder" ] || kill -KILL $holder' EXIT

# hold N FILE: so many connections on which FILE was sent
hold() {
    rm -f held
    "$load" hold $port "$1" <"$2" >held 2>err &
    holder=$!
    tries=0
    while [ ! -s held ] && [ $tries -lt 600 ]; do
        sleep 0.1
        tries=$((tries + 1))
    done
    [ -s held ] || complain "no connections"
}

let_go() {
    kill -KILL $holder
    wait $holder 2>/dev/null
    holder=
}

# until the server has ended; for one that does not there is ctest's time limit
ends() {
    code=0
    wait $server || code=$?
    [ $code = 0 ] || complain "the server's exit code is $code: $(tail -3 talk)"
    server=
}

resident() {
    ask 200 GET /metrics
    sed -n 's/^tandem_resident_bytes //p' out
}

# --- large images: one that is decoded while they wait is answered before them, and their memory goes back ----------
serve --workers 1 --max-pixels 12M
ask 413 POST /classify <larger.png
answer_names '4001 x 3000' 12000000
ask 200 POST /classify <small.png
before=$(resident)
large=
for i in 1 2 3 4 5 6 7 8 9 10; do
    "$load" ask $port POST /classify <large.png >large.$i 2>&1 &
    large="$large $!"
done
for i in 1 2 3; do
    ask 200 POST /classify <small.png
done
last="large images"
n=$(cat large.* | grep -c '^200$')
[ "$n" -lt 10 ] || complain "small images are answered after large ones"
wait $large
n=$(cat large.* | grep -c '^200$')
[ "$n" = 10 ] || complain "$n of 10 are answered: $(cat large.1)"
after=$(resident)
grep -q __asan_init "$TANDEM" || [ $((after - before)) -lt 25000000 ] ||
    complain "memory grows from $before to $after bytes"
stop
serve --max-queue 4 --workers 1 --max-pixels 1000
ask 413 POST /classify <small.png
stop

# --- connections in the way, with no time limit that would free them in time ----------------------------------------
serve --timeout 3600 --max-connections 10
hold 10 /dev/null
ask 200 GET /v2/health/live
ask 200 POST /classify <small.png
let_go
hold 10 half
ask 200 POST /classify <small.png
let_go

# --- the end --------------------------------------------------------------------------------------------------------
hold 3 half
last="SIGTERM beside half a request"
kill -TERM $server
ends
let_go
serve --timeout 3600
last="SIGTERM while connections come and go"
"$load" churn $port 3000 $server >out 2>err || complain "connections are reset"
ends
finish
