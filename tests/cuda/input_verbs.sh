# ctest: timeout 600
# input_verbs.sh -- what input.sh checks for training and evaluation of classifiers, for the other verbs and detectors:
# images go to the device as bytes where a loader with floats would have rounded them to bytes, with the same results;
# SSD320's, which are resized to floats, as floats
set -u
. "$TANDEM_SOURCE/tests/e2e/lib.sh"
. "$TANDEM_SOURCE/tests/e2e/lib_files.sh"
. "$TANDEM_SOURCE/tests/e2e/lib_serve.sh"
. "$TANDEM_SOURCE/tests/e2e/lib_cuda.sh"
. "$TANDEM_SOURCE/tests/e2e/lib_cuda_input.sh"
cd "$WORK" || exit 1
drawn set --classes 2 --train 8 --val 6
small_model small.td 32 2
fixed="--threads 1 --device cuda"

# --- classify: six images in two batches of three
expect 0 train set --model small.td -b 4 --run-iters 1 --lr 0.01 --seed 3 --threads 1 --training-only --workspace run
cp run/checkpoint.safetensors w.safetensors
BYTES=9216
for option in '--precision fp32' --amp; do
    as_bytes 2 classify set/val -w w.safetensors --model small.td $fixed -b 3 --json $option
done
prints '"probability"'

# --- serve: an image, and the same as the floats of an infer request, get the same answer; one batch each, after those
# that are timed at the start
image=$(find set/val -name '*.jpg' | sort | head -n 1)
expect 0 dataset check set/val --dump-tensors t.safetensors --image-size 32
tail -c $((6 * 12288)) t.safetensors | head -c 12288 >row
printf '{"inputs": [{"name": "images", "datatype": "FP32", "shape": [1,3,32,32], "parameters": {"binary_data_size": 12288}}], "outputs": [{"name": "probabilities", "parameters": {"classification": 1}}]}' >json
cat json row >body
for input in u8 f32; do
    rm -f copies.$input
    TANDEM_INPUT=$input TANDEM_STAND_IN_COPIES=copies.$input
    export TANDEM_INPUT TANDEM_STAND_IN_COPIES
    serve --model small.td --max-batch 2 $fixed
    copied $input 12288 4 # a row of floats, in four runs that are timed: for infer requests
    copied $input 3072 $(($([ $input = u8 ] && echo 4 || echo 0)))
    before=$(wc -l <copies.$input)
    ask 200 POST /classify <"$image"
    sed -n '/^{/,$p' out >answer.$input
    [ -s answer.$input ] || complain "no answer"
    tail -n +$((before + 1)) copies.$input >copies.image
    size=$(wc -c <json)
    ask 200 POST /v2/models/small.td/infer "Inference-Header-Content-Length: $size" <body
    tail -n +$((before + 1)) copies.$input | tail -n +$(($(wc -l <copies.image) + 1)) >copies.tensor
    stop
    unset TANDEM_INPUT TANDEM_STAND_IN_COPIES
    copied tensor 12288 1
    copied image $([ $input = u8 ] && echo 3072 || echo 12288) 1
    sed -n 's/.*"data": \["\([0-9.]*\):.*/\1/p' out >infer.$input
    [ -s infer.$input ] || complain "no probability"
done
cmp answer.u8 answer.f32 >&2 || complain "another answer to an image"
cmp infer.u8 infer.f32 >&2 || complain "another answer to a tensor"

# --- benchmark: three runs of a data set, and of synthetic images, which are noise
BYTES=9216 # of 3 images: batches of 4 leave 2, which are copied ahead and then skipped
for mode in training inference; do
    for input in u8 f32; do
        bytes=$([ $input = u8 ] && echo $BYTES || echo $((4 * BYTES)))
        run $input benchmark set --model small.td --mode $mode -b 3 --iters 2 --warmup 1 --workers 1 $fixed --raport-file report.$input
        copied $input $bytes 3
        run $input benchmark --model small.td --mode $mode -b 3 --iters 2 --warmup 1 $fixed
        copied $input $bytes 3
    done
    [ $mode = training ] || continue
    for input in u8 f32; do
        grep -o '"train.loss": [0-9.]*' report.$input | tail -n 1 >loss.$input
    done
    [ -s loss.u8 ] || complain "no loss"
    cmp loss.u8 loss.f32 >&2 || complain "another loss"
done
run usual benchmark --model small.td -b 3 --iters 2 --warmup 1 $fixed --crop tf
copied usual $((4 * BYTES)) 3

# --- SSD300: training with its validation, evaluate, detect.  A step's labels and targets are in the copy of its images
"$TANDEM" dataset draw boxes --boxes --classes 2 --train 1 --val 1 --size 64 >/dev/null || exit 1
ssd300="--arch ssd300 --backbone resnet18 -b 1 --workers 1 $fixed --precision fp32"
TARGETS=$((8732 * 24)) BYTES=270000
run_both train boxes $ssd300 --seed 3 --epochs 1 --lr 0.001 --no-checkpoints --final-state --final-weights final.safetensors
for part in 0 $TARGETS; do # validation, training
    copied f32 $((4 * BYTES + part)) 1
    copied usual $((BYTES + part)) 1
    copied usual $((4 * BYTES + part)) 0
done
prints '^train loss'
mv final.safetensors ssd300.safetensors
run usual evaluate boxes -w ssd300.safetensors -b 1 --workers 1 $fixed --precision fp32
copied usual $BYTES 1
as_bytes 1 detect boxes/val/* -w ssd300.safetensors --min-score 0.01 $fixed --precision fp32 --json
prints '"bbox"'
run usual benchmark $ssd300 --mode inference --iters 1 --warmup 0
copied usual $BYTES 1

# --- SSD320
BYTES=76800
ssd320="--arch ssd320 --backbone resnet18 --image-size 160"
expect 0 init $ssd320 --num-classes 2 --seed 1 -o ssd320.safetensors
run u8 detect boxes/val/* -w ssd320.safetensors --min-score 0.01 $fixed --precision fp32 --json
prints '"bbox"'
copied u8 $((4 * BYTES)) 1
run usual benchmark $ssd320 --mode inference -b 1 --iters 1 --warmup 0 $fixed
copied usual $((4 * BYTES)) 1
finish
