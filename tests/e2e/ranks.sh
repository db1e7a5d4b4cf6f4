# ctest: timeout 300
# ranks.sh -- ranks train as one rank does that accumulates, to the byte; count the validation once; stop, resume,
# and end together: a rank that dies, hangs or differs is named; nobody is left behind
set -u
. "$TANDEM_SOURCE/tests/e2e/lib.sh"
. "$TANDEM_SOURCE/tests/e2e/lib_files.sh"
. "$TANDEM_SOURCE/tests/e2e/lib_background.sh"

# gone NAME RANKS...: none of them lives
gone() {
    of=$1
    shift
    for r; do
        grep -qs '^State:.[^ZX]' "/proc/$(process "$of" "$r")/status" && complain "rank $r is left behind"
    done
}

# dies PROCESS: until it is gone; for one that stays there is ctest's time limit
dies() {
    [ -n "$1" ] || complain "a process without a number"
    while grep -qs '^State:.[^ZX]' "/proc/$1/status"; do
        sleep 0.01
    done
}

drawn set --classes 4 --train 96 --val 23
plain_model plain.td 32 16 32 1 0.1 # without norms: running statistics are every rank's own, all else is bytes
small_model small.td 32 4
fixed="--threads 1 --workers 1 --seed 7 --lr 0.01 --final-state --no-checkpoints"

# --- the same bytes as one rank that accumulates --------------------------------------------------
all="--model plain.td $fixed --epochs 2"
expect 0 train set $all -b 8 --optimizer-batch-size 16 --final-weights one.safetensors
expect 0 launch --nproc 2 train set $all -b 8 --final-weights two.safetensors
log_names train: '2 ranks'
says '^train: epoch 1: .*top1'
prints '^steps +12$'
same one.safetensors two.safetensors
expect 0 launch --nproc 2 train set $all -b 4 --optimizer-batch-size 16 --reproducible --final-weights two.safetensors
expect 0 train set $all -b 4 --optimizer-batch-size 16 --final-weights one.safetensors
same one.safetensors two.safetensors
expect 0 launch --nproc 4 --cpu-affinity none train set $all -b 4 --reproducible --final-weights two.safetensors
same one.safetensors two.safetensors
expect 0 train set $all -b 8 --optimizer-batch-size 24 --final-weights one.safetensors
expect 0 launch --nproc 3 train set $all -b 8 --final-weights two.safetensors
same one.safetensors two.safetensors
# the numbers by way of the transport, as between machines
export TANDEM_RANKS_PER_MACHINE=1
expect 0 launch --nproc 3 train set $all -b 8 --final-weights two.safetensors
same one.safetensors two.safetensors
export TANDEM_RANKS_PER_MACHINE=2
expect 0 train set $all -b 4 --optimizer-batch-size 16 --final-weights one.safetensors
expect 0 launch --nproc 4 --cpu-affinity none train set $all -b 4 --reproducible --final-weights two.safetensors
same one.safetensors two.safetensors
unset TANDEM_RANKS_PER_MACHINE
# the other orders: shares padded as PyTorch's, and DALI's ranges that move on; twice the same
for order in '--sampler padded' '--shuffle buffer'; do
    expect 0 launch --nproc 2 train set $all -b 8 $order --final-weights one.safetensors
    expect 0 launch --nproc 2 train set $all -b 8 $order --final-weights two.safetensors
    prints '^steps +12$'
    same one.safetensors two.safetensors
done
# half precision with loss scaling, mixup, Nesterov
half="$all --fp16 --dynamic-loss-scale --mixup 0.2 --nesterov"
expect 0 train set $half -b 8 --optimizer-batch-size 16 --final-weights one.safetensors
expect 0 launch --nproc 2 train set $half -b 8 --final-weights two.safetensors
same one.safetensors two.safetensors

