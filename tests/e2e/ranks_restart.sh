# ctest: timeout 300
# ranks_restart.sh -- `launch --restarts`: a run whose ranks are killed ends with the bytes of one that was not disturbed,
# also on fewer ranks and under mpirun; errors of the run, and signals to the launcher, end it at once
set -u
. "$TANDEM_SOURCE/tests/e2e/lib.sh"
. "$TANDEM_SOURCE/tests/e2e/lib_files.sh"
. "$TANDEM_SOURCE/tests/e2e/lib_background.sh"
. "$TANDEM_SOURCE/tests/e2e/lib_mpi.sh"

# not_restarted: the last run was started once
not_restarted() {
    grep -q 'restart [0-9]* of' err && complain "ranks were started again"
}

# restarts N: how often the last run was started again
restarts() {
    n=$(grep -c 'warning: launch: restart [0-9]* of' err)
    [ "$n" = "$1" ] || complain "$n restarts, wanted $1"
}

# gone NAME: no process of any of its starts lives
gone() {
    for process in $(sed -n 's/^launch: .* is process //p; s/^ranks: rank .* is process \([0-9]*\),.*/\1/p' "$1.err"); do
        grep -qs '^State:.[^ZX]' "/proc/$process/status" && complain "process $process is left behind"
    done
}

# killing CODE CALL ARGUMENTS...: rank 0 of every start kills itself in a CALL-th call that writes the checkpoint; each
# checkpoint takes about 13, so CALL 30 lets two epochs pass, and later starts end before their call if few are left
killing() {
    wanted=$1 call=$2
    shift 2
    last="killed at call $call: tandem $*"
    code=0
    ASAN_OPTIONS=verify_asan_link_order=0 LD_PRELOAD=$TANDEM_BUILD/tests/kill_at.so KILL_AT=$call \
        KILL_PATH=/checkpoint.safetensors "$TANDEM" "$@" >out 2>err </dev/null || code=$?
    [ "$code" = "$wanted" ] || complain "exit code $code, wanted $wanted"
}

drawn set --classes 4 --train 96 --val 23
plain_model plain.td 32 16 32 1 0.1 # without norms: any number of ranks ends with the same bytes
all="--model plain.td --threads 1 --workers 1 --seed 7 --lr 0.01 --mixup 0.2 --final-state -b 8"
expect 0 launch --nproc 2 train set $all --epochs 5 --no-checkpoints --final-weights wanted.safetensors

# --- rank 0 is killed while it saves ----------------------------------------------------------------
short="$all --epochs 5 --final-weights again.safetensors"
killing 0 30 launch --nproc 2 --restarts 4 train set $short --workspace killed
log_names 'restart 1 of 4' 'rank 0' 'signal 9' '2 ranks' "'killed/checkpoint.safetensors'"
says '^train: resumed .killed/checkpoint.safetensors. at epoch [1-4], iteration 0$'
same wanted.safetensors again.safetensors
report_is_sound killed/experiment_raport.json
tidy killed
# in a folder of its own: all starts use the first one's
rm again.safetensors
killing 0 30 launch --nproc 2 --restarts 4 train set $short --raport-file report.json
same wanted.safetensors again.safetensors
[ "$(ls runs)" = plain-1 ] || complain "the folders are $(ls runs)"
[ -s report.json ] || complain "the report is not in the current folder"
[ ! -e runs/plain-1/report.json ] || complain "a restart has written another report"
# before the first checkpoint is complete: from the beginning, over what is there
killing 137 3 launch --nproc 2 --restarts 2 train set $short --workspace first
restarts 2
log_names 'restart 1 of 2' 'the beginning'
log_names 'restart 2 of 2' 'the beginning'
error_names 'rank 0' 'signal 9' 'after 2 restarts'
# another run's checkpoint, to be replaced, is not resumed
mkdir other
cp killed/checkpoint.safetensors other/
killing 137 3 launch --nproc 2 --restarts 1 train set $short --workspace other --overwrite
log_names 'restart 1 of 1' 'the beginning'
# the length of the run is that of all its starts; the weights it began with are not loaded again
start="$all --epochs 9 --pretrained-weights killed/model_best.safetensors --run-iters 26 --checkpoint-every 1"
expect 0 launch --nproc 2 train set $start --workspace begun --final-weights wanted2.safetensors
prints '^steps +26$'
killing 0 150 launch --nproc 2 --restarts 9 train set $start --workspace began --final-weights again.safetensors
prints '^steps +26$'
log_names 'restart 1 of 9' "'began/checkpoint.safetensors'"
same wanted2.safetensors again.safetensors
# too often; and never without --restarts
killing 137 30 launch --nproc 2 --restarts 1 train set $all --epochs 30 --workspace often
restarts 1
error_names 'rank 0' 'signal 9' 'after 1 restarts'
killing 137 30 launch --nproc 2 train set $all --epochs 30 --workspace never
not_restarted
error_names 'rank 0' 'signal 9'

