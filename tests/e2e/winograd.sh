# winograd.sh -- --winograd off: training, evaluation and inference are the direct ones to the bit; auto differs from them
# in the last digits only; ranks and memory limits change nothing
set -u
. "$TANDEM_SOURCE/tests/e2e/lib.sh"
. "$TANDEM_SOURCE/tests/e2e/lib_files.sh"
. "$TANDEM_SOURCE/tests/e2e/lib_serve.sh"

drawn set --classes 2 --train 8 --val 4 --size 64
net="--arch resnet18 --image-size 64 --threads 1"

# differ A B: two results that are not the same bytes
differ() {
    if cmp -s "$1" "$2"; then complain "--winograd off changes nothing"; fi
}

# --- train: 2 steps ---------------------------------------------------------------------------
job="set $net --workers 1 --seed 1 -b 4 --run-iters 2 --lr 0.01 --training-only --no-checkpoints"
for form in "auto" "off" "auto --skip-passes winograd"; do
    expect 0 train $job --winograd $form --workspace w --final-weights "$(echo "$form" | tr -cd a-z).safetensors" --json
    cp out "$(echo "$form" | tr -cd a-z).json"
done
cmp -s off.safetensors autoskippasseswinograd.safetensors || complain "off and --skip-passes winograd train apart"
differ auto.safetensors off.safetensors
loss() {
    sed -n 's/.*"train_loss": \([0-9.e+-]*\).*/\1/p' "$1"
}
awk "BEGIN { d = $(loss auto.json) - $(loss off.json); exit !(d < 1e-3 && d > -1e-3) }" ||
    complain "losses $(loss auto.json) and $(loss off.json)"
# in bf16 layers as small as these stay direct where the processor multiplies it, with one image a batch
if grep -q avx512_bf16 /proc/cpuinfo; then
    for form in auto off; do
        expect 0 train $(echo "$job" | sed 's/-b 4/-b 1/') --precision bf16 --winograd $form --workspace w --final-weights bf16_$form.safetensors
    done
    same bf16_auto.safetensors bf16_off.safetensors
fi

# --- ranks: the same bytes --------------------------------------------------------------------
cat >wide.td <<'END'
%images:f32[1,3,32,32] = input
%conv1.weight:f32[64,3,3,3] = param {init=normal, scale=0.2}
%conv2.weight:f32[64,64,3,3] = param {init=normal, scale=0.06}
%conv3.weight:f32[64,64,3,3] = param {init=normal, scale=0.06}
%fc.weight:f32[2,64] = param {init=uniform, scale=0.1}
%fc.bias:f32[2] = param
%a = conv2d %images, %conv1.weight {pad=1}
%b = relu %a
%c = conv2d %b, %conv2.weight {pad=1}
%d = relu %c
%e = conv2d %d, %conv3.weight {pad=1}
%f = relu %e
%g = global_avg_pool %f
%h = linear %g, %fc.weight, %fc.bias
output logits = %h
END
expect 0 inspect kernels --model wide.td --training -b 4 --threads 1
prints 'conv2d_winograd_grad_w '
fixed="--model wide.td --threads 1 --workers 1 --seed 7 --lr 0.01 --final-state --no-checkpoints --training-only --epochs 2"
expect 0 train set $fixed -b 4 --optimizer-batch-size 8 --workspace w --final-weights one.safetensors
expect 0 launch --nproc 2 train set $fixed -b 4 --workspace w --final-weights two.safetensors
same one.safetensors two.safetensors

# --- bf16, with larger images -------------------------------------------------------------------
if ! grep -q amx_bf16 /proc/cpuinfo; then # which multiplies so fast that all stays direct
    expect 0 inspect kernels --model wide.td --training -b 4 --threads 1 --precision bf16
    prints 'conv2d_winograd_grad_w '
    for form in auto off; do
        expect 0 train set $fixed -b 4 --precision bf16 --winograd $form --workspace w --final-weights bf16_$form.safetensors
    done
    differ bf16_auto.safetensors bf16_off.safetensors
