# ctest: timeout 600
# resume.sh -- a run that was stopped or killed and resumed ends with the bytes of a run never stopped: SIGINT,
# SIGTERM and SIGUSR1 inside an epoch, SIGKILL at 50 moments, half of them while a checkpoint is being written; other
# worker and thread counts; a second signal ends at once
set -u
. "$TANDEM_SOURCE/tests/e2e/lib.sh"
. "$TANDEM_SOURCE/tests/e2e/lib_files.sh"
. "$TANDEM_SOURCE/tests/e2e/lib_background.sh"

drawn set --classes 4 --train 96 --val 16
drawn few --classes 4 --train 32 --val 8
fixed="--threads 1 --workers 1 --seed 7 --lr 0.01 -b 8 -p 1 --final-state"

# --- SIGINT inside an epoch, a real network ------------------------------------------------------
whole="--arch resnet18 --image-size 32 $fixed --epochs 2 --lr-schedule cosine --label-smoothing 0.1 --nesterov"
expect 0 train few $whole --workspace straight --no-checkpoints --final-weights straight.safetensors
holds int 'epoch 0, iteration 2/4' train few $whole --workspace int --final-weights int.safetensors
kill -INT $pid
ends int 3
says "^tandem: stopped: .*'int/checkpoint.safetensors'"
prints '^steps +[0-9]+$'
[ ! -e int.safetensors ] || complain "final weights of a run that has not ended"
[ -s int/checkpoint.safetensors ] || complain "no checkpoint"
printf 'DLLL {"timestamp": "17' >>int/experiment_raport.json # as kill -9 leaves it
expect 0 train few $whole --workspace int --resume int/checkpoint.safetensors --final-weights int.safetensors
# the report goes on where the first run ended
report_is_sound int/experiment_raport.json
[ -n "$(metric int/experiment_raport.json '0, 2' train.loss)" ] || complain "the first run's steps are gone"
[ -n "$(metric int/experiment_raport.json 1 val.top1)" ] || complain "no validation of the second run"
log_names train: "'int/checkpoint.safetensors'" 0
same straight.safetensors int.safetensors
tidy int
# its config.yaml is that of the whole run
grep -v 'final_weights\|workspace' int/config.yaml >whole.yaml
grep -q '^  resume: null$' whole.yaml || complain "config.yaml of a resumed run: $(grep resume whole.yaml)"
expect 0 train --config whole.yaml --workspace whole --no-checkpoints --final-weights int.safetensors
same straight.safetensors int.safetensors
rm -f straight.safetensors int.safetensors int/*.safetensors

# --- a small network from here on: steps of some ten milliseconds ---------------------------------
small_model small.td 64 4
whole="--model small.td $fixed --epochs 4 --lr-schedule cosine --warmup 1"
expect 0 train set $whole --workspace a --final-weights straight.safetensors
counts=$(sed -n '/^top1/p;/^val loss/p;/^train loss/p' out)

# SIGTERM, and a run stopped once more while it resumes, with other workers each time
holds term 'epoch 1, iteration 3/12' train set $whole --workspace term --final-weights term.safetensors
kill -TERM $pid
ends term 3
says '^tandem: stopped: '
holds term 'epoch 2, iteration 2/12' train set $whole --workspace term --resume term/checkpoint.safetensors --workers 3 --prefetch 5 \
    --final-weights term.safetensors
kill -USR1 $pid # as Slurm's --signal
ends term 3
says '^tandem: stopped: '
expect 0 train set $whole --workspace term --resume term/checkpoint.safetensors --workers 2 --final-weights term.safetensors
same straight.safetensors term.safetensors
[ "$(sed -n '/^top1/p;/^val loss/p;/^train loss/p' out)" = "$counts" ] || complain "other results than '$counts'"

# inside an optimizer step of 12 batches, after an odd and after an even number of them
accumulated="$whole --optimizer-batch-size 96"
expect 0 train set $accumulated --no-checkpoints --final-weights straight12.safetensors
for i in 4 5; do
    holds accumulated "epoch 1, iteration $i/12" train set $accumulated --workspace accumulated --overwrite
    kill -TERM $pid
    ends accumulated 3
    expect 0 train set $accumulated --workspace accumulated --resume accumulated/checkpoint.safetensors \
        --final-weights accumulated.safetensors
    same straight12.safetensors accumulated.safetensors
done

# stopped by a number of steps, at an epoch's end, and inside
for stop in '--run-epochs 1' '--run-iters 12' '--run-iters 13' '--run-iters 1'; do
    rm -rf part
    expect 0 train set $whole --workspace part $stop
    expect 0 train set $whole --workspace part --resume part/checkpoint.safetensors --final-weights part.safetensors
    last="$last after $stop"
    same straight.safetensors part.safetensors
    [ "$(sed -n '/^top1/p;/^val loss/p;/^train loss/p' out)" = "$counts" ] || complain "other results than '$counts'"
done

# the checkpoint's settings are the defaults of the run that resumes
rm -rf part
expect 0 train set $whole --workspace part --overwrite --run-iters 17
expect 0 train set --resume part/checkpoint.safetensors --final-weights part.safetensors --final-state
same straight.safetensors part.safetensors

# --- SIGKILL -----------------------------------------------------------------------------------
# What is left behind depends on the calls that write files, not on the time: the process kills itself in one of them.
# Even rounds choose among those that write a checkpoint's temporary, odd ones among all; a step makes some thirty.  A
# run that ends before its call is compared, and the next begins anew.
killed=0
inside=0
finished=0
calls=$(awk 'BEGIN { srand(11); for (i = 0; i < 100; i++) printf "%d ", 1 + 250 * rand() }')
rm -rf killed
for call in $calls; do
    [ $killed -lt 50 ] || break
    resume=
    [ ! -e killed/checkpoint.safetensors ] || resume="--resume killed/checkpoint.safetensors"
    part=
    [ $((killed % 2)) = 1 ] || part=checkpoint.safetensors.tmp.
    last="killed at call $call ${part:+for $part }of round $killed"
    code=0
    ASAN_OPTIONS=verify_asan_link_order=0 LD_PRELOAD=$TANDEM_BUILD/tests/kill_at.so KILL_AT=$call KILL_PATH=$part \
        "$TANDEM" train set $whole --workspace killed --checkpoint-every 1 $resume --final-weights killed.safetensors \
        >out 2>err </dev/null || code=$?
    case $code in
    137)
        killed=$((killed + 1))
        if [ -n "$(find killed -name '*.tmp.*')" ]; then
            inside=$((inside + 1))
        elif [ -n "$part" ]; then
            complain "no temporary is left"
        fi
        ;;
    0)
        finished=$((finished + 1))
        same straight.safetensors killed.safetensors
        same a/model_best.safetensors killed/model_best.safetensors
        rm -rf killed killed.safetensors
        ;;
    *)
        complain "a killed run does not resume: exit code $code"
        break
        ;;
    esac
done
if [ -e killed/checkpoint.safetensors ]; then
    expect 0 train set $whole --workspace killed --resume killed/checkpoint.safetensors --final-weights killed.safetensors
else
    expect 0 train set $whole --workspace killed --overwrite --final-weights killed.safetensors
fi
same straight.safetensors killed.safetensors
same a/model_best.safetensors killed/model_best.safetensors
tidy killed
echo "$killed kills, $inside while a checkpoint was being written; $((finished + 1)) runs came to their end"
[ $killed = 50 ] || complain "only $killed kills"

# --- threads -----------------------------------------------------------------------------------
# With more threads the sums of a convolution's weight gradient have another order: close, but not the same bits.
expect 0 train set $whole --workspace threads --threads 2 --final-weights two.safetensors
expect 0 train set $whole --workspace threads --overwrite --threads 2 --workers 3 --final-weights again.safetensors
same two.safetensors again.safetensors
if cmp -s two.safetensors straight.safetensors; then
    echo "one and two threads gave the same bits here"
else
    echo "one and two threads gave other bits here"
fi
rm -rf part
expect 0 train set $whole --workspace part --overwrite --threads 2 --run-iters 17
expect 0 train set $whole --workspace part --threads 2 --resume part/checkpoint.safetensors --final-weights part.safetensors
same two.safetensors part.safetensors

# --- a run that has ended: resuming it writes what is missing, trains nothing ----------------------
expect 0 train set $whole --workspace a --resume a/checkpoint.safetensors --final-weights late.safetensors
warning_names train: "'a/checkpoint.safetensors'" 4
same straight.safetensors late.safetensors
expect 0 train set $whole --workspace a --resume a/checkpoint.safetensors --epochs 5 --threads 2
expect 1 train set $whole --workspace a --resume a/checkpoint.safetensors --epochs 4
error_names 5 --epochs 4

# --- early stopping: patience is counted over the whole training, not over each run ----------------
patient="--model small.td $fixed --epochs 12 --early-stopping-patience 2 --lr 0"
expect 0 train set $patient --workspace patient --final-weights straight.safetensors
steps=$(sed -n 's/^steps *//p' out)
rm -rf patient
expect 0 train set $patient --workspace patient --overwrite --run-epochs 2
expect 0 train set $patient --workspace patient --resume patient/checkpoint.safetensors --final-weights part.safetensors
[ "$(sed -n 's/^steps *//p' out)" = "$steps" ] || complain "stopped early after another number of steps than $steps"