# --- rank 1 is killed or stopped: fewer ranks, or as many --------------------------------------------
# held SIGNAL WORDS OPTIONS...: what the line of the restart says
held() {
    signal=$1 wanted_line=$2
    shift 2
    rm -rf held again.safetensors
    holds held 'epoch 2, ' launch --log debug --nproc 2 --restarts 1 "$@" train set $short -p 1 --workspace held
    kill -$signal "$(process held 1 | head -1)"
    ends held 0
    restarts 1
    log_names 'restart 1 of 1' 'rank 1' "$wanted_line" "'held/checkpoint.safetensors'"
    same wanted.safetensors again.safetensors
    grep -q '^tandem: warning: .*--optimizer-batch-size' err && complain "warns of the images per step, which are the same"
    gone held
}
held KILL '2 ranks continue'
held KILL '1 rank continues' --min-ranks 1
held STOP '2 ranks continue' --min-ranks 1
# 24 images a step are no whole number of batches on 2 ranks
holds three 'epoch 1, ' launch --log debug --cpu-affinity none --nproc 3 --restarts 1 --min-ranks 2 train set $short -p 1 --workspace three
kill -KILL "$(process three 1)"
ends three 137
not_restarted
error_names 'rank 1' 24 '--batch-size 8' 'from 2 to 2'
gone three

# --- what ends the run at once -----------------------------------------------------------------------
again="launch --nproc 2 --restarts 3"
expect 2 $again train set $all --bogus
not_restarted
expect 1 $again train nowhere $all
not_restarted
expect 1 $again train set $all --lr 1e6 --epochs 2 --workspace diverged
not_restarted
expect 4 $again train set $all --epochs 1 --require 'top1>=101' --workspace required
not_restarted
endless="$all -p 1 --epochs 100000"
starts int launch --log debug --nproc 2 --restarts 3 train set $endless --workspace int
waits int 'epoch 2, ' && kill -KILL "$(process int 1)"
waits int 'restart 1 of 3' && kill -INT $pid
code=0
wait $pid || code=$?
cp int.err err
[ $code = 3 ] || [ $code = 130 ] || complain "exit code $code, wanted 3 or 130"
restarts 1
gone int
expect 2 launch --nproc 2 --min-ranks 1 train set
error_names --min-ranks --restarts
expect 2 launch --nproc 2 --restarts 1 --min-ranks 3 train set
error_names --min-ranks 3 2
last="an environment that no launcher made"
code=0
TANDEM_RESTART='2 x 0 0' "$TANDEM" train set $all >out 2>err </dev/null || code=$?
[ $code = 2 ] || complain "exit code $code, wanted 2"
error_names TANDEM_RESTART "'2 x 0 0'"

# --- under mpirun -----------------------------------------------------------------------------------
is_tried=""
for mpi in $mpis; do
    hosts="launch --log debug --mpirun mpirun.$mpi --hosts localhost --nproc 2"
    rm -rf mpi again.safetensors
    killing 0 30 $hosts --restarts 4 train set $short --workspace mpi
    log_names 'restart 1 of 4' 'signal 9' '2 ranks' "'mpi/checkpoint.safetensors'"
    same wanted.safetensors again.safetensors
    rm -rf mpi
    killing 137 30 $hosts --restarts 1 train set $all --epochs 30 --workspace mpi
    restarts 1
    error_names 'signal 9' 'after 1 restarts'
    # a rank that stops: another one notices
    starts stop $hosts --restarts 1 train --log debug set $endless --workspace mpi --overwrite
    waits stop 'epoch 2, ' &&
        kill -STOP "$(sed -n 's/^ranks: rank 1 of 2 is process \([0-9]*\),.*/\1/p' stop.err | head -1)"
    waits stop 'restart 1 of 1' && waits stop 'train: resumed' && kill -TERM $pid
    wait $pid
    cp stop.err err
    log_names 'restart 1 of 1' 'a rank was lost' "'mpi/checkpoint.safetensors'"
    gone stop
    expect 1 $hosts --restarts 1 train nowhere $all
    not_restarted
    expect 2 $hosts --restarts 1 train set --bogus
    not_restarted
    # a machine that is not there; MPICH's mpirun takes its time to say so
    [ -z "$is_tried" ] || continue
    is_tried=1
    absent="launch --mpirun mpirun.$mpi --hosts localhost,nowhere.invalid"
    rm -f again.safetensors
    expect 0 $absent --restarts 1 --min-ranks 1 train set $short --workspace absent
    log_names 'restart 1 of 1' "'nowhere.invalid'" '1 rank'
    same wanted.safetensors again.safetensors
    expect 1 $absent --restarts 1 train set $short --workspace absent --overwrite
    not_restarted
    error_names "'nowhere.invalid'" --min-ranks 2
done
[ -z "$(find . -maxdepth 1 -name '.tandem-*')" ] || complain "a record is left behind"
finish