# a detector; its norms are frozen, and how many batches they saw is another number
expect 0 dataset draw boxes --boxes --classes 2 --train 8 --val 2 --size 160
detector="--arch ssd320 --backbone resnet18 --image-size 160 --freeze *bn*,*downsample.1.* --freeze-bn --warmup 1"
set -f
expect 0 train boxes $detector $fixed --num-train-steps 2 -b 2 --optimizer-batch-size 4 --final-weights one.safetensors
expect 0 launch --nproc 2 train boxes $detector $fixed --num-train-steps 2 -b 2 --final-weights two.safetensors
set +f
for name in backbone.conv1.weight fpn.smooth3.conv.weight heads.class_tower.0.conv.weight heads.box.bias; do
    for kept in $name momentum.$name; do
        tensor one.safetensors $kept >one.bytes
        tensor two.safetensors $kept >two.bytes
        [ -s one.bytes ] || complain "there is no '$kept'"
        same one.bytes two.bytes
    done
done
expect 0 launch --nproc 2 train boxes --arch ssd320 -b 8 --print-config
prints '^  lr: 0\.01$' # 0.02 for 32 images a step

# --- tensors: rank r has the r-th block of every step; what overflows on one is skipped by all -----------
n=48 image=$((3 * 32 * 32))
tensors() { # FILE ROW: which overflows in half precision
    safetensors "$1" "$(tensors_header $n 3 32 32)"
    {
        i=0
        while [ $i -lt $n ]; do
            if [ $i = "$2" ]; then floats 7f000000; else floats 3f$((800000 + i % 4 * 1000)); fi
            head -c $((image * 4 - 4)) /dev/zero
            i=$((i + 1))
        done
        i=0
        while [ $i -lt $n ]; do
            le64 $((i % 4))
            i=$((i + 1))
        done
    } >>"$1"
}
tensors good.safetensors -1
tensors large.safetensors 13 # step 1 of 16 rows is 0..15: the second rank's
rows="--data-backend tensors --model plain.td $fixed --epochs 1"
expect 0 train good.safetensors $rows -b 8 --optimizer-batch-size 16 --final-weights one.safetensors
expect 0 launch --nproc 2 train good.safetensors $rows -b 8 --final-weights two.safetensors
same one.safetensors two.safetensors
scaled="$rows --fp16 --static-loss-scale 8"
expect 0 train large.safetensors $scaled -b 8 --optimizer-batch-size 16 --final-weights one.safetensors
prints '^skipped +1,'
expect 0 launch --nproc 2 train large.safetensors $scaled -b 8 --final-weights two.safetensors
prints '^steps +2$'
prints '^skipped +1,'
same one.safetensors two.safetensors

# --- the validation is counted once, whatever the number of ranks ----------------------------------
expect 0 launch --nproc 3 train set --model small.td --threads 1 --workers 1 --seed 7 --lr 0.01 -b 8 --epochs 1 --workspace val
top1=$(metric val/experiment_raport.json 0 val.top1)
loss=$(metric val/experiment_raport.json 0 val.loss | cut -c1-9)
expect 0 evaluate set --weights val/checkpoint.safetensors -b 8 --raport-file val/one.json
[ "$top1" = "$(metric val/one.json "" val.top1)" ] || complain "top1 of 3 ranks is $top1, of one $(metric val/one.json "" val.top1)"
[ "$loss" = "$(metric val/one.json "" val.loss | cut -c1-9)" ] || complain "loss of 3 ranks is $loss"
confused() {
    grep -o '"images": .*"mistakes"' "$1"
}
[ "$(confused val/experiment_raport.json)" = "$(confused val/one.json)" ] || complain "3 ranks confuse other images than one"
for ranks in 2 3; do
    expect 0 launch --nproc $ranks evaluate set --weights val/checkpoint.safetensors -b 8 --json
    prints '"n": 23,'
done

