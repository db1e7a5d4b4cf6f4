#!/bin/sh
# messages.sh -- --device cuda and auto in every verb, and what is printed where something is missing
set -u
. "$TANDEM_SOURCE/tests/e2e/lib.sh"
. "$TANDEM_SOURCE/tests/e2e/lib_files.sh"
. "$TANDEM_SOURCE/tests/e2e/lib_serve.sh"
. "$TANDEM_SOURCE/tests/e2e/lib_cuda.sh"
cd "$WORK" || exit 1
unset CUDA_VISIBLE_DEVICES TANDEM_STAND_IN_FAIL

small_model small.td 32 2
drawn set --classes 2 --train 8 --val 8
image=$(find set/val -name '*.jpg' | sort | head -n 1)
run="train set --model small.td -b 4 --epochs 1 --lr 0.002 --seed 1 --threads 1 --workers 1 --training-only"

# --- what is missing: exit code 1 and one sentence that names it; auto takes the processor and says why

# missing WORD... -- of --device cuda and of --device auto, under the environment
missing() {
    expect 1 $run --no-checkpoints --device cuda
    error_names cuda "$@"
    [ "$(wc -l <err)" = 1 ] || complain "more than one line"
    expect 0 $run --no-checkpoints --device auto
    log_names auto cpu "$@"
    [ "$(grep -c '^device: ' err)" = 1 ] || complain "the device is not named once"
}

TANDEM_GPU_PLUGIN="$PWD/none.so" missing none.so 'make cuda'
TANDEM_GPU_PLUGIN="$TANDEM_BUILD/tests/libold_plugin.so" missing libold_plugin.so version 1 'make cuda'
TANDEM_GPU_PLUGIN=$(find "$TANDEM_BUILD" -maxdepth 1 -name 'libtandem.so*' -type f | head -n 1)
missing libtandem td_gpu_plugin_v1
echo 'no library' >text.so
TANDEM_GPU_PLUGIN="$PWD/text.so" missing text.so
! grep -q 'make cuda' err || complain "advises to build what is there"
export TANDEM_GPU_PLUGIN="$stand_in"
TANDEM_STAND_IN_DEVICES=-1 missing driver 580
TANDEM_STAND_IN_DEVICES=0 missing driver GPU
TANDEM_STAND_IN_CAPABILITY=7.0 missing 'stand-in 0' 7.0 7.5
TANDEM_CUDNN="$PWD/none.so" missing cuDNN none.so nvidia-cudnn-cu13 TANDEM_CUDNN
TANDEM_STAND_IN_CUDNN=90100 missing cuDNN 9.1.0 9.8 nvidia-cudnn-cu13
TANDEM_CUBLASLT="$PWD/none.so" missing cuBLASLt none.so nvidia-cublas TANDEM_CUBLASLT
TANDEM_CUBLASLT=libm.so.6 missing cuBLASLt cublasLtGetVersion nvidia-cublas
TANDEM_STAND_IN_CUBLASLT=111103 missing cuBLASLt 11.11.3 12.0 nvidia-cublas
expect 2 $run --device gpu
error_names gpu cpu cuda auto ref

# --- GPU memory: what is wanted, what is free, what helps
export TANDEM_STAND_IN_BYTES=400000
expect 1 $run --no-checkpoints --device cuda
error_names MB GPU 0.4 --batch-size --memory-limit
expect 1 evaluate set --model small.td --weights none --device cuda
unset TANDEM_STAND_IN_BYTES

# --- every verb
expect 0 $run --workspace run --device auto
log_names auto cuda 'stand-in 0' 9.0
expect 0 evaluate set --model small.td -w run/checkpoint.safetensors --device auto --threads 1
log_names auto cuda 'stand-in 0'
expect 0 classify --model small.td -w run/checkpoint.safetensors --device cuda --threads 1 "$image"
prints '%$'
expect 0 benchmark --model small.td -b 2 --iters 2 --warmup 1 --device cuda --threads 1 --json
prints '"images_per_s"'
for thing in model graph amp kernels memory; do
    expect 0 inspect $thing --model small.td --device cuda --precision fp16
done
prints '^param_bytes'
expect 0 convert run/checkpoint.safetensors small.onnx --model small.td

# a server: several requests at a time, and classify's answer
cp run/checkpoint.safetensors w.safetensors
expect 0 classify --model small.td -w w.safetensors --device cuda --threads 1 --json "$image"
best=$(sed -n 's/.*"probability": \(0\.[0-9]\{3\}\).*/\1/p' out | head -n 1)
serve --model small.td --device cuda --threads 1
for i in 1 2 3 4; do
    "$load" ask $port POST /classify <"$image" >answer.$i 2>/dev/null &
    asked="${asked:-} $!"
done
wait $asked
for i in 1 2 3 4; do
    grep -qF "\"probability\": ${best:-none}" answer.$i || complain "answer $i is not that of classify, $best"
done
stop

# a detector of random weights: as many detections on both devices, and their scores, in order, to a tenth of a percent
expect 0 init --arch ssd320 --backbone resnet18 --num-classes 3 --seed 1 -o detector.safetensors
for device in cpu cuda; do
    expect 0 detect -w detector.safetensors --image-size 160 --precision fp32 --min-score 0.001 --threads 1 --device $device "$image"
    [ "$(wc -l <out)" -gt 20 ] || complain "no detections"
    sed -n 's/^ *class [0-9]*: \([0-9.]*\)% at .*/\1/p' out >detected.$device