# validations count, not epochs: of 24 epochs every third one is validated; a run that begins anew in every epoch
# stops where one run does
patience="--model small.td $fixed --epochs 24 --eval-count 8 --early-stopping-patience 3 --lr 0"
expect 0 train set $patience --workspace whole --overwrite --final-weights straight.safetensors
log_names train: 'best' 3 'early'
steps=$(sed -n 's/^steps *//p' out)
[ "$steps" -gt 100 ] && [ "$steps" -lt 288 ] || complain "stopped early after $steps steps"
rm -rf patient
expect 0 train set $patience --workspace patient --run-epochs 1
n=1
until grep -q 'stopping early' err || [ $n -ge 24 ]; do
    n=$((n + 1))
    expect 0 train set $patience --workspace patient --resume patient/checkpoint.safetensors --run-epochs 1
done
[ "$(sed -n 's/^steps *//p' out)" = "$steps" ] || complain "stopped early after another number of steps than $steps"

# --- a second signal ends at once ----------------------------------------------------------------
# the step is long, so that the second signal comes before its end; it must not be merged with the first, so it waits
# until no signal is pending
starts twice train --data-backend synthetic --arch resnet50 --image-size 224 -b 64 -p 1 --threads 1 --workspace twice
if waits twice '^train: .*momentum'; then
    kill -INT $pid
    n=0
    while grep -q '^ShdPnd:.*[1-9a-f]' /proc/$pid/status && [ $n -lt 1000 ]; do
        n=$((n + 1))
        sleep 0.01
    done
    kill -INT $pid
    ends twice 130
    if grep 'iteration 1/' err >&2; then complain "finished the step first"; fi
    [ ! -e twice/checkpoint.safetensors ] || complain "saved a checkpoint all the same"
    tidy twice
fi
finish
