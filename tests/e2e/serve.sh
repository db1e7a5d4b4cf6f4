# serve.sh -- the server: answers like classify's, the protocol, limits, bad requests, load, an orderly end
# ctest: timeout 300
set -u
. "$TANDEM_SOURCE/tests/e2e/lib.sh"
. "$TANDEM_SOURCE/tests/e2e/lib_serve.sh"

expect 0 dataset draw set --train 320 --val 80 --size 48 --seed 7
expect 0 train set --arch resnet18 --image-size 32 -b 16 --epochs 2 --lr 0.02 --seed 1 --workspace run --training-only
expect 0 convert run/checkpoint.safetensors w.safetensors
expect 0 classify --weights w.safetensors set/val --json-lines
cp out answers
[ "$(wc -l <answers)" = 80 ] || complain "classify has $(wc -l <answers) lines for 80 images"
image=$(find set/val -name '*.jpg' | sort | head -1)
best=$(head -1 answers | sed 's/.*"classes": \[\({[^}]*}\).*/\1/')

# --- what it says -------------------------------------------------------------------------------
serve --max-body 1M --timeout 3
ask 200 GET /v2/health/live
prints '"live": true'
ask 200 GET /v2/health/ready
prints '"ready": true'
ask 200 GET /v2
prints '"name": "tandem".*binary_tensor_data'
ask 200 GET /v2/models/resnet18
prints '"shape": \[-1,3,32,32\].*"shape": \[-1,8\]'
ask 200 GET /v2/models/resnet18/versions/1/ready
prints '"ready": true'
ask 200 GET /
prints "default-src 'none'"
prints '<!doctype html>'
ask 204 GET /favicon.ico

# --- images -----------------------------------------------------------------------------------
ask 200 POST '/classify?topk=3' <"$image"
grep -qF "${best%,*}" out || complain "classify says $best"
[ "$(grep -o '"label"' out | wc -l)" = 3 ] || complain "wanted 3 classes"
{
    printf -- '--B\r\nContent-Disposition: form-data; name="image"; filename="a.jpg"\r\n\r\n'
    cat "$image"
    printf -- '\r\n--B--\r\n'
} >form
ask 200 POST /classify 'Content-Type: multipart/form-data; boundary=B' <form
grep -qF "${best%,*}" out || complain "a form: classify says $best"

# --- tensors: the images that classify saw, as numbers ----------------------------------------
expect 0 dataset check set/val --dump-tensors t.safetensors --image-size 32
bytes=$((3 * 32 * 32 * 4))
tail -c $((80 * bytes)) t.safetensors | head -c $((2 * bytes)) >rows
printf '{"id": "seven", "inputs": [{"name": "images", "datatype": "FP32", "shape": [2,3,32,32], "parameters": {"binary_data_size": %d}}], "outputs": [{"name": "probabilities", "parameters": {"classification": 1}}, {"name": "logits", "parameters": {"binary_data": true}}]}' $((2 * bytes)) >json
size=$(wc -c <json)
cat json rows >body
ask 200 POST /v2/models/resnet18/infer "Inference-Header-Content-Length: $size" <body
prints '"id": "seven"'
for line in 1 2; do
    label=$(sed -n "${line}s/.*\"classes\": \[{\"label\": \([0-9]*\),.*/\1/p" answers)
    prints "\"[0-9.e-]*:$label:"
done
prints '^Inference-Header-Content-Length: [0-9]'
ask 400 POST /v2/models/resnet18/infer "Inference-Header-Content-Length: 99999999" <body
answer_names Inference-Header-Content-Length 99999999
ask 400 POST /v2/models/resnet18/infer <json
answer_names binary_data_size 24576 0
od -An -v -t f4 -w4 rows | head -3072 | tr -d ' ' | paste -sd, - >numbers
printf '{"inputs": [{"name": "images", "datatype": "FP32", "shape": [1,3,32,32], "data": [%s]}]}' "$(cat numbers)" >json
ask 200 POST /v2/models/resnet18/infer <json
prints '"name": "logits".*"shape": \[1,8\].*"name": "probabilities"'

