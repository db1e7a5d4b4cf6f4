# serve_page.sh -- the pages for trying an image, in a real browser without a window; skipped where there is none
# ctest: timeout 180
set -u
. "$TANDEM_SOURCE/tests/e2e/lib.sh"
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome || true)
[ -n "$browser" ] || { echo "SKIPPED: chromium is not installed"; exit 77; }

expect 0 dataset draw set --train 64 --val 16 --size 48 --seed 7
expect 0 train set --arch resnet18 --image-size 32 -b 16 --epochs 1 --lr 0.02 --seed 1 --workspace run --training-only
server=
trap '[ -z "$server" ] || kill -KILL $server' EXIT

# serve OPTIONS...: a server at $url
serve() {
    rm -f address
    "$TANDEM" serve --port 0 --json "$@" >address 2>talk </dev/null &
    server=$!
    tries=0
    while [ ! -s address ] && [ $tries -lt 600 ]; do
        sleep 0.1
        tries=$((tries + 1))
    done
    url=$(sed -n 's/.*"url": "\([^"]*\)".*/\1/p' address)
}

stop() {
    kill -TERM $server
    wait $server || complain "the server's exit code is $?"
    server=
}

# look NAME QUERY: the page's content after it has settled
look() {
    last="the page$2"
    timeout 100 "$browser" --headless --no-sandbox --disable-gpu --user-data-dir="$PWD/profile" --virtual-time-budget=8000 \
        --window-size=1000,760 --screenshot="$1.png" --dump-dom "$url$2" >out 2>err || complain "the browser failed"
}
serve --weights run/checkpoint.safetensors
look plain ''
prints 'The classes appear here'
look demo '?demo'
prints 'in [0-9]+ ms'
[ "$(grep -o '<li>' out | wc -l)" = 5 ] || complain "wanted 5 bars"
prints '<b>[a-zA-Z_]+</b><span>[0-9.]+ %</span>'
grep -q 'CONSOLE.*\(rror\|refused\)' err && complain "the console has errors"
stop

# boxes, drawn and listed
expect 0 init --arch ssd320 --backbone resnet18 --image-size 160 --num-classes 3 --seed 1 -o detector.safetensors
serve --weights detector.safetensors --min-score 0 --max-boxes 7 --max-batch 1
look boxes '?demo'
prints '7 found in [0-9]+ ms'
[ "$(grep -o '<rect [^>]*x="[-0-9.]*%" y="[-0-9.]*%" width="[0-9.]*%" height="[0-9.]*%"' out | wc -l)" = 7 ] ||
    complain "wanted 7 boxes"
prints '<text [^>]*>class [123] [0-9.]+ %</text>'
[ "$(grep -o '<li ' out | wc -l)" = 7 ] || complain "wanted 7 lines"
prints 'title="left, top, width, height: [-0-9., ]+".*<b>class [123]</b><span>[0-9.]+ %</span>'
grep -q 'CONSOLE.*\(rror\|refused\)' err && complain "the console has errors"
stop
finish
