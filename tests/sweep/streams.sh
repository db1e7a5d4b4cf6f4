#!/bin/sh
# streams.sh -- throughput and latency of `tandem serve` with 1, 2, ... streams of the same threads, in turns
#
#     tests/sweep/streams.sh THREADS STREAMS CLIENTS BATCH [SERVE OPTION]...      streams.sh 2 '1 2' '1 2 8' 8 --arch resnet50
#
# One line for each run: streams, clients, answers per second, median and 99th percentile in ms.  ROUNDS (3) of each.
set -eu
threads=$1 streams=$2 clients=$3 batch=$4
shift 4
here=$(cd "$(dirname "$0")/../.." && pwd)
tandem=${TANDEM:-$here/build/release/tandem}
load=$here/build/release/tests/http_load
tmp=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill $server; rm -rf "$tmp"' EXIT
cd "$tmp"
"$tandem" dataset draw set --train 8 --val 40 --size 320 --seed 7 >/dev/null
"$tandem" init "$@" --num-classes 8 --seed 1 -o w.safetensors >/dev/null
"$tandem" classify --weights w.safetensors set/val --json-lines >answers
round=0
while [ $round -lt "${ROUNDS:-3}" ]; do
    for s in $streams; do
        rm -f address
        "$tandem" serve --weights w.safetensors --port 0 --json --name m --threads "$threads" --streams "$s" --max-batch "$batch" \
            >address 2>talk </dev/null &
        server=$!
        while [ ! -s address ]; do
            kill -0 $server || { cat talk; exit 1; }
            sleep 0.1
        done
        port=$(sed -n 's/.*"port": \([0-9]*\).*/\1/p' address)
        for c in $clients; do
            "$load" load "$port" m answers "${REQUESTS:-200}" "$c" >out || { cat out; exit 1; }
            sed "s/.*answers_per_s\": \([0-9.]*\), \"p50_ms\": \([0-9.]*\), \"p99_ms\": \([0-9.]*\).*/$s $c \1 \2 \3/" out
        done
        kill $server
        wait $server || true
        server=
    done
    round=$((round + 1))
done
