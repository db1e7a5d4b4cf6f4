# ctest: timeout 240
# freeze.sh -- fine-tuning with frozen weights: what is frozen keeps its bytes, statistics move unless --freeze-bn,
# averages, accumulation, mixed precision and a memory limit beside it, going on with the same and with other patterns
set -u
. "$TANDEM_SOURCE/tests/e2e/lib.sh"
. "$TANDEM_SOURCE/tests/e2e/lib_files.sh"

drawn set --classes 4 --train 48 --val 12
drawn other --classes 3 --train 24 --val 6 --seed 5
small_model small.td 32 4
fixed="--threads 1 --workers 1 --seed 1 --lr 0.01 -b 8"
small="--model small.td $fixed"
body='conv*,bn*'

# kept FILE FILE NAME...; moved FILE FILE NAME...
kept() {
    a=$1 b=$2
    shift 2
    for name; do
        tensor "$a" "$name" >x && tensor "$b" "$name" >y
        [ -s x ] || complain "$a has no $name"
        cmp -s x y || complain "$name of $a and of $b differ"
    done
}
moved() {
    a=$1 b=$2
    shift 2
    for name; do
        tensor "$a" "$name" >x && tensor "$b" "$name" >y
        if cmp -s x y; then complain "$name of $a and of $b are equal"; fi
    done
}

# --- weights to begin with -----------------------------------------------------------------------
expect 0 train set $small --epochs 1 --workspace first --final-weights first.safetensors
weights="conv1.weight bn1.weight bn1.bias conv2.weight bn2.weight bn2.bias"
statistics="bn1.running_mean bn1.running_var bn2.running_mean bn2.running_var"
start="--pretrained-weights first.safetensors"

# --- frozen and not, with all that a step may have -----------------------------------------------
n=0
for extra in '' '--optimizer-batch-size 16' '--precision fp16 --use-ema 0.9' '--precision bf16 --optimizer rmsprop' \
    '--precision fp16 --optimizer-batch-size 16 --use-ema 0.9' '--memory-limit 4G'; do
    n=$((n + 1))
    run="train set $small --epochs 1 $start $extra --workspace w$n"
    expect 0 $run --freeze "$body" --final-weights a.safetensors
    log_names train: 6 8 5136 5268
    kept first.safetensors a.safetensors $weights
    moved first.safetensors a.safetensors fc.weight fc.bias $statistics
    expect 0 $run --overwrite --freeze "$body" --freeze-bn --final-weights a.safetensors
    log_names train: 2
    kept first.safetensors a.safetensors $weights $statistics
    moved first.safetensors a.safetensors fc.weight fc.bias
    if header w$n/checkpoint.safetensors | grep -q '"momentum.conv1'; then complain "a velocity of what is frozen"; fi
done
expect 0 train set $small --epochs 1 $start --workspace w --freeze 'conv1*,bn1*' --freeze-bn --final-weights a.safetensors
kept first.safetensors a.safetensors conv1.weight bn1.weight bn1.bias bn1.running_mean bn1.running_var
moved first.safetensors a.safetensors conv2.weight bn2.weight bn2.running_mean fc.weight

# averages: what is frozen is its own
kept w5/checkpoint.safetensors first.safetensors conv1.weight
tensor w5/checkpoint.safetensors ema.conv1.weight >x
tensor first.safetensors conv1.weight >y
same x y
expect 0 evaluate set --weights w5/checkpoint.safetensors --use-ema --json
expect 0 convert --ema w5/checkpoint.safetensors ema.safetensors
kept first.safetensors ema.safetensors $weights

# --- going on ------------------------------------------------------------------------------------
whole="$small --epochs 3 $start --freeze $body --use-ema 0.9 --final-state"
expect 0 train set $whole --workspace whole --gather-checkpoints -1 --final-weights whole.safetensors
expect 0 train set --resume whole/checkpoint_0000.safetensors --workspace again --final-weights again.safetensors \
    --final-state
same whole.safetensors again.safetensors
log_names train: 6 8
expect 0 train set --resume whole/checkpoint_0000.safetensors --workspace again --overwrite --freeze 'conv1*' \
    --final-weights again.safetensors
log_names --freeze "'conv*,bn*'" "'conv1*'"
moved whole.safetensors again.safetensors conv2.weight
kept whole.safetensors again.safetensors conv1.weight
expect 0 train set --resume again/checkpoint.safetensors --workspace again --epochs 4 --freeze '' \
    --final-weights more.safetensors
moved again.safetensors more.safetensors conv1.weight
expect 0 train set --resume again/checkpoint.safetensors --workspace again --epochs 5 --freeze "$body" \
    --final-weights less.safetensors
kept more.safetensors less.safetensors conv1.weight conv2.weight
expect 0 train set $small --epochs 2 $start --freeze "$body" --optimizer-batch-size 32 --workspace inside \
    --gather-checkpoints -1
expect 1 train set --resume inside/checkpoint_0000.safetensors --freeze 'conv1*' --workspace inside
error_names --freeze

# --- other classes -------------------------------------------------------------------------------
net="--arch resnet18 --image-size 32 $fixed --epochs 1"
expect 0 init --arch resnet18 --num-classes 4 --seed 3 -o weights.safetensors
expect 0 train other $net --pretrained-weights weights.safetensors --freeze 'conv1*,bn1*,layer*' --workspace tuned
log_names 4 3 fc
log_names train: 60 62
kept weights.safetensors tuned/checkpoint.safetensors conv1.weight layer4.1.conv2.weight
expect 0 inspect checkpoint tuned/checkpoint.safetensors
prints "tandem.classes: \\[\"$(ls other/train | paste -s -d, | sed 's/,/", "/g')\"\\]"
expect 0 evaluate other --weights tuned/checkpoint.safetensors
expect 0 classify --weights tuned/checkpoint.safetensors "$(find other/val -name '*.jpg' | head -1)"
[ "$(wc -l <out)" = 4 ] || complain "not three classes of one image"
expect 0 train other $net --pretrained-weights weights.safetensors --freeze 'fc.*' --run-iters 0 --workspace tuned --overwrite
log_names --freeze "'fc.*'"

# --- refused -------------------------------------------------------------------------------------
expect 2 train set $small --epochs 1 --workspace no --freeze 'conv1*,bm1.*'
error_names "'bm1.*'" "'bn1.*'"
expect 2 train set $small --epochs 1 --workspace no --freeze '*'
error_names 8 weights
expect 2 train set $small --epochs 1 --workspace no --freeze-bn
error_names --freeze-bn --freeze
expect 2 train set $small --epochs 1 --workspace no --freeze fc.weight --freeze-bn
[ ! -e no/checkpoint.safetensors ] || complain "a refused run saved"
finish
