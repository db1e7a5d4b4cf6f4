# ctest: timeout 120
# amp.sh -- mixed precision from the command line and from the environment: what is said, written and refused
set -u
. "$TANDEM_SOURCE/tests/e2e/lib.sh"
. "$TANDEM_SOURCE/tests/e2e/lib_files.sh"

small_model small.td 32 6
net="--model small.td --threads 1 -b 2 --training"

# with VARIABLE=VALUE... COMMAND: the command with these in its environment
with() {
    while case $1 in *=*) true ;; *) false ;; esac; do
        export "$1"
        names="${names-} ${1%%=*}"
        shift
    done
    "$@"
    unset $names
    names=
}

# --- the switch -----------------------------------------------------------------------------------
expect 0 inspect graph $net
grep -Eq ':(bf16|f16)\[' out && complain "float32 has half tensors"
expect 0 inspect graph $net --precision bf16
prints '= conv2d %[^ ]*, %copy.conv1.weight|:bf16\['
cp out bf16.td
with TANDEM_AMP=bf16 expect 0 inspect graph $net
same out bf16.td
with TANDEM_AMP=bf16 expect 0 inspect graph $net --precision fp32 # what is said wins
grep -q ':bf16\[' out && complain "TANDEM_AMP wins against --precision fp32"
with TF_ENABLE_AUTO_MIXED_PRECISION=1 TANDEM_AMP=0 expect 0 inspect graph $net
grep -q ':bf16\[' out && complain "TensorFlow's variable wins against TANDEM_AMP"
with TANDEM_AMP=1 expect 0 inspect graph $net
says '^amp: .*(bf16|fp32)'
expect 2 inspect graph $net --amp --precision fp32
error_names --amp '--precision fp32' exclude
with TANDEM_AMP=2 expect 2 inspect graph $net
says "TANDEM_AMP"
with TANDEM_AMP_LEVEL=high expect 2 inspect graph $net
says "TANDEM_AMP_LEVEL"

for said in --no-amp --no-use-tf-amp; do
    with TANDEM_AMP=fp16 expect 0 inspect graph $net $said
    grep -q ':f16\[' out && complain "TANDEM_AMP wins against $said"
done
expect 2 inspect graph $net --amp --no-amp
error_names --amp --no-amp exclude
expect 2 inspect graph $net --no-amp --precision bf16
error_names --no-amp '--precision bf16' exclude

expect 0 inspect graph $net --amp-rule 1.15
log_names fp32 --amp
expect 0 inspect graph $net --amp-rule 1.15 --precision bf16
grep -q '^tandem: warning: .*--amp' err && complain "--amp-rule does nothing with --precision bf16"

# --- TF32 -----------------------------------------------------------------------------------------
expect 0 inspect graph $net --precision tf32
log_names tf32 float32 'tf32-emulated'
grep -q 'round_tf32' out && complain "--precision tf32 rounds, unasked"
expect 0 inspect graph $net --precision tf32-emulated
prints '= round_tf32 %images'
prints '= round_tf32 %conv1?.weight|= round_tf32 %[a-z0-9.]*weight'
grep -Eq ':(bf16|f16)\[' out && complain "tf32-emulated has half tensors"
expect 2 inspect graph $net --amp --precision tf32-emulated
error_names --amp '--precision tf32-emulated' exclude

# --- lists ----------------------------------------------------------------------------------------
# type OP: the type that inspect amp shows for the first such op
type() {
    awk -v op="$1" '$2 == op { print $4; exit }' out
}
expect 0 inspect amp $net --precision fp16
[ "$(type max_pool2d)" = fp16 ] || complain "max_pool2d is $(type max_pool2d)"
expect 0 inspect amp $net --precision fp16 --amp-clear-remove max_pool2d --amp-deny-add max_pool2d
[ "$(type max_pool2d)" = fp32 ] || complain "denied, max_pool2d is $(type max_pool2d)"
with TF_AUTO_MIXED_PRECISION_GRAPH_REWRITE_CLEARLIST_REMOVE=MaxPool \
    TF_AUTO_MIXED_PRECISION_GRAPH_REWRITE_BLACKLIST_ADD=MaxPool expect 0 inspect amp $net --precision fp16
