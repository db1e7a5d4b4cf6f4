# serve_clients.sh -- the server as clients of the inference protocol use it (descriptions, statistics, classes as bytes,
# compressed bodies), and who may use it: bearer token, TLS, addresses
# ctest: timeout 300
set -u
. "$TANDEM_SOURCE/tests/e2e/lib.sh"
. "$TANDEM_SOURCE/tests/e2e/lib_serve.sh"
tls=$TANDEM_SOURCE/tests/data/tls
expect 0 init --arch resnet18 --image-size 32 --num-classes 4 --seed 1 -o w.safetensors

# --- descriptions -------------------------------------------------------------------------------
serve --max-body 100k --max-batch 2
grep -q 'serve: 127.0.0.1 accepts connections from this machine only' talk || complain "no word of who reaches it: $(cat talk)"
ask 200 GET /v2
prints '"extensions": \["binary_tensor_data", "model_configuration", "statistics", "classification"\]'
ask 200 GET /v2/models/resnet18/config
prints '"max_batch_size": 1024, "input": \[\{"name": "images", "data_type": "TYPE_FP32", "dims": \[3, 32, 32\]\}\]'
prints '"output": \[\{"name": "logits", "data_type": "TYPE_FP32", "dims": \[4\]\}, \{"name": "probabilities"'
prints '"preferred_batch_size": \[2\]'
for body in '' '{"ready": true}'; do
    printf '%s' "$body" >json
    ask 200 POST /v2/repository/index <json
    prints '^\[\{"name": "resnet18", "version": "1", "state": "READY", "reason": ""\}\]$'
done
ask 501 POST /v2/repository/models/resnet18/load <json
answer_names "'resnet18'"
ask 404 POST /v2/systemsharedmemory/region/x/register <json

# --- tensors: classes as bytes, behind which another tensor follows; five rows are three batches --
printf '{"inputs": [{"name": "images", "datatype": "FP32", "shape": [5,3,32,32], "parameters": {"binary_data_size": 61440}}], "outputs": [{"name": "probabilities", "parameters": {"classification": 1, "binary_data": true}}, {"name": "logits", "parameters": {"binary_data": true}}]}' >json
size=$(wc -c <json)
head -c 61440 /dev/zero >zeros
cat json zeros >body
ask 200 POST /v2/models/resnet18/infer "Inference-Header-Content-Length: $size" <body
prints '"datatype": "BYTES", "shape": \[5,1\], "parameters": \{"binary_data_size": [0-9]+\}\}, \{"name": "logits"'
[ "$(grep -ao '[0-9.e-]*:[0-3]:class [0-3]' out | wc -l)" = 5 ] || complain "wanted 5 classes"
sed '1,/^.$/d' out >plain
[ -s plain ] || complain 'no answer'
ask 200 GET /v2/models/resnet18/stats
prints '"inference_count": 5, "execution_count": 3, "inference_stats": \{"success": \{"count": 1, "ns": [1-9]'
prints '"batch_stats": \[\{"batch_size": 1, .*\{"batch_size": 2, "compute_input": \{"count": 2'
ask 200 GET /v2/models/stats
prints '^\{"model_stats": \[\{"name": "resnet18"'

# --- compressed bodies --------------------------------------------------------------------------
gzip -c body >body.gz
for encoding in gzip x-gzip; do
    ask 200 POST /v2/models/resnet18/infer "Inference-Header-Content-Length: $size" "Content-Encoding: $encoding" <body.gz
    sed '1,/^.$/d' out >expanded
    cmp -s plain expanded || complain "the answer to a compressed body is another one"
done
"$load" png 64 64 | gzip -c >png.gz
ask 200 POST /classify 'Content-Encoding: gzip' <png.gz
prints '"label"'
head -c 50 body.gz >cut
ask 400 POST /v2/models/resnet18/infer 'Content-Encoding: gzip' <cut
answer_names compressed ends
ask 400 POST /v2/models/resnet18/infer 'Content-Encoding: gzip' <body
answer_names compressed damaged
head -c 10000000 /dev/zero | gzip -c >bomb
ask 413 POST /v2/models/resnet18/infer 'Content-Encoding: gzip' <bomb
answer_names 100000
for encoding in br 'gzip, gzip'; do
    ask 415 POST /classify "Content-Encoding: $encoding" <body.gz
    prints '^Accept-Encoding: gzip, deflate'
    answer_names gzip deflate
done
stop

# --- a token ------------------------------------------------------------------------------------
printf 'open-sesame\n' >token
serve --token-file token
for path in /v2 /metrics / /v2/models/resnet18 /nothing; do
    ask 401 GET $path
    prints '^WWW-Authenticate: Bearer'
    answer_names token
done
for given in 'Bearer open-sesam' 'Bearer open-sesame1' 'Basic open-sesame' 'Bearer '; do
    ask 401 GET /v2 "Authorization: $given"
done
ask 401 POST /v2/models/resnet18/infer <body
ask 200 GET /v2/health/live
ask 200 GET /v2/health/ready
ask 200 GET /v2 'Authorization: Bearer open-sesame'
ask 200 POST /v2/models/resnet18/infer 'Authorization: Bearer open-sesame' "Inference-Header-Content-Length: $size" <body
ask 200 GET /metrics 'Authorization: Bearer open-sesame'
stop
serve --host 0.0.0.0
grep -q 'warning: .*0\.0\.0\.0 .*token' talk ||
    complain "no warning that others reach it: $(cat talk)"
stop
serve --host 0.0.0.0 --token-file token
grep -q 'warning: .*0\.0\.0\.0 .*no token' talk && complain "a warning in spite of the token"
grep -q 'warning: .*token .*unencrypted' talk || complain "no warning of a readable token"
stop
printf ' \n' >empty
expect 1 serve --weights w.safetensors --port 0 --token-file empty
error_names "'empty'"
expect 1 serve --weights w.safetensors --port 0 --token-file absent
says 'absent'

# --- TLS ----------------------------------------------------------------------------------------
expect 2 serve --weights w.safetensors --port 0 --tls-cert "$tls/cert.pem"
error_names --tls-cert --tls-key
expect 1 serve --weights w.safetensors --port 0 --tls-cert "$tls/cert.pem" --tls-key absent
says 'absent'
expect 1 serve --weights w.safetensors --port 0 --tls-cert "$tls/cert.pem" --tls-key "$tls/other_key.pem"
if grep -q 'built without TLS' err; then
    echo "SKIPPED: TLS, libmicrohttpd has none"
else
    error_names TLS
    serve --tls-cert "$tls/cert.pem" --tls-key "$tls/key.pem"
    grep -q '"url": "https://127.0.0.1:' address || complain "no https address: $(cat address)"
    if "$load" has-tls; then
        HTTP_LOAD_CA=$tls/cert.pem
        export HTTP_LOAD_CA
        ask 200 POST /v2/models/resnet18/infer "Inference-Header-Content-Length: $size" <body
        ask 200 GET /v2/models/stats
        prints '"inference_count": 5'
        unset HTTP_LOAD_CA
    else
        echo "SKIPPED: requests by TLS, http_load was built without GnuTLS"
    fi
    last="a request without TLS"
    "$load" ask $port GET /v2 >out 2>err && complain "it is answered"
    stop
fi
finish
