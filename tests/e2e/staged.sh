# staged.sh -- scripts/staged: a plan cut into stages ends in the weights of one run, and says what is wrong
set -u
. "$TANDEM_SOURCE/tests/e2e/lib.sh"
expect 0 dataset draw set --classes 2 --train 12 --val 4 --size 40
options="set --arch resnet18 --image-size 32 -b 4 --epochs 3 --lr 0.01 --lr-schedule cosine --warmup 1 --seed 5 --threads 1 --workers 1"

expect 0 train $options --workspace whole --final-weights whole.safetensors
stage() {
    last="staged $*"
    code=0
    sh "$TANDEM_SOURCE/scripts/staged" "$@" >out 2>err || code=$?
}
stage 2 1 $options --workspace parts
[ $code = 1 ] || complain "stage 2 without stage 1: exit code $code"
log_names "'parts/checkpoint_1.safetensors'"
for n in 1 2; do
    stage $n 1 $options --workspace parts
    [ $code = 0 ] || complain "exit code $code"
    [ -f parts/checkpoint_$n.safetensors ] || complain "no checkpoint of stage $n"
done
stage 3 1 $options --workspace=parts --final-weights parts.safetensors
[ $code = 0 ] || complain "exit code $code"
cmp -s whole.safetensors parts.safetensors || complain "three stages and one run differ"
for wrong in '0 1 x' 'a 1 x' '1 0 x' '1 1'; do
    stage $wrong
    [ $code = 2 ] || complain "exit code $code"
    says "^usage: scripts/staged"
done
finish