# --- images that cannot be read: every rank's are in the list -------------------------------------
cp -r set broken
i=0
for image in broken/train/*/*.jpg; do
    i=$((i + 1))
    [ $((i % 24)) = 3 ] && echo broken >"$image"
done
expect 0 launch --nproc 2 train broken --model small.td --threads 1 --workers 1 --seed 7 --lr 0.01 -b 8 --epochs 1 --max-bad 0.1 --workspace bad
[ "$(wc -l <bad/bad.list)" = 4 ] || complain "bad.list has $(wc -l <bad/bad.list) lines, wanted 4"
[ "$(sort -u bad/bad.list | wc -l)" = 4 ] || complain "bad.list names an image twice"

# --- stopping: all at one step, rank 0 saves; going on with as many ranks, and with others ---------
# a run that only a signal ends, wherever it is by then; `straight N` is one rank's that ends there by itself
long="--threads 1 --workers 1 --seed 7 --lr 0.01 -p 1 -b 8 --epochs 100000 --lr-schedule cosine"
stoppable="--model plain.td $long --final-state"
accumulated="--model plain.td $long --final-state --optimizer-batch-size 16"
straight() {
    expect 0 train set $accumulated --no-checkpoints --run-iters "$1" --final-weights one.safetensors
    same one.safetensors two.safetensors
}
stopped_after() {
    sed -n 's/^tandem: stopped: .*[^0-9]\([0-9]*\)$/\1/p' err
}
starts int launch --log debug --nproc 2 train set $stoppable --workspace int
waits int 'epoch 1, iteration 2/6' && kill -INT $pid
ends int 3
gone int 0 1
steps=$(stopped_after)
[ "${steps:-0}" -ge 8 ] || complain "stopped after step '$steps', wanted 8 or more"
expect 0 launch --nproc 2 train set $stoppable --workspace int --resume int/checkpoint.safetensors --run-iters 9 --final-weights two.safetensors
straight $((steps + 9))
# a signal to one rank only is one to all
starts term launch --log debug --nproc 2 train set $stoppable --workspace term
waits term 'epoch 0, iteration 3/6' && kill -TERM "$(process term 1)"
ends term 3
steps=$(stopped_after)
# one rank goes on where two stopped, perhaps inside an epoch
expect 0 train set $accumulated --workspace term --resume term/checkpoint.safetensors --run-iters 9 --final-weights two.safetensors
straight $((steps + 9))
rm -rf int term

# --- resuming by hand on another number of ranks: the images of a step change unless an option keeps them ------
quiet() {
    if grep '^tandem: warning: ' err >&2; then complain "warned"; fi
}
hand="--threads 1 --workers 1 --no-checkpoints --workspace hand"
expect 0 launch --nproc 2 train set --model plain.td --threads 1 --workers 1 --seed 7 --lr 0.01 -b 8 --epochs 2 --run-epochs 1 \
    --workspace two
expect 0 launch --nproc 2 train set --resume two/checkpoint.safetensors $hand --final-state --final-weights two.safetensors
quiet
expect 0 train set --resume two/checkpoint.safetensors $hand --optimizer-batch-size 16 --final-state --final-weights one.safetensors
quiet
same one.safetensors two.safetensors
expect 0 train set --resume two/checkpoint.safetensors $hand -b 16
quiet
expect 0 train set --resume two/checkpoint.safetensors $hand
warning_names train: '8 images' '1 rank' "'two/checkpoint.safetensors'" 16 '2 ranks' '--optimizer-batch-size 16'
expect 0 launch --nproc 4 --cpu-affinity none train set --resume two/checkpoint.safetensors $hand
warning_names train: '32 images' '4 ranks' 16 '2 ranks' '--batch-size 4 --optimizer-batch-size 16'
[ "$(grep -c '^tandem: warning: ' err)" = 1 ] || complain "every rank warns"
expect 0 launch --nproc 4 --cpu-affinity none train set --resume two/checkpoint.safetensors $hand --batch-size 4 \
    --optimizer-batch-size 16
quiet
rm -rf two hand

# --- a rank that dies, hangs, or is not alike ------------------------------------------------------
endless="--model small.td $long --workspace run --overwrite"
starts kill launch --log debug --nproc 3 train set $endless
waits kill 'epoch 2, ' && kill -KILL "$(process kill 1)"
ends kill 137
log_names 'rank 1'
log_names 'rank 1' 'signal 9'
gone kill 0 1 2
starts stop launch --log debug --nproc 2 train set $endless
waits stop 'epoch 2, ' && kill -STOP "$(process stop 1)"
ends stop 1
log_names 'rank 1'
gone stop 0 1
# the launcher is killed: the ranks go with it
starts orphan launch --log debug --nproc 2 train set $endless
waits orphan 'epoch 2, ' && kill -KILL $pid
wait $pid 2>/dev/null
for r in 0 1; do
    dies "$(process orphan $r)"
done

# two ranks that are not alike
ours="set $all -b 8 --workspace hand --overwrite"
linked train $ours ::: train $ours --workers 2
[ "$code,$code1" = 0,0 ] || complain "exit codes $code, $code1"
linked train $ours ::: train $ours --lr 0.02
[ "$code,$code1" = 1,1 ] || complain "exit codes $code, $code1"
log_names 'rank 1' 'rank 0' "'\"lr\": 0.02'" "'\"lr\": 0.01'"
drawn other --classes 4 --train 100 --val 23
ours="--data-backend folder $all -b 8 --workspace hand --overwrite"
linked train set $ours ::: train other $ours
[ "$code,$code1" = 1,1 ] || complain "exit codes $code, $code1 with other data"
log_names 'rank 1' 'rank 0' 100

# --- several machines are MPI's ----------------------------------------------------------------------
expect 2 launch --nnodes 2 --nproc 4 train set
error_names --nnodes '-np 8' '-N 2' '--ntasks-per-node 4' --hosts
for option in '--node-rank 1' '--master-addr a' '--master-port 29500'; do
    expect 2 launch $option train set
    error_names "${option% *}" mpirun srun
done
expect 2 launch --hosts a --hostfile list train set
error_names --hosts --hostfile
expect 2 launch --hosts a --log-dir logs train set
error_names --log-dir --hosts
expect 1 launch --hostfile nowhere train set
error_names "'nowhere'"
expect 2 launch --hosts a:2 --nproc 3 train set
error_names "'a'" 2 3
PATH=/nowhere expect 1 launch --hosts a,b train set
error_names mpirun --hosts
last="ranks that torchrun starts"
code=0
RANK=1 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 "$TANDEM" train set $all >out 2>err </dev/null || code=$?
[ $code = 2 ] || complain "exit code $code, wanted 2"
error_names RANK WORLD_SIZE 'rank 1 of 2' "'tandem launch --nproc N'"
last="ranks that srun starts without MPI"
code=0
SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=2 "$TANDEM" train set $all >out 2>err </dev/null || code=$?
[ $code = 2 ] || complain "exit code $code, wanted 2"
error_names srun 2 --mpi=pmix --mpi=pmi2

# --- logs, processors, wrong lines -----------------------------------------------------------------
expect 0 launch --nproc 2 --log-dir logs train set $all -b 8
[ -s logs/rank_1.log ] || complain "no log of rank 1"
[ ! -e logs/rank_0.log ] || complain "a log of rank 0"
grep -q 'epoch 1: loss' logs/rank_1.log || complain "rank 1 has logged nothing"
expect 1 launch --nproc 2 --cpu-affinity single train set --model nowhere.td
says "nowhere.td"
error_names 'code 1'
expect 0 launch --nproc 2 --cpu-affinity none train set $all -b 8 --gpu-affinity socket_unique_contiguous
expect 2 launch --nproc 2 train set $all -b 8 --gpu-affinity sockets
error_names "'sockets'"
expect 1 launch --nproc 1000 --cpu-affinity single_unique train set
error_names '1000 ranks'
expect 2 launch --nproc 0 train set
error_names --nproc 0
expect 2 launch --nproc 2
error_names VERB
expect 2 launch --nproc 2 classify a.png
error_names "'classify'"
expect 2 launch --nproc 2 trian set
error_names "'train'"
expect 2 launch --nproc 2 train set --bogus
error_names "'--bogus'"
expect 2 launch --nproc 2 train set -b 16 --optimizer-batch-size 16 --no-checkpoints
error_names '2 x 16'
finish
