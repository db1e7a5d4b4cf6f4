# ctest: timeout 600
# ranks_mpi.sh -- ranks that mpirun starts, under Open MPI and under MPICH: the bytes of one rank that accumulates, in
# shared memory and by messages; a rank that dies, hangs or differs ends all; --hosts; skipped where there is no MPI
set -u
. "$TANDEM_SOURCE/tests/e2e/lib.sh"
. "$TANDEM_SOURCE/tests/e2e/lib_files.sh"
. "$TANDEM_SOURCE/tests/e2e/lib_background.sh"
. "$TANDEM_SOURCE/tests/e2e/lib_mpi.sh"

if [ -z "$mpis" ]; then
    echo "$mpis_missing" >&2
    exit 77
fi

# mpi CODE RANKS ARGUMENTS...
mpi() {
    wanted=$1 ranks=$2
    shift 2
    last="mpirun.$mpi -np $ranks tandem $*"
    code=0
    mpirun.$mpi -np "$ranks" "$TANDEM" "$@" >out 2>err </dev/null || code=$?
    [ "$code" = "$wanted" ] || complain "exit code $code, wanted $wanted"
}

# the process of rank 1 of the run in this folder; its log line has it
rank_1() {
    sed -n 's/^ranks: rank 1 of [0-9]* is process \([0-9]*\),.*/\1/p' "$1.err" | head -1
}

starts_mpi() {
    run=$1
    shift
    last="mpirun.$mpi -np 3 tandem $*"
    : >"$run.err"
    mpirun.$mpi -np 3 "$TANDEM" "$@" >out 2>"$run.err" </dev/null &
    pid=$!
}

# gone NAME: no rank of the run lives
gone() {
    for process in $(sed -n 's/^ranks: rank [0-9]* of [0-9]* is process \([0-9]*\),.*/\1/p' "$1.err"); do
        n=0
        while grep -qs '^State:.[^ZX]' "/proc/$process/status"; do
            n=$((n + 1))
            [ $n -gt 1000 ] && complain "process $process is left behind" && break
            sleep 0.01
        done
    done
}

# bound LIST: ranks have logged these processors, "rank 0: processors 0; rank 1: ..."
bound() {
    found=$(sed -n 's/^ranks: \(rank [0-9]*: processors .*\)/\1/p' err | sort | tr '\n' ';')
    [ "$found" = "$1" ] || complain "ranks are bound to '$found', wanted '$1'"
}

# launch_cpus MODE: what `launch` binds two ranks to, in ./cpus
launch_cpus() {
    "$TANDEM" launch --log debug --nproc 2 --cpu-affinity "$1" train nowhere >out 2>err </dev/null
    sed -n 's/^launch: \(rank [0-9]*: processors .*\)/\1/p' err | sort | tr '\n' ';' >cpus
}

# do ranks without binding have all processors of this machine?  If there are several: the first of them
is_whole=1 one_cpu=
[ "$(env -u OMP_NUM_THREADS nproc)" = "$(getconf _NPROCESSORS_ONLN)" ] || is_whole=0
if [ "$(getconf _NPROCESSORS_ONLN)" -gt 1 ] && command -v taskset >/dev/null 2>&1; then
    one_cpu=$(sed -n 's/^Cpus_allowed_list:[[:space:]]*\([0-9]*\).*/\1/p' /proc/self/status)
fi

drawn set --classes 4 --train 96 --val 23
plain_model plain.td 32 16 32 1 0.1
small_model small.td 32 4
fixed="--threads 1 --workers 1 --seed 7 --lr 0.01 --final-state --no-checkpoints"
all="--model plain.td $fixed --epochs 2"
endless="--model small.td --threads 1 --workers 1 --seed 7 --lr 0.01 -p 1 -b 8 --epochs 100000 --workspace run --overwrite"
expect 0 dataset draw boxes --boxes --classes 2 --train 8 --val 2 --size 160

