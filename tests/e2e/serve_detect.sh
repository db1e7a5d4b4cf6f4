# serve_detect.sh -- the server with a detector: the bytes that detect prints, its tensors, what is refused, load, an
# orderly end
# ctest: timeout 300
set -u
. "$TANDEM_SOURCE/tests/e2e/lib.sh"
. "$TANDEM_SOURCE/tests/e2e/lib_serve.sh"

expect 0 dataset draw set --boxes --classes 2 --train 4 --val 4 --size 160 --seed 7
expect 0 train set --arch ssd320 --backbone resnet18 --image-size 160 -b 2 --num-train-steps 4 --lr 0.02 --bn-decay 0.9 \
    --seed 3 --workspace run --training-only --no-checkpoints --final-weights w.safetensors
expect 0 detect --weights w.safetensors --min-score 0 --max-boxes 6 --json set/val
cp out answers
[ "$(grep -o '"image_id"' answers | wc -l)" = 24 ] || complain "wanted 6 boxes on each of 4 images"
image=$(find set/val -name '*.jpg' | sort | head -1)

# lists FILE: what an answer says behind its images
lists() {
    sed -n 's/.*\("categories": .*\)}$/\1/p' "$1"
}

# --- what it says -------------------------------------------------------------------------------
serve --max-body 1M
ask 200 GET /v2
prints '"extensions": \["binary_tensor_data", "model_configuration", "statistics"\]'
ask 200 GET /v2/models/ssd320
prints '"shape": \[-1,3,160,160\].*"detection_boxes", "datatype": "FP32", "shape": \[-1,100,4\].*"detection_scores", "datatype": "FP32", "shape": \[-1,100\].*"detection_classes", "datatype": "INT64", "shape": \[-1,100\].*"num_detections", "datatype": "INT64", "shape": \[-1\]'
prints '"min_score": 0.3.*"classes": \["[a-z]+", "[a-z]+"\]'
ask 200 GET /
prints "default-src 'none'"
prints "fetch\('detect"

# --- memory: two programs have one set of weights ----------------------------------------------
last="serve, memory"
planned=$(sed -n 's/.*memory: \([0-9]*\).* MB of weights, \([0-9]*\).* MB of activations.*/\1 + \2/p' talk)
planned=$((${planned:-0}))
[ $planned -gt 75 ] && [ $planned -le 300 ] || complain "it plans $planned MB, wanted at most 300"
kb=$(sed -n 's/^VmRSS:[^0-9]*\([0-9]*\) kB/\1/p' /proc/$server/status)
grep -q __asan_init "$TANDEM" || [ "$kb" -le 341000 ] || complain "it takes $kb kB, wanted at most 350 MB"

# --- images: the same bytes -------------------------------------------------------------------
ask 200 POST /detect <"$image"
prints '"images": \[\{"id": 1, "width": 160, "height": 160\}\], "categories": \[\{"id": 1, .*"detections": \[\]\}$'
for options in '--min-score 0 --nms-iou 0.2 --max-per-class 2 --max-boxes 9 --only 1'; do
    expect 0 detect --weights w.safetensors $options --json "$image"
    lists out >of_detect
    query=$(echo "$options" | sed 's/ --/\&/g; s/^--//; s/ /=/g; s/only=/classes=/')
    ask 200 POST "/detect?$query" <"$image"
    lists out >of_server
    [ -s of_detect ] && cmp -s of_detect of_server || complain "detect $options says $(cat of_detect)"
done
{
    printf -- '--B\r\nContent-Disposition: form-data; name="image"; filename="a.jpg"\r\n\r\n'
    cat "$image"
    printf -- '\r\n--B--\r\n'
} >form
ask 200 POST "/detect?$query" 'Content-Type: multipart/form-data; boundary=B' <form
lists out >of_server
cmp -s of_detect of_server || complain "a form: detect says $(cat of_detect)"

