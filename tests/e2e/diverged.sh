# diverged.sh -- a training that diverges: nothing that is no finite number is saved, the last good files stay to the
# byte, the exit code is 1 and the message names the step and the first bad tensor
set -u
. "$TANDEM_SOURCE/tests/e2e/lib.sh"
. "$TANDEM_SOURCE/tests/e2e/lib_files.sh"

drawn set --classes 2 --train 32 --val 8
small_model small.td 32 2
net="--model small.td -b 8 --threads 1 --workers 1 --seed 1"
diverged="iteration [0-9]+: .*loss|after step [0-9]+: .*[0-9]+ .*[0-9]+ .*'[a-z0-9._]+'"

expect 0 train set $net --use-ema 0.9 --epochs 3 --run-epochs 1 --lr 0.01 --workspace run --gather-checkpoints -1
cp -r run before
expect 1 train set --resume run/checkpoint.safetensors --lr 1e6 --final-weights final.safetensors
says "^tandem: error: .*($diverged)"
for file in checkpoint model_best checkpoint_0000; do
    same before/$file.safetensors run/$file.safetensors
done
[ ! -e final.safetensors ] || complain "final weights that are no numbers"
tidy run

# Variances overflow while what they normalise, and so the loss, is still finite: saving finds them.  What was saved
# after the step before can be read.
expect 1 train set $net --epochs 4 --lr 1e6 --checkpoint-every 1 --workspace steps
error_names "'steps/checkpoint.safetensors'"
says "^tandem: error: .*($diverged)"
tidy steps
"$TANDEM" evaluate set --weights steps/checkpoint.safetensors >out 2>err # its loss may be infinite
last="evaluate the step before"
if grep -q "tensor '" err; then complain "the checkpoint has values that are no numbers"; fi

# a run that has nothing to go back to, or saves nothing on the way
for what in '' '--no-checkpoints --final-weights final.safetensors' '--training-only --no-checkpoints'; do
    rm -rf gone
    expect 1 train set $net --epochs 1 --lr 1e6 --workspace gone $what
    says "^tandem: error: .*($diverged)"
    if ls gone | grep safetensors >&2; then complain "a diverged run wrote weights"; fi
    [ ! -e final.safetensors ] || complain "final weights that are no numbers"
done
finish