# same_but_statistics FILE FILE: equal but for the running statistics of norms, of which every rank has its own, and the
# digests of the files
same_but_statistics() {
    for file in "$1" "$2"; do
        header "$file" | sed 's/"digest":"xxh3:[0-9a-f]*"/"digest":""/' >"$file.header"
    done
    same "$1.header" "$2.header"
    own=$(tr '{' '\n' <"$1.header" | grep -A 1 '\.\(running_mean\|running_var\|num_batches_tracked\)":$' |
        sed -n 's/.*"data_offsets":\[\([0-9]*\),\([0-9]*\)\].*/\1 \2/p' | sort -n)
    [ "$(echo "$own" | wc -l)" -gt 50 ] || complain "$1 has $(echo "$own" | wc -l) running statistics"
    other=$(cmp -l "$1" "$2" 2>&1 | awk -v start="$((8 + $(header_bytes "$1")))" -v own="$own" '
        BEGIN { n = split(own, at) }
        { here = $1 - 1 - start }
        /^ *[0-9]+ / && here < 0 { next }
        { while (i < n && here >= at[i + 2]) i += 2 }
        !/^ *[0-9]+ / || i >= n || here < at[i + 1] { print; exit }')
    [ -z "$other" ] || complain "$1 and $2 differ: cmp -l prints '$other'"
}

# what one rank makes of it that accumulates, and `launch`
kinds="float32 half bf16"
float32="$all -b 8"
half="$all -b 8 --fp16 --dynamic-loss-scale --mixup 0.2 --nesterov"
bf16="$all -b 8 --precision bf16"
detector="--arch ssd320 --backbone resnet18 --image-size 160 --threads 1 --workers 1 --seed 7 --lr 0.01 --warmup 1 \
    --no-checkpoints --training-only --num-train-steps 2 -b 1"
for n in 2 3 4; do
    for kind in $kinds; do
        eval "options=\$$kind"
        expect 0 train set $options --optimizer-batch-size $((8 * n)) --final-weights "one.$kind.$n"
        expect 0 launch --cpu-affinity none --nproc $n train set $options --final-weights launch.safetensors
        same "one.$kind.$n" launch.safetensors
        [ $n.$kind != 2.float32 ] || loss2=$(sed -n 's/^train loss *//p' out)
    done
    expect 0 train boxes $detector --optimizer-batch-size $n --final-weights "one.boxes.$n"
    expect 0 launch --cpu-affinity none --nproc $n train boxes $detector --final-weights launch.safetensors
    same_but_statistics "one.boxes.$n" launch.safetensors
done
expect 0 launch --nproc 2 train set $all -b 8 --allreduce fast --final-weights mpi.safetensors
log_names ranks: --allreduce MPI
same one.float32.2 mpi.safetensors
expect 2 train set $all --allreduce-dtype bf16
error_names --allreduce-dtype --allreduce
expect 0 train set $all -b 4 --optimizer-batch-size 16 --final-weights one.same

for mpi in $mpis; do
    # --- the same bytes -------------------------------------------------------------------------------
    for n in 2 3 4; do
        for kind in $kinds; do
            eval "options=\$$kind"
            mpi 0 $n train set $options --final-weights mpi.safetensors
            same "one.$kind.$n" mpi.safetensors
        done
        log_names train: "$n ranks"
        prints "^steps +$((24 / n))\$"
        [ "$(grep -c '^steps' out)" = 1 ] || complain "several ranks have printed"
        mpi 0 $n train boxes $detector --final-weights mpi.safetensors
        same_but_statistics "one.boxes.$n" mpi.safetensors
    done
    for n in 2 4; do
        mpi 0 $n train set $all -b 4 --optimizer-batch-size 16 --reproducible --final-weights mpi.safetensors
        same one.same mpi.safetensors
    done
    # by messages, as between machines
    export TANDEM_RANKS_PER_MACHINE=1
    mpi 0 3 train set $all -b 8 --final-weights mpi.safetensors
    same one.float32.3 mpi.safetensors
    mpi 0 2 train set $half --final-weights mpi.safetensors
    same one.half.2 mpi.safetensors
    mpi 0 4 train set $all -b 4 --optimizer-batch-size 16 --reproducible --final-weights mpi.safetensors
    same one.same mpi.safetensors
    # along machines of two ranks each
    export TANDEM_RANKS_PER_MACHINE=2
    mpi 0 4 train set $all -b 8 --final-weights mpi.safetensors
    same one.float32.4 mpi.safetensors
    mpi 0 4 train set $all -b 4 --optimizer-batch-size 16 --reproducible --final-weights mpi.safetensors
    same one.same mpi.safetensors
    unset TANDEM_RANKS_PER_MACHINE

    # --- sums by MPI: within rounding, and compared ---------------------------------------------------
    for dtype in float32 bf16 fp16; do
        mpi 0 2 train set $all -b 8 --allreduce fast --allreduce-dtype $dtype --allreduce-check 2 --final-weights mpi.safetensors
        prints '^steps +12$'
        [ "$(sed -n 's/^train loss *//p' out | cut -c1-5)" = "$(echo "$loss2" | cut -c1-5)" ] ||
            complain "the loss is $(sed -n 's/^train loss *//p' out), exact: $loss2"
        [ $dtype = float32 ] || ! cmp -s mpi.safetensors one.float32.2 || complain "$dtype has float32's bits"
    done
    mpi 2 2 train set $all -b 8 --allreduce fast --reproducible
    error_names --allreduce --reproducible
    mpi 0 2 benchmark --mode allreduce --allreduce fast --allreduce-dtype bf16 --iters 2 --warmup 1 --json
    prints '"ranks": 2,'

    # --- --hosts, by this mpirun ----------------------------------------------------------------------
    expect 0 launch --mpirun mpirun.$mpi --hosts localhost --nproc 2 train set $all -b 8 --final-weights mpi.safetensors
    log_names launch: '2 ranks' "mpirun.$mpi'"
    log_names train: '2 ranks'
    same one.float32.2 mpi.safetensors
    printf '# one\n localhost slots=3 # here\n' >list
    expect 0 launch --mpirun mpirun.$mpi --hostfile list train set $all -b 8 --final-weights mpi.safetensors
    same one.float32.3 mpi.safetensors

    # --- processors: those of `launch`, unless mpirun or another program has bound the ranks ---------------
    launch_cpus socket && wanted_cpus=$(cat cpus)
    launch_cpus auto && auto_cpus=$(cat cpus)
    [ $is_whole = 1 ] && [ -z "$wanted_cpus" ] && complain "launch binds nothing"
    last="mpirun.$mpi --bind-to none, --gpu-affinity socket"
    mpirun.$mpi -np 2 --bind-to none "$TANDEM" train nowhere $all --log debug --gpu-affinity socket >out 2>err </dev/null
    [ $is_whole = 0 ] || bound "$wanted_cpus"
    [ $is_whole = 1 ] || warning_names 'already bound'
    last="mpirun.$mpi --bind-to none"
    mpirun.$mpi -np 2 --bind-to none "$TANDEM" train nowhere $all --log debug >out 2>err </dev/null
    [ $is_whole = 0 ] || bound "$auto_cpus"
    last="launch --hosts --cpu-affinity socket, mpirun.$mpi"
    "$TANDEM" launch --mpirun mpirun.$mpi --hosts localhost --nproc 2 --cpu-affinity socket train nowhere $all --log debug >out 2>err </dev/null
    [ $is_whole = 0 ] || bound "$wanted_cpus"
    "$TANDEM" launch --mpirun mpirun.$mpi --hosts localhost --nproc 2 --cpu-affinity none train nowhere $all --log debug >out 2>err </dev/null
    bound ""
    if [ -n "$one_cpu" ]; then
        last="mpirun.$mpi, ranks that are bound to processor $one_cpu"
        mpirun.$mpi -np 2 --bind-to none taskset -c "$one_cpu" "$TANDEM" train nowhere $all --log debug >out 2>err </dev/null
        bound ""
        [ "$(getconf _NPROCESSORS_ONLN)" -gt 3 ] || ! grep '^tandem: warning: ranks' err || complain "a warning by default"
        mpirun.$mpi -np 2 --bind-to none taskset -c "$one_cpu" "$TANDEM" train nowhere $all --gpu-affinity socket >out 2>err </dev/null
        warning_names 'already bound'
    fi

    # ranks that are bound to a small part are left alone, too, with a warning
    n=$(getconf _NPROCESSORS_ONLN)
    last="mpirun.$mpi, ranks on a larger machine"
    mpirun.$mpi -np 2 --bind-to none env HWLOC_SYNTHETIC="core:$((4 * n + 4)) pu:1" HWLOC_THISSYSTEM=1 \
        "$TANDEM" train nowhere $all --log debug >out 2>err </dev/null
    bound ""
    warning_names "$((4 * n + 4)) processors" --bind-to --cpu-bind=none

    # --- the end ------------------------------------------------------------------------------------
    mpi 1 2 train nowhere $all
    error_names "'nowhere'"
    # ranks that are not alike
    last="mpirun.$mpi, two ranks with other options"
    code=0
    mpirun.$mpi -np 1 "$TANDEM" train set $all -b 8 : -np 1 "$TANDEM" train set $all -b 8 --lr 0.02 >out 2>err </dev/null || code=$?
    [ $code = 1 ] || complain "exit code $code, wanted 1"
    log_names 'rank 1' 'rank 0' "'\"lr\": 0.02'" "'\"lr\": 0.01'"
    # killed: MPI says so
    starts_mpi kill train --log debug set $endless
    waits kill 'epoch 2, ' && kill -KILL "$(rank_1 kill)"
    code=0
    wait $pid || code=$?
    [ $code != 0 ] || complain "exit code 0 after a rank was killed"
    gone kill
    # stopped: the rank after it says so
    starts_mpi stop train --log debug set $endless
    waits stop 'epoch 2, ' && kill -STOP "$(rank_1 stop)"
    ends stop 1
    log_names 'rank 1'
    gone stop
    # a signal to one rank: all stop at one step, rank 0 saves
    starts_mpi term train --log debug set $endless
    waits term 'epoch 2, ' && kill -TERM "$(rank_1 term)"
    ends term 3
    says '^tandem: stopped: '
    gone term
done

# --- MPI_Finalize: MPICH 4.0's often does not return after plain TCP; the run is complete, and ends with its code ---
case " $mpis " in
*" mpich "*)
    export UCX_TLS=tcp
    mpi=mpich
    mpi 0 4 train set $float32 --final-weights mpi.safetensors
    same one.float32.4 mpi.safetensors
    prints '^steps +6$'
    mpi 4 4 train set $float32 --require 'top1>=101'
    unset UCX_TLS
    ;;
esac

# --- what is missing or wrong ----------------------------------------------------------------------------
# without the library: a sentence that says what to do
last="a plug-in that is not there"
code=0
OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 TANDEM_MPI_PLUGIN=./none.so "$TANDEM" train set $all >out 2>err || code=$?
[ $code = 1 ] || complain "exit code $code, wanted 1"
error_names ./none.so 'Open MPI' --mpi "'tandem launch'"
expect 2 launch --mpirun sh --hosts localhost train set
error_names --mpirun "'sh'"
# the variables of one MPI and the library of the other
if [ "$mpis" = "openmpi mpich" ]; then
    export TANDEM_MPI_PLUGIN="$TANDEM_BUILD/libtandem_mpi_mpich.so"
    mpi=openmpi
    mpi 1 2 train set $all
    error_names 'of 2' 'of 1' mpirun
    unset TANDEM_MPI_PLUGIN
fi
finish