fi

# --- memory limits ------------------------------------------------------------------------------
expect 1 train $job -b 8 --memory-limit 10M
least=$(sed -n 's/.*at least \([0-9]*\)\.[0-9]* MB.*/\1/p' err)
expect 0 train $job -b 8 --workspace w --final-weights one.safetensors
expect 0 train $job -b 8 --workspace w --final-weights two.safetensors --memory-limit $((${least:-0} + 3))M
says 'recomputing [0-9]+ results'
same one.safetensors two.safetensors

# --- what the compiler decides -----------------------------------------------------------------
expect 0 inspect kernels $net --training -b 4
prints 'conv2d_winograd +native_conv2d_winograd'
prints 'winograd_filter +native_winograd_filter'
prints 'conv2d_winograd_grad_w +native_conv2d_winograd_grad_w'
expect 0 inspect kernels $net --training -b 4 --winograd off
if grep -q winograd_filter out; then complain "filters are transformed nevertheless"; fi
echo 'conv2d x=2x64x32x32 w=64x64x3x3 pad=1' >one.lines
expect 0 benchmark --mode op --lines one.lines --filter 'conv2d*' --threads 1 --iters 1 --warmup 0
prints ' conv2d_winograd +native_conv2d_winograd'
expect 0 benchmark --mode op --lines one.lines --filter 'conv2d*' --threads 1 --iters 1 --warmup 0 --winograd off
prints ' conv2d_grad_x +dnnl_conv_grad_x'
echo 'conv2d x=2x128x56x56 w=128x128x3x3 pad=1 stride=2' >two.lines
expect 0 benchmark --mode op --lines two.lines --filter 'conv2d*' --threads 1 --iters 1 --warmup 0
prints ' conv2d_winograd_grad_x +native_conv2d_winograd_grad_x F.4x4,3x3./2 '
expect 0 benchmark $net -b 4 --iters 1 --warmup 0
prints '^bound +[0-9.]+ images/s: .* direct '
prints '^chosen bound +[0-9.]+ images/s: '
expect 0 benchmark $net -b 4 --iters 1 --warmup 0 --winograd off
prints '^bound +[0-9.]+ images/s: .* direct '
if grep '^chosen' out; then complain "another algorithm is chosen nevertheless"; fi
expect 2 train set --winograd on
error_names --winograd "'on'" auto off

# --- inference ---------------------------------------------------------------------------------
cp off.safetensors w.safetensors
image=$(find set/val -name '*.jpg' | sort | head -1)
for form in auto off; do
    expect 0 evaluate set --weights w.safetensors --threads 1 --winograd $form --logits $form.logits
    expect 0 classify "$image" --weights w.safetensors --threads 1 --winograd $form --json
    cp out $form.classes
    serve --threads 1 --winograd $form
    ask 200 POST /classify "Content-Type: image/jpeg" <"$image"
    cp out $form.served
    stop
done
expect 0 evaluate set --weights w.safetensors --threads 1 --skip-passes winograd --logits skipped.logits
cmp -s off.logits skipped.logits || complain "off and --skip-passes winograd evaluate apart"
differ auto.logits off.logits
differ auto.classes off.classes
differ auto.served off.served

"$TANDEM" dataset draw boxes --boxes --classes 2 --train 2 --val 1 --size 160 >draw.log 2>&1 || complain "$(cat draw.log)"
expect 0 train boxes --arch ssd320 --backbone resnet18 --image-size 160 --threads 1 --workers 1 --seed 3 -b 2 --num-train-steps 1 \
    --training-only --no-checkpoints --workspace w --final-weights d.safetensors
for form in auto off; do
    expect 0 detect boxes/val/*.jpg --weights d.safetensors --threads 1 --winograd $form --min-score 0 --json
    cp out $form.boxes
done
differ auto.boxes off.boxes
finish