[ "$(type max_pool2d)" = fp32 ] || complain "denied by TensorFlow's variables, max_pool2d is $(type max_pool2d)"
with TANDEM_AMP_LEVEL=TENSOR_CORES_ONLY expect 0 inspect amp $net --precision fp16
[ "$(type conv2d)/$(type relu)" = fp16/fp32 ] || complain "tensor cores only: $(type conv2d)/$(type relu)"
expect 2 inspect amp $net --precision fp16 --amp-deny-add max_pol2d
says "max_pol2d"
expect 2 inspect amp $net
error_names fp32
expect 0 inspect amp $net --precision fp16 --amp-level autocast --training
[ "$(type conv2d)/$(type softmax_cross_entropy)" = fp16/fp32 ] || complain "autocast: $(type conv2d)/$(type softmax_cross_entropy)"
prints '^[0-9]+ of [0-9]+ nodes in fp16$'
prints '^[1-9][0-9]* casts: [1-9][0-9]* to fp16, [1-9][0-9]* to fp32; .*[0-9]+$'
expect 2 inspect amp $net --precision fp16 --amp-level O0
error_names fp32
expect 0 inspect amp $net --precision bf16 --json
prints '"message": "Converted [0-9]+/[0-9]+ nodes to bfloat16 precision using [0-9]+ cast'

# --- the log --------------------------------------------------------------------------------------
with TANDEM_AMP_LOG_PATH=log expect 0 inspect graph $net --precision fp16
[ "$(ls log | wc -l)" = 3 ] || complain "the log has $(ls log | tr '\n' ' ')"
grep -q ':f16\[' log/amp-*-before.td && complain "the graph before has half tensors"
grep -q ':f16\[' log/amp-*-after.td || complain "the graph after has no half tensors"
for list in allow infer deny clear; do
    grep -q "^$list:" log/amp-*-lists.txt || complain "the lists lack $list"
done
: >file
expect 1 inspect graph $net --precision fp16 --amp-log-path file/below
says 'amp-log-path'

# --- what cannot be is refused, not left out ------------------------------------------------------
expect 2 inspect graph $net --precision fp16 --amp-allow-add Relu
error_names Relu
expect 2 inspect graph $net --precision bf16 --amp-level unsafe-force-all
error_names unsafe-force-all fp16
expect 0 inspect amp --model small.td --threads 1 -b 2 --precision bf16 --amp-allow-remove conv2d --amp-deny-add conv2d
grep -q 'conv2d_fused *allow' out && complain "conv2d does not name its folded form"
expect 2 benchmark --mode op --lines "$TANDEM_SOURCE/tests/ops/small.lines" --precision bf16
error_names precision
with TANDEM_AMP=x expect 0 init --model small.td -o fresh.safetensors # nothing to mix

# --- checkpoints: what is said later counts -------------------------------------------------------
drawn set --classes 6 --train 24 --val 6
run="train set --model small.td --threads 1 --workers 1 -b 4 --lr 0.01 --seed 1"
expect 0 $run --epochs 2 --run-epochs 1 --precision bf16 --workspace saved
# each half of mixed precision alone: the rewrite, the loss scaling
with TANDEM_AMP=fp16 TF_ENABLE_AUTO_MIXED_PRECISION_LOSS_SCALING=0 expect 0 $run --epochs 1 --workspace rewritten
log_names train: fp16
grep -q 'loss scale' err && complain "the rewrite alone scales the loss"
with TF_ENABLE_AUTO_MIXED_PRECISION_LOSS_SCALING=1 expect 0 $run --epochs 1 --workspace scaled
log_names train: 'loss scale' 32768
grep -q '^train: .*\(fp16\|bf16\)' err && complain "loss scaling alone rewrites the graph"
expect 0 $run --epochs 1 --precision tf32-emulated --workspace rounded --final-weights rounded.safetensors
expect 0 $run --epochs 1 --precision fp32 --workspace plain --final-weights plain.safetensors
cmp -s rounded.safetensors plain.safetensors && complain "tf32-emulated trains as float32 does"
for wish in --fp16 "--precision fp32" ""; do
    cp saved/checkpoint.safetensors from.safetensors
    expect 0 train set --resume from.safetensors $wish --workspace "again$wish"
done
expect 0 $run --epochs 2 --run-epochs 1 --workspace wide
with TANDEM_AMP=fp16 expect 0 train set --resume wide/checkpoint.safetensors --workspace wide2
grep -q '^train: .*\(fp16\|bf16\)' err && complain "the environment changed a run that goes on"
expect 0 train set --resume wide/checkpoint.safetensors --precision bf16 --workspace wide3
log_names train: bf16

# --- what is not finite is no result --------------------------------------------------------------
expect 1 $run --epochs 1 --fp16 --static-loss-scale 1e30 --max-skips 0 --workspace none
error_names 6 steps
expect 0 $run --epochs 1 --fp16 --lr 1e6 --max-skips 0 --workspace wild --final-weights wild.safetensors
warning_names 'epoch 0' 'validation loss'
[ ! -e wild/model_best.safetensors ] || complain "weights without a validation loss are taken as the best"
expect 1 evaluate set --weights wild.safetensors --precision fp16 --threads 1
error_names loss finite

finish
