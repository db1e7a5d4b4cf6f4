# progress.sh -- a training on a terminal shows how far it is, how fast, and how long it will take; else plain lines
set -u
. "$TANDEM_SOURCE/tests/e2e/lib.sh"
. "$TANDEM_SOURCE/tests/e2e/lib_files.sh"
command -v script >/dev/null || { echo "script is missing, which makes terminals"; exit 77; }

expect 0 dataset draw set --classes 2 --train 64 --val 8 --size 40 --seed 1
small_model small.td 32 2
net="--model small.td -b 2 --threads 1 --workers 1 --seed 1 --lr 0.01"
escape=$(printf '\033')

# terminal OPTIONS... -- stderr and stdout of the command on one; a line for each drawing
terminal() {
    last="on a terminal: tandem $*"
    TERM=xterm script -qec "stty cols 120; '$TANDEM' $*" /dev/null </dev/null | tr '\r' '\n' >out
    : >err
}
rate='[0-9.]+ images/s, about [0-9.]+ (s|min|h) left'
terminal train set $net --epochs 3
prints "train: epoch 0, iteration [0-9]+/32: $rate, [0-9.]+ (s|min|h) in all"
prints "train: epoch 2, iteration [0-9]+/32: $rate"
if grep -q 'epoch 2, .* in all' out; then complain "more than the last epoch"; fi
prints 'epoch 2, iteration 30/32: loss '
# a signal-free end leaves no half line; what is resumed counts from where it was
terminal train set $net --run-iters 20 --workspace part
prints "epoch 0, iteration [0-9]+/20: $rate"
terminal train set --resume part/checkpoint.safetensors --model small.td --run-iters 5
prints "epoch 0, iteration 2[1-5]/25: $rate"
TERM=dumb script -qec "'$TANDEM' train set $net --run-iters 20" /dev/null </dev/null >out
if grep -q 'left' out; then complain "drawn on a terminal that cannot"; fi

expect 0 train set $net --epochs 1
if grep -q "$escape\| left" err; then complain "drawn into a file"; fi
says '^train: epoch 0, iteration 30/32: loss '
finish
