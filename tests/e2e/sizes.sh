# ctest: timeout 600
# sizes.sh -- --image-size-schedule: another program where the size changes, with every parameter of the old one; a
# run that stops, is interrupted or killed at a boundary or beside it ends with the bytes of one never stopped
set -u
. "$TANDEM_SOURCE/tests/e2e/lib.sh"
. "$TANDEM_SOURCE/tests/e2e/lib_files.sh"
. "$TANDEM_SOURCE/tests/e2e/lib_background.sh"

drawn set --classes 4 --train 16 --val 4
net="--arch resnet18 --threads 1 --workers 2 --seed 5 --lr 0.02 -b 4 -p 1"
sizes="--image-size-schedule 0:32,1:40,2:48"

# --- what is stored, validated, said --------------------------------------------------------------
expect 0 train set $net $sizes --epochs 3 --final-state --workspace a --final-weights a.safetensors --gather-checkpoints -1
log_names train: 'epoch 1' '40 x 40' '32 x 32'
log_names train: 'epoch 2' '48 x 48' '40 x 40'
counts=$(sed -n '/^top1/p;/^val loss/p;/^train loss/p' out)
loss=$(sed -n 's/^val loss *//p' out)
header a/checkpoint.safetensors | grep -q '"tandem.image_size":"48"' || complain "the file's size is not the last one"
expect 0 evaluate set --weights a.safetensors -b 4 # at 48, which the file says
prints "^loss +$loss"

# every epoch is the one that a run of that size alone makes of the epoch before: momentum and all is carried over
last="epochs one by one"
expect 0 train set $net --image-size 32 --epochs 3 --run-epochs 1 --final-state --workspace one --final-weights one.safetensors
expect 0 train set --resume one/checkpoint.safetensors --image-size 40 --run-epochs 1 --final-state --workspace one --final-weights one.safetensors
expect 0 train set --resume one/checkpoint.safetensors --image-size 48 --run-epochs 1 --no-checkpoints --final-state --workspace one --final-weights one.safetensors
payload a.safetensors >a.payload
payload one.safetensors >one.payload
same a.payload one.payload
rm -rf one one.* a.payload

# --image-size is what is validated, whatever training ends with
expect 0 train set $net --image-size-schedule 0:48,1:32 --image-size 64 --epochs 2 --run-iters 5 --workspace b
header b/checkpoint.safetensors | grep -q '"tandem.image_size":"64"' || complain "--image-size is not the file's size"
expect 0 train set --resume b/checkpoint.safetensors --workspace b --no-checkpoints
grep -q 'x 32 after' err && complain "compiled twice at the beginning"
# a step that is never reached
expect 0 train set $net --image-size-schedule 0:32,5:48 --epochs 1 --run-iters 1 --no-checkpoints
warning_names train: 48 'epoch 5' 1

# --- stopped and resumed --------------------------------------------------------------------------
# resumes NAME OPTIONS...: from each epoch's end, by a count of steps, SIGINT and kill -9 round the boundaries
resumes() {
    name=$1
    shift
    whole="$net $sizes --epochs 3 --final-state $*"
    [ -e "$name-a" ] || expect 0 train set $whole --workspace "$name-a" --final-weights "$name-a.safetensors" --gather-checkpoints -1
    for epoch in $ends; do
        expect 0 train set --resume "$name-a/checkpoint_000$epoch.safetensors" --no-checkpoints \
            --final-weights "$name-b.safetensors" --final-state
        same "$name-a.safetensors" "$name-b.safetensors"
    done
    for where in $moments; do
        where=$(echo "$where" | tr _ ' ')
        rm -rf "$name-c"
        holds stopped "${where#* }" train set $whole --checkpoint-every 2 --workspace "$name-c"
        kill -${where%% *} $pid
        ends stopped "$([ "${where%% *}" = INT ] && echo 3 || echo 137)"
        [ -s "$name-c/checkpoint.safetensors" ] || complain "there is no checkpoint"
        expect 0 train set --resume "$name-c/checkpoint.safetensors" --no-checkpoints \
            --final-weights "$name-c.safetensors" --final-state
        same "$name-a.safetensors" "$name-c.safetensors"
    done
    rm -rf "$name-c" "$name"-[bc].safetensors
}
moments="INT_epoch_1,_iteration_1/4 KILL_epoch_1:_images"
ends='0 1'
mv a plain-a && mv a.safetensors plain-a.safetensors # the run above is the one never stopped
resumes plain
[ "$(sed -n '/^top1/p;/^val loss/p;/^train loss/p' out)" = "$counts" ] || complain "other results than '$counts'"
# four batches to an epoch, three to a step: at the first boundary a step has one of its batches
moments="KILL_epoch_2,_iteration_1/4"
ends=0
resumes summed --optimizer-batch-size 12 --use-ema 0.9 --mixup 0.2 --precision fp16
header summed-a/checkpoint_0000.safetensors | grep -q '"accumulated\.' || complain "no sums at the boundary"

# --- memory ---------------------------------------------------------------------------------------
# the largest size must fit before the first epoch begins
expect 1 train set $net -b 8 --image-size-schedule 0:32,1:64 --epochs 2 --memory-limit 1M --workspace m
[ ! -e m/checkpoint.safetensors ] || complain "began to train"
least=$(sed -n 's/.* at least \([0-9]*\)\.[0-9]* MB .*/\1/p' err)
limit=$((${least:-0} + 60))
expect 0 train set $net -b 8 --image-size-schedule 0:32,1:64 --epochs 2 --memory-limit ${limit}M --no-checkpoints --workspace m
log_names 'epoch 1' '64 x 64'

# --- refused --------------------------------------------------------------------------------------
refused() { # WORDS ARGUMENTS...
    words=$1
    shift
    expect 2 train "$@"
    error_names $words
}
refused "'0-32' EPOCH SIZE" set $net --image-size-schedule 0-32
refused '--image-size-schedule 1 0' set $net --image-size-schedule 1:32
refused 'epoch 2' set $net --image-size-schedule 0:32,2:48,2:64
refused '9000 1 8192' set $net --image-size-schedule 0:9000
for what in '--prof 2' '--trace t.json' '--amp-stats s.jsonl'; do
    refused "${what% *}" set $net $sizes $what
done
refused --image-size-schedule --data-backend synthetic --arch resnet18 $sizes
small_model small.td 32 4
refused --image-size-schedule set --model small.td $sizes
finish
