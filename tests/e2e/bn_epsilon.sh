# ctest: timeout 180
# bn_epsilon.sh -- --bn-epsilon: what batch norms add to the variance; the weight file keeps it, every job that reads the
# file uses it, and networks without batch norms have none
set -u
. "$TANDEM_SOURCE/tests/e2e/lib.sh"
. "$TANDEM_SOURCE/tests/e2e/lib_files.sh"

drawn set --classes 2 --train 8 --val 4
image=$(find set/val -name '*.jpg' | sort | head -1)
net="--arch resnet18 --image-size 32"
step="$net --threads 1 --workers 1 --seed 1 -b 4 --lr 0.01 --run-iters 2 --no-checkpoints"

# --- the graph, and files ------------------------------------------------------------------------
expect 0 inspect graph $net --bn-epsilon 0.25
prints 'batch_norm_infer .*eps=0.25'
if grep -q 'eps=1e-05' out; then complain "not every norm has it"; fi
expect 0 init $net --num-classes 2 --seed 1 -o own.safetensors
header own.safetensors >out
if grep -q bn_epsilon out; then complain "the network's own epsilon is stored"; fi
expect 0 init $net --num-classes 2 --seed 1 --bn-epsilon 0.25 -o other.safetensors
header other.safetensors >out
prints '"tandem.bn_epsilon":"0.25"'
payload own.safetensors >one
payload other.safetensors >two
same one two
expect 0 inspect checkpoint other.safetensors
prints 'tandem.bn_epsilon: 0.25'
expect 0 convert other.safetensors other.pth
expect 0 convert other.pth back.safetensors
header back.safetensors >out
prints '"tandem.bn_epsilon":"0.25"'

# --- training ------------------------------------------------------------------------------------
expect 0 train set $step --workspace a --final-weights a.safetensors
expect 0 train set $step --bn-epsilon 0.25 --workspace b --final-weights b.safetensors
payload a.safetensors >one
payload b.safetensors >two
if cmp -s one two; then complain "training does not depend on it"; fi
header b.safetensors >out
prints '"tandem.bn_epsilon":"0.25"'
expect 0 train set $step --pretrained-weights b.safetensors --workspace c --final-weights c.safetensors
header c.safetensors >out
prints '"tandem.bn_epsilon":"0.25"'
expect 0 train set $step --pretrained-weights b.safetensors --bn-epsilon 1e-5 --workspace d --final-weights d.safetensors
warning_names bn-epsilon 0.25

# --- every job that reads weights: the file's value, as if it was given -----------------------------
loss_of() {
    expect 0 evaluate set --threads 1 --json "$@"
    grep -o '"loss": [0-9.]*' out
}
[ "$(loss_of --weights b.safetensors)" != "$(loss_of --weights b.safetensors --bn-epsilon 1e-5)" ] ||
    complain "the file's epsilon has no effect on evaluate"
[ "$(loss_of --weights own.safetensors --bn-epsilon 0.25)" = "$(loss_of --weights other.safetensors)" ] ||
    complain "evaluate: the file's epsilon and the option differ"
[ "$(loss_of --weights back.safetensors)" = "$(loss_of --weights other.safetensors)" ] || complain "PyTorch's file loses it"
expect 0 classify "$image" --weights b.safetensors --threads 1 --json
cp out one
expect 0 classify "$image" --weights b.safetensors --threads 1 --json --bn-epsilon 1e-5
if cmp -s out one; then complain "classify does not depend on it"; fi
expect 0 convert b.safetensors b.onnx
grep -aFq tandem.bn_epsilon b.onnx || complain "b.onnx does not name it"
expect 0 convert b.onnx from_onnx.safetensors
header from_onnx.safetensors >out
prints '"tandem.bn_epsilon":"0.25"'
expect 0 convert b.safetensors b5.onnx --bn-epsilon 1e-5
if cmp -s b.onnx b5.onnx; then complain "convert does not depend on it"; fi
expect 0 quantize b.safetensors set --threads 1 -o q.safetensors
expect 0 quantize b.safetensors set --threads 1 -o q5.safetensors --bn-epsilon 1e-5
if cmp -s q.safetensors q5.safetensors; then complain "quantize does not depend on it"; fi
header q.safetensors >out
prints '"tandem.bn_epsilon":"0.25"'

# --- detectors -----------------------------------------------------------------------------------
expect 0 init --arch ssd320 --backbone resnet18 --image-size 160 --num-classes 2 --seed 1 --bn-epsilon 0.25 -o ssd.safetensors
expect 0 detect --weights ssd.safetensors --threads 1 --min-score 0 --max-boxes 3 --json "$image"
cp out one
expect 0 detect --weights ssd.safetensors --threads 1 --min-score 0 --max-boxes 3 --json "$image" --bn-epsilon 1e-3
if cmp -s out one; then complain "detect does not depend on it"; fi

# --- --bn-momentum: running statistics after one step from 0 and 1 are that share of the batch's ------------
expect 0 inspect graph --arch efficientnet-b0 --image-size 32 --training
prints 'batch_norm_update .*momentum=0.01'
expect 0 inspect graph --arch efficientnet-b0 --image-size 32 --training --bn_momentum 0.25
prints 'batch_norm_update .*momentum=0.25'
if grep -q 'momentum=0.01' out; then complain "not every norm has it"; fi
one_step="$net --threads 1 --workers 1 --seed 1 -b 4 --lr 0.01 --run-iters 1 --no-checkpoints"
for momentum in 0.1 0.5; do
    expect 0 train set $one_step --bn-momentum $momentum --workspace m --final-weights m$momentum.safetensors --overwrite
done
expect 0 train set $one_step --workspace m --final-weights m.safetensors --overwrite
same m.safetensors m0.1.safetensors
payload m0.1.safetensors >one
payload m0.5.safetensors >two
if cmp -s one two; then complain "training does not depend on it"; fi
expect 0 inspect graph --arch ssd320 --backbone resnet18 --image-size 160 --training --bn-momentum 0.25
if grep 'batch_norm_update' out | grep -v 'momentum=0.25'; then complain "a detector's norm has its own"; fi

# --- refused, or without effect --------------------------------------------------------------------
expect 2 inspect graph $net --bn-epsilon -0.5
error_names bn-epsilon 0 1
expect 2 inspect graph $net --bn-epsilon 2
error_names bn-epsilon
expect 2 inspect graph $net --bn-momentum -0.5
error_names bn-momentum 0 1
expect 2 inspect graph $net --bn-momentum 1.5
error_names bn-momentum
expect 2 inspect graph --arch ssd320 --bn-momentum 0.1 --bn-decay 0.9
error_names --bn-momentum --bn-decay
expect 0 inspect graph --arch vit_b_16 --image-size 32 --bn-momentum 0.25
log_names --bn-momentum vit_b_16
expect 0 evaluate set --weights b.safetensors --threads 1 --bn-momentum 0.25
log_names --bn-momentum
expect 0 inspect graph --arch vit_b_16 --image-size 32 --bn-epsilon 0.25
log_names --bn-epsilon vit_b_16
small_model small.td 32 2
expect 0 inspect graph --model small.td --bn-epsilon 0.25
log_names --bn-epsilon
tidy .
finish