# --- what is refused ----------------------------------------------------------------------------
ask 400 POST /classify </dev/null
answer_names empty
head -c 500 "$image" >cut.jpg
ask 400 POST /classify <cut.jpg
ask 400 POST '/classify?topk=0' <"$image"
answer_names 1 10
printf '{"inputs": [' >bad
ask 400 POST /v2/models/resnet18/infer <bad
answer_names 'line 1'
sed 's/32,32\]/32,31]/' json >bad
ask 400 POST /v2/models/resnet18/infer <bad
answer_names '[n,3,32,32]'
sed 's/"data": \[/"data": [[[[[[[[[[[[[[[[[[[[[/' json >bad
ask 400 POST /v2/models/resnet18/infer <bad
answer_names number
ask 404 POST /v2/models/other/infer <json
answer_names "'resnet18'"
ask 404 GET /v2/models/resnet18/versions/2
ask 404 GET /../../../etc/passwd
ask 404 GET /%2e%2e/%2e%2e/etc/passwd
ask 405 GET /classify
prints '^Allow: POST'
ask 405 DELETE /v2
head -c 1100000 /dev/zero >long
ask 413 POST /classify <long
answer_names 1100000 1000000
last=drip
"$load" drip $port || complain "no connection" # ends when the server closes it; ctest's time limit, where it does not
ask 200 GET /metrics
prints '^tandem_requests_total\{code="413"\} 1$'
prints '^tandem_batch_rows_count [1-9]'
expect 1 serve --weights w.safetensors --port $port
error_names 127.0.0.1 "$port"
stop

# --- load: right answers beside broken and malformed requests, then SIGTERM in the middle -------
serve --max-delay-ms 5
loads resnet18 400 16
drains resnet18 16 150

# --- several streams: the same answers, less memory than two servers, none lost at the end --------
if [ "${OMP_PROC_BIND:-false}" = false ]; then
    serve --threads 3 --streams 2 --max-delay-ms 1
    grep -q '2 streams, each of 2 or one less compute threads' talk || complain "no line about streams: $(cat talk)"
    ask 200 GET /v2/models/resnet18/config
    prints '"instance_group": \[\{"name": "streams", "count": 2\}\]'
    [ "$(ls /proc/$server/task | wc -l)" -gt 3 ] || complain "no threads"
    grep -qx compute /proc/$server/task/*/comm || complain "no thread of a second stream"
    loads resnet18 400 16
    ask 200 POST /v2/models/resnet18/infer "Inference-Header-Content-Length: $size" <body
    drains resnet18 16 150
    serve --threads 2 --streams 2 --max-queue 1 --workers 1
    last="a queue of 1, streams"
    "$load" load $port resnet18 answers 120 12 >out 2>err || complain "wrong or lost answers"
    prints '"busy": [1-9]'
    stop
    expect 2 serve --weights w.safetensors --port 0 --threads 2 --streams 3
    error_names --streams 3 2
    OMP_PROC_BIND=true expect 2 serve --weights w.safetensors --port 0 --threads 2 --streams 2
    error_names --streams OMP_PROC_BIND
fi

# --- a full queue says so -----------------------------------------------------------------------
serve --max-queue 1 --workers 1
last="a queue of 1"
"$load" load $port resnet18 answers 120 12 >out 2>err || complain "wrong or lost answers"
prints '"busy": [1-9]'
stop

# --- what cannot be served ----------------------------------------------------------------------
expect 2 serve
error_names --weights FILE
expect 1 serve --weights absent.safetensors
says 'absent.safetensors'
expect 2 serve --weights w.safetensors --host nowhere --port 0
error_names "'nowhere'"
expect 2 serve --weights w.safetensors --name 'a/b' --port 0
error_names --name 'a/b'
expect 2 serve --weights w.safetensors --port 70000
says '65535'
finish
