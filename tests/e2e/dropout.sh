# ctest: timeout 300
# ctest: processors 2
# dropout.sh -- dropout and stochastic depth: the same bytes after a resume and on two ranks; another seed gives
# others; evaluation and exported files have none of it
set -u
. "$TANDEM_SOURCE/tests/e2e/lib.sh"
. "$TANDEM_SOURCE/tests/e2e/lib_files.sh"

drawn set --classes 4 --train 96 --val 16
plain_model plain.td 32 16 32 1 0.1
sed -e 's/^%c = conv2d %b,/%stop = dropout %b {p=0.2, mode=row}\n%c = conv2d %stop,/' \
    -e 's/^%f = linear %e,/%drop = dropout %e {p=0.3}\n%f = linear %drop,/' plain.td >random.td
grep -c dropout random.td | grep -qx 2 || complain "the network has no dropout"
fixed="--threads 1 --workers 1 --lr 0.01 --final-state"
all="--model random.td $fixed --epochs 2"

expect 0 train set $all --seed 7 -b 8 --workspace one --final-weights one.safetensors
expect 0 train set --model plain.td $fixed --epochs 2 --seed 7 -b 8 --no-checkpoints --final-weights other.safetensors
cmp -s one.safetensors other.safetensors && complain "dropout changes nothing"
expect 0 train set $all --seed 8 -b 8 --no-checkpoints --final-weights other.safetensors
cmp -s one.safetensors other.safetensors && complain "the seed changes nothing"

# stopped in the middle of an epoch, and resumed
expect 0 train set $all --seed 7 -b 8 --workspace part --run-iters 5
expect 0 train set --resume part/checkpoint.safetensors --workspace part $fixed --final-weights other.safetensors
same one.safetensors other.safetensors

# two ranks are one that accumulates; 4 batches in whatever ranks
expect 0 train set $all --seed 7 -b 8 --optimizer-batch-size 16 --no-checkpoints --final-weights one.safetensors
expect 0 launch --nproc 2 train set $all --seed 7 -b 8 --no-checkpoints --final-weights other.safetensors
same one.safetensors other.safetensors
expect 0 train set $all --seed 7 -b 4 --optimizer-batch-size 16 --no-checkpoints --final-weights one.safetensors
expect 0 launch --nproc 2 train set $all --seed 7 -b 4 --optimizer-batch-size 16 --reproducible --no-checkpoints \
    --final-weights other.safetensors
same one.safetensors other.safetensors

# loss scaling, half precision and averages
expect 0 train set $all --seed 7 -b 8 --precision fp16 --use-ema 0.9 --no-checkpoints --final-weights other.safetensors
expect 0 benchmark --mode training --model random.td -b 4 --iters 2 --warmup 1

# what is evaluated and written has no dropout
expect 0 evaluate set --weights one.safetensors --logits with.safetensors
expect 0 convert one.safetensors net.onnx
grep -q Dropout net.onnx && complain "the ONNX file has a Dropout"
expect 0 evaluate set --weights net.onnx --logits onnx.safetensors
expect 0 inspect kernels --model random.td
grep -q dropout out && complain "inference has dropout"
expect 0 inspect kernels --model random.td --training -b 4
grep -q native_dropout out || complain "no kernel native_dropout"
expect 0 inspect kernels --arch vgg11_bn --image-size 32 --training -b 2
[ "$(grep -c native_dropout out)" = 4 ] || complain "not two dropouts and their gradients"
expect 0 inspect kernels --arch vgg11_bn --image-size 32
grep -q dropout out && complain "inference of vgg11_bn has dropout"


# probabilities of built-in networks: an option of the network, kept by checkpoints
count_dropouts() {
    expect 0 inspect kernels --image-size 32 --training -b 2 "$@"
    grep -c native_dropout out
}
[ "$(count_dropouts --arch vgg11_bn --dropout 0)" = 0 ] || complain "--dropout 0 leaves dropouts"
[ "$(count_dropouts --arch efficientnet_b0)" = 20 ] || complain "efficientnet_b0: not ten dropouts and their gradients"
[ "$(count_dropouts --arch efficientnet_b0 --stochastic-depth 0)" = 2 ] || complain "--stochastic-depth 0 leaves some"
[ "$(count_dropouts --arch efficientnet-widese-b0)" = 2 ] || complain "efficientnet-widese-b0 drops blocks by itself"
net="--arch efficientnet_b0 --image-size 32 --dropout 0.4 --stochastic-depth 0.3"
expect 0 train set $net $fixed --epochs 1 --seed 7 -b 16 --run-iters 4 --no-checkpoints --final-weights one.safetensors
expect 0 train set $net $fixed --epochs 1 --seed 7 -b 16 --workspace net --run-iters 2
expect 0 train set --resume net/checkpoint.safetensors --workspace net $fixed --run-iters 2 --final-weights other.safetensors
same one.safetensors other.safetensors
expect 2 train set --arch vgg11 --dropout 1
error_names --dropout "1" "0" "-1"
expect 2 benchmark --arch vgg11 --dropout -0.5
error_names --dropout "-0.5"
expect 2 train set --arch efficientnet_b0 --survival-prob 0
error_names --survival-prob "0"
expect 2 train set --arch efficientnet_b0 --survival-prob 0.9 --stochastic-depth 0.1
error_names --survival-prob --stochastic-depth

# PyTorch's export in training mode: two Dropouts, with masks that nothing reads
expect 0 inspect graph --model "$TANDEM_SOURCE/tests/fuzz/corpus/onnx/dropout.onnx"
grep -c '= dropout .* {p=0.[23]0' out | grep -qx 2 || complain "not two dropouts"

# what a file may not have
sed 's/p=0.3/p=1/' random.td >bad.td
expect 1 train set --model bad.td $fixed --epochs 1 --no-checkpoints
says "bad.td:.*dropout: p is 1, wanted 0 to less than 1"