# --- tensors: the images that detect saw, as numbers ------------------------------------------
infer=/v2/models/ssd320/infer
one=$((3 * 160 * 160 * 4)) two=$((2 * 3 * 160 * 160 * 4))
expect 0 dataset check set --split val --dump-tensors t.safetensors --image-size 160
head=$(od -An -v -t u4 -N 4 t.safetensors)
from=$(head -c $((head + 8)) t.safetensors | grep -ao '"images":{[^}]*' | sed 's/.*"data_offsets":\[\([0-9]*\),.*/\1/')
tail -c +$((head + from + 9)) t.safetensors | head -c $two >rows
# request TYPE SHAPE PARAMETERS ROWS: json, then them, is body, and $size that of json
request() {
    printf '{"inputs": [{"name": "images", "datatype": "%s", "shape": [%s], "parameters": {"binary_data_size": %d}}], "parameters": {%s}, "outputs": [{"name": "num_detections"}, {"name": "detection_scores"}, {"name": "detection_boxes", "parameters": {"binary_data": true}}]}' "$1" "$2" $(wc -c <"$4") "$3" >json
    size=$(wc -c <json)
    cat json "$4" >body
}
request FP32 2,3,160,160 '"min_score": 0, "max_boxes": 5' rows
ask 200 POST $infer "Inference-Header-Content-Length: $size" <body
prints '"num_detections", "datatype": "INT64", "shape": \[2\], "data": \[5,5\]\}, \{"name": "detection_scores", "datatype": "FP32", "shape": \[2,5\]'
prints '"detection_boxes", "datatype": "FP32", "shape": \[2,5,4\], "parameters": \{"binary_data_size": 160\}'
grep -ao '"shape": \[2,5\], "data": \[[^]]*' out | sed 's/.*\[//' | tr , '\n' >of_server
expect 0 detect --weights w.safetensors --min-score 0 --max-boxes 5 -b 1 --json $(find set/val -name '*.jpg' | sort | head -2)
grep -o '"score": [^}]*' out | sed 's/.* //' >of_detect
paste of_server of_detect | awk '{ d = $1 - $2; n += d * d < 1e-12 } END { exit !(NR == 10 && n == 10) }' ||
    complain "the tensors' scores are others: $(paste of_server of_detect)"

# --- what is refused ----------------------------------------------------------------------------
infer_refused() {
    request "$1" "$2" "$3" "$4"
    ask 400 POST $infer "Inference-Header-Content-Length: $size" <body
    answer_names $5
}
ask 400 POST $infer <json
answer_names binary_data_size 614400 0
head -c $one rows >short
head -c $one rows | tr '\0-\377' '\377' >nan
infer_refused FP32 2,3,160,161 '' rows '[2,3,160,161] [n,3,160,160]'
infer_refused FP32 2,3,160,160 '' short '307200 614400'
infer_refused INT64 1,3,160,160 '' short "'INT64' FP32"
infer_refused FP32 1,3,160,160 '' nan "0 'images'"
infer_refused FP32 1,3,160,160 '"max_boxes": 100000' short 'max_boxes 100000 0 1000'
ask 400 POST /detect </dev/null
answer_names empty
printf 'no image' >text
ask 400 POST /detect <text
head -c 500 "$image" >cut.jpg
ask 400 POST /detect <cut.jpg
# a PNG that says that it has 65535 x 65535 pixels
printf '\211PNG\r\n\032\n\0\0\0\rIHDR\0\0\377\377\0\0\377\377\010\002\0\0\0\071\147\116\007' >huge.png
ask 413 POST /detect <huge.png
answer_names 65535
ask 400 POST '/detect?min_score=2' <"$image"
answer_names min_score 2
ask 400 POST '/detect?classes=owl' <"$image"
answer_names "'owl'"
ask 400 POST '/detect?topk=3' <"$image"
answer_names "'topk'" min_score nms_iou
ask 404 POST /classify <"$image"
answer_names /detect
ask 405 GET /detect
prints '^Allow: POST'
ask 200 GET /metrics
prints '^tandem_requests_total\{code="404"\} 1$'
prints '^tandem_batch_rows_count [1-9]'
stop

# --- load beside broken and malformed requests, then SIGTERM in the middle ------------------------
serve --max-delay-ms 20 --max-batch 3
loads ssd320 24 6
drains ssd320 6 12
if [ "${OMP_PROC_BIND:-false}" = false ]; then
    serve --max-batch 3 --threads 2 --streams 2
    loads ssd320 24 6
    drains ssd320 6 12
fi

# --- options of the other kind ------------------------------------------------------------------
expect 2 serve --weights w.safetensors --top 3 --port 0
error_names --top classifier "'w.safetensors'" detector
expect 2 serve --weights w.safetensors --only owl --port 0
error_names --only "'w.safetensors'" "'owl'"
expect 0 init --arch resnet18 --num-classes 4 --seed 1 -o classifier.safetensors
expect 2 serve --weights classifier.safetensors --min-score 0.5 --port 0
error_names --min-score detector "'classifier.safetensors'" classifier
finish