done
paste detected.cpu detected.cuda | awk '{ d = $1 - $2; if (NF != 2 || d > 0.11 || d < -0.11) bad = 1 } END { exit bad || NR < 20 }' ||
    complain "other detections on device cuda"

# properties of the GPU, for --describe on another machine
expect 0 inspect gpu
[ "$(cat out)" = '{"multiProcessorCount": 1}' ] || complain "no properties: $(cat out)"
expect 0 inspect gpu --json
prints '"multiProcessorCount": 1'
TANDEM_STAND_IN_DEVICES=-1 expect 1 inspect gpu
error_names cuda driver 580

expect 2 benchmark --model small.td --largest-batch --device cuda --precision fp32
error_names --largest-batch --device cuda

# --- doctor: a row for each of plug-in, driver, GPU, cuDNN, cuBLASLt and NCCL
export TANDEM_NCCL="$PWD/none.so" TANDEM_STAND_IN_DEVICES=2
expect 0 doctor
prints "^cuda_plugin +$stand_in\$"
prints '^nvidia_driver .*CUDA 13\.0'
prints '^gpu_1 +stand-in 1, compute capability 9\.0, 1\.0 GB$'
prints '^cudnn +9\.8\.0$'
prints '^cublaslt +13\.1\.0$'
prints '^nccl +.*none\.so'
TANDEM_STAND_IN_DEVICES=-1 TANDEM_STAND_IN_CUDNN=90100 expect 0 doctor --json
prints '"nvidia_driver": "none"'
prints '"gpu": "[^"]*driver[^"]*580'
prints '"cudnn": "[^"]*9\.1\.0[^"]*nvidia-cudnn-cu13'
TANDEM_CUBLASLT="$PWD/none.so" expect 0 doctor
prints '^cublaslt +.*none\.so'
export TANDEM_STAND_IN_DEVICES=1

# --- options: limits of the GPU's memory, profiles, statistics
expect 1 $run --no-checkpoints --device cuda --memory-limit 200k
error_names --memory-limit 0.2 batch
expect 0 $run --no-checkpoints --device cuda --memory-limit 1M
expect 0 $run --no-checkpoints --device cuda --prof 1 --trace trace.json
prints '^by op '
grep -q '"cudnn_conv2d' trace.json || complain "no kernel of cuDNN in the trace"
grep -q '"cublaslt_linear' trace.json || complain "no kernel of cuBLASLt in the trace"
expect 0 $run --no-checkpoints --device cuda --amp --amp-stats stats.jsonl
grep -q '"op": "conv2d_grad_w"' stats.jsonl || complain "no statistics of gradients"
expect 0 $run --no-checkpoints --device cuda --tune full --tune-cache engines
grep -q 'cublaslt_linear_3 ' engines || complain "--tune full has not measured cuBLASLt's algorithms: $(head -c 300 engines)"
grep -q 'cudnn_conv2d_3 ' engines || complain "--tune full has not measured cuDNN's engines: $(head -c 300 engines)"
cp engines before
expect 0 $run --no-checkpoints --device cuda --tune cached --tune-cache engines
cmp -s engines before || complain "--tune cached has measured"

# --- --amp is fp16 with dynamic scaling; other precisions when they are asked for
expect 0 $run --no-checkpoints --device cuda --amp
log_names amp fp16
log_names dynamic
expect 0 $run --no-checkpoints --device cuda --amp --loss-scale 128
log_names scale 128
! grep -q dynamic err || complain "the loss scale is not that of --loss-scale"
expect 0 $run --no-checkpoints --device cuda --precision bf16
log_names bf16
# tf32 rounds what tf32-emulated rounds, in the same places
for precision in tf32 tf32-emulated fp32; do
    expect 0 $run --no-checkpoints --device cuda --precision $precision --final-weights $precision.safetensors
done
cmp -s tf32.safetensors tf32-emulated.safetensors || complain "tf32 and tf32-emulated give other weights"
cmp -s tf32.safetensors fp32.safetensors && complain "tf32 trains as fp32 does"

# the same weights on both devices: top1 and loss to rounding
for precision in fp32 fp16 bf16; do
    limit=2e-4
    [ $precision != bf16 ] || limit=1e-3 # cuda rounds biases too
    for device in cpu cuda; do
        expect 0 evaluate set --model small.td -w run/checkpoint.safetensors --precision $precision --device $device --threads 1 --json
        mv out $precision.$device
    done
    for key in top1 loss; do
        sed "s/.*\"$key\": \([-0-9.e]*\).*/\1/" $precision.cpu $precision.cuda | awk -v key=$key -v limit=$limit '
            NR == 1 { a = $1 } NR == 2 { b = $1 }
            END { d = a - b; d = d < 0 ? -d : d; exit !(NR == 2 && a > 0 && d <= (key == "loss" ? limit * a : 0)) }' ||
            complain "$precision: $key on cpu and cuda: $(sed "s/.*\"$key\": \([-0-9.e]*\).*/\1/" $precision.cpu $precision.cuda | tr '\n' ' ')"
    done
done
finish
