# binding.sh -- ranks on processors: a topology of another machine binds nothing, one declared to be this machine's
# binds to processors that exist, each mode starts
# ctest: timeout 600
set -u
. "$TANDEM_SOURCE/tests/e2e/lib.sh"
. "$TANDEM_SOURCE/tests/e2e/lib_files.sh"

# how far the program gets in each case: to a folder that is missing
job="train nowhere --arch resnet18"

# launch_with VARIABLES -- ARGUMENTS...: ranks that end with the folder
launch_with() {
    variables=$1
    shift
    last="$variables tandem launch $*"
    code=0
    env $variables "$TANDEM" launch --log debug "$@" $job >out 2>err </dev/null || code=$?
    [ $code = 1 ] || complain "exit code $code, wanted 1"
    error_names "'nowhere'"
}

# --- another machine ------------------------------------------------------------------------------
other="pack:2 numa:2 l3:1 core:8 pu:2"
export HWLOC_SYNTHETIC="$other"
launch_with "" --nproc 4
warning_names HWLOC_SYNTHETIC
[ "$(grep -c '^tandem: warning' err)" = 1 ] || complain "more than one warning"
grep -q '^launch: rank [0-9]*: processors' err && complain "ranks are bound"
launch_with "" --nproc 4 --cpu-affinity none
grep -q '^tandem: warning' err && complain "a warning without binding"
expect 1 launch --nproc 4 --cpu-affinity numa $job
error_names --cpu-affinity HWLOC_SYNTHETIC
# and no training starts ranks for it
expect 0 dataset draw set --classes 2 --train 8 --val 2 --size 32
training="train set --arch resnet18 --image-size 32 --epochs 1 --seed 1 --training-only --workspace run --overwrite --json"
expect 0 $training --batch-size 8
grep -q 'NUMA nodes\|ranks' err && complain "it starts ranks"
# one rank has nothing to be bound to
launch_with "" --nproc 1
grep -q '^tandem: warning' err && complain "a warning for one rank"

# --- declared to be this machine: only the processors that this process may use ---------------------
# two nodes of one processor each, those that exist here; the second node has no memory that could be bound
cpus=$(sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' /proc/self/status | tr ',' '\n' |
    awk -F- '{ for (i = $1; i <= ($2 == "" ? $1 : $2); i++) print i }' | sed -n '1,2p' | tr '\n' ' ')
set -- $cpus
if [ $# = 2 ]; then
    export HWLOC_SYNTHETIC="numa:2 core:1 pu:1(indexes=$1,$2)"
    launch_with HWLOC_THISSYSTEM=1 --nproc 2
    log_names "rank 0" "processors $1" memory
    log_names "rank 1" "processors $2" memory
    launch_with HWLOC_THISSYSTEM=1 --nproc 3
    warning_names '3 ranks' '2 processors'

    # a training starts a rank on each node, and they share the batch
    export HWLOC_THISSYSTEM=1
    loss() {
        grep -o '"train_loss": [0-9.e+-]*' out
    }
    expect 0 launch --nproc 2 $training --batch-size 4
    by_launch=$(loss)
    expect 0 $training --batch-size 8
    log_names 2 'NUMA nodes' 'rank on each' '4 of the 8 images' '--ranks 1'
    log_names '2 ranks, 2 of them on this machine, 1 threads each'
    [ "$(loss)" = "$by_launch" ] || complain "$(loss), launch has $by_launch"
    grep -q '^ *batch_size: 8$' run/config.yaml && grep -q '^ *ranks: 2$' run/config.yaml || complain "other options are stored"
    expect 0 train set --config run/config.yaml --workspace run --overwrite --json
    [ "$(loss)" = "$by_launch" ] || complain "$(loss) with the stored options, launch has $by_launch"
    expect 0 $training --batch-size 7
    log_names 'one process' 'does not divide the batch'
    for option in "--ranks 1" "--threads 1" --reproducible; do
        expect 0 $training --batch-size 8 $option
        grep -q 'NUMA nodes\|ranks' err && complain "it starts ranks"
    done
    expect 0 launch --nproc 1 $training --batch-size 8
    grep -q 'NUMA nodes\|ranks' err && complain "a rank starts ranks"
    expect 2 launch --nproc 1 $training --ranks 2
    error_names '--ranks 2' launcher
    expect 2 $training --batch-size 7 --ranks 2
    error_names '--ranks 2' '--batch-size 7'
    expect 0 benchmark --arch resnet18 --image-size 32 -b 8 --iters 1 --warmup 0 --json
    prints '"batch_size": 4'
    prints '"ranks": 2'
    log_names 2 'NUMA nodes' '4 of the 8 images'

    # it goes on with as many ranks, also where there are no nodes
    unset HWLOC_THISSYSTEM HWLOC_SYNTHETIC
    expect 0 $training --batch-size 8 --ranks 2
    [ "$(loss)" = "$by_launch" ] || complain "$(loss) with --ranks 2, launch has $by_launch"
    expect 0 train set --resume run/checkpoint.safetensors --epochs 2 --training-only
    log_names '2 ranks, 2 of them on this machine'
    expect 0 train set --resume run/checkpoint.safetensors --epochs 3 --training-only --ranks 1 --optimizer-batch-size 8
    grep -q '2 ranks, ' err && complain "--ranks 1 starts ranks"
else
    echo "binding.sh: one processor only: binding of two ranks left out" >&2
fi
export HWLOC_SYNTHETIC=nonsense
launch_with "" --nproc 2
unset HWLOC_SYNTHETIC

# --- this machine ---------------------------------------------------------------------------------
for mode in auto none socket single unique_contiguous numa; do
    launch_with "" --nproc 1 --cpu-affinity $mode
done
last="taskset"
if command -v taskset >/dev/null 2>&1; then
    code=0
    taskset -c "$1" "$TANDEM" launch --log debug --nproc 1 --cpu-affinity socket $job >out 2>err </dev/null || code=$?
    log_names "rank 0" "processors $1"
    code=0
    taskset -c "$1" "$TANDEM" launch --nproc 2 --cpu-affinity unique_contiguous $job >out 2>err </dev/null || code=$?
    [ $code = 1 ] || complain "exit code $code, wanted 1"
    error_names '2 ranks' 'of 1 cores'
fi
finish
