# ctest: timeout 300
# ctest: processors 2
# ranks_srun.sh -- ranks that srun starts, with Slurm's daemons in namespaces of their own: the bytes of one rank, by
# PMIx (Open MPI) and PMI2 (MPICH); without MPI, or with the wrong one, no rank trains; signals and a killed rank; a batch
# script.  Skipped where there is no Slurm, no MPI, or no namespaces.
set -u
. "$TANDEM_SOURCE/tests/e2e/lib.sh"
. "$TANDEM_SOURCE/tests/e2e/lib_files.sh"
. "$TANDEM_SOURCE/tests/e2e/lib_background.sh"
. "$TANDEM_SOURCE/tests/e2e/lib_mpi.sh"

skip() {
    echo "skipped: $*" >&2
    exit 77
}

# all that follows is in namespaces; the daemons end with the first process there
if [ -z "${IN_NAMESPACES:-}" ]; then
    [ -n "$mpis" ] || skip "${mpis_missing#skipped: }"
    for program in slurmctld slurmd srun sbatch scancel ip unshare; do
        command -v $program >/dev/null 2>&1 || skip "no $program (Debian: slurmctld slurmd slurm-client)"
    done
    unshare --net --uts --pid --fork --mount-proc true 2>unshare.err || skip "namespaces: $(head -1 unshare.err)"
    IN_NAMESPACES=1 exec unshare --net --uts --pid --fork --kill-child --mount-proc sh "$0"
fi

# --- a cluster of one machine that claims four processors ---------------------------------------------------
# names are looked up only where there is a network other than loopback
hostname tandem-slurm && ip link set lo up && ip link add net0 type veth peer name net1 2>ip.err &&
    ip addr add 10.78.0.1/24 dev net0 && ip link set net0 up && ip link set net1 up || skip "a network: $(cat ip.err)"
mkdir slurm slurm/state slurm/spool
cat >slurm/slurm.conf <<END
ClusterName=tandem
SlurmctldHost=tandem-slurm(10.78.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/none
CredType=cred/none
StateSaveLocation=$PWD/slurm/state
SlurmdSpoolDir=$PWD/slurm/spool
SlurmctldPidFile=$PWD/slurm/slurmctld.pid
SlurmdPidFile=$PWD/slurm/slurmd.pid
SlurmctldLogFile=$PWD/slurm/slurmctld.log
SlurmdLogFile=$PWD/slurm/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
MpiDefault=none
SlurmdParameters=config_overrides
NodeName=tandem-slurm NodeAddr=10.78.0.1 CPUs=4 State=UNKNOWN
PartitionName=all Nodes=tandem-slurm Default=YES State=UP MaxTime=INFINITE
END
: >slurm/cgroup.conf
export SLURM_CONF="$PWD/slurm/slurm.conf"
slurmctld -D -f "$SLURM_CONF" >slurm/out 2>&1 &
slurmd -D -f "$SLURM_CONF" >slurm/out.d 2>&1 &
n=0
until sinfo -h -o %T 2>/dev/null | grep -q idle; do
    n=$((n + 1))
    [ $n -le 600 ] || skip "Slurm does not start: $(tail -n 1 slurm/slurmctld.log) $(tail -n 1 slurm/slurmd.log)"
    sleep 0.1
done

# --mpi for each MPI
offered=$(srun --mpi=list 2>&1)
types=""
for mpi in $mpis; do
    type=pmix
    [ $mpi = openmpi ] || type=pmi2
    if echo "$offered" | grep -qw $type; then
        types="$types $type"
    else
        echo "skipped: this Slurm has no --mpi=$type" >&2
    fi
done

# task CODE 'SRUN OPTIONS' ARGUMENTS...
task() {
    wanted=$1 options=$2
    shift 2
    last="srun $options tandem $*"
    code=0
    srun $options "$TANDEM" "$@" >out 2>err </dev/null || code=$?
    [ "$code" = "$wanted" ] || complain "exit code $code, wanted $wanted"
}

# starts_tasks NAME 'SRUN OPTIONS' ARGUMENTS...
starts_tasks() {
    run=$1 options=$2
    shift 2
    last="srun $options tandem $*"
    : >"$run.err"
    srun $options "$TANDEM" "$@" >out 2>"$run.err" </dev/null &
    pid=$!
}

# ranks NAME: the processes of a run
ranks() {
    sed -n 's/^ranks: rank [0-9]* of [0-9]* is process \([0-9]*\),.*/\1/p' "$1.err"
}

gone() {
    for process in $(ranks "$1"); do
        n=0
        while grep -qs '^State:.[^ZX]' "/proc/$process/status"; do
            n=$((n + 1))
            [ $n -gt 1000 ] && complain "process $process is left behind" && break
            sleep 0.01
        done
    done
}

drawn set --classes 4 --train 96 --val 23
plain_model plain.td 32 16 32 1 0.1
fixed="--model plain.td --threads 1 --workers 1 --seed 7 --lr 0.01 --final-state -b 8"
all="$fixed --epochs 2 --no-checkpoints"
for n in 1 2 3; do
    expect 0 train set $all --optimizer-batch-size $((8 * n)) --final-weights "one.$n"
done

# --- without MPI: one task trains; several would train alone, each in the same folder ------------------------
task 0 "-n 1" train set $all --final-weights srun.safetensors
same one.1 srun.safetensors
task 2 "-n 2" train set $fixed --epochs 2 --workspace none
error_names srun 2 --mpi=pmix --mpi=pmi2
[ ! -e none ] || complain "a task has trained alone"

for type in $types; do
    # --- the same bytes -----------------------------------------------------------------------------------
    for n in 2 3; do
        rm -f srun.safetensors
        task 0 "--mpi=$type -n $n" train set $all --final-weights srun.safetensors
        log_names train: "$n ranks"
        same "one.$n" srun.safetensors
    done

    # --- the library of the other MPI -----------------------------------------------------------------------
    if [ "$mpis" = "openmpi mpich" ]; then
        other=mpich
        [ $type = pmix ] || other=openmpi
        export TANDEM_MPI_PLUGIN="$TANDEM_BUILD/libtandem_mpi_$other.so"
        task 1 "--mpi=$type -n 2" train set $fixed --epochs 2 --workspace none
        unset TANDEM_MPI_PLUGIN
        [ $type = pmi2 ] || error_names 'of 2' 'of 1' srun --mpi
        [ ! -e none ] || complain "a task has trained alone"
    fi

    # --- a signal as of #SBATCH --signal: saved, and resumed ----------------------------------------------------
    starts_tasks term "--mpi=$type -n 2" train --log debug set $fixed -p 1 --epochs 100000 --workspace run --overwrite
    waits term 'epoch 2, ' && scancel --signal=TERM "$(squeue -h -o %A)"
    ends term 3
    says '^tandem: stopped: .*checkpoint'
    gone term
    task 0 "--mpi=$type -n 2" train set $fixed --epochs 100000 --workspace run --resume run/checkpoint.safetensors --run-iters 3

    # --- a killed rank ------------------------------------------------------------------------------------
    starts_tasks kill "--mpi=$type -n 2" train --log debug set $fixed -p 1 --epochs 100000 --workspace run --overwrite
    waits kill 'epoch 2, ' && kill -KILL "$(ranks kill | tail -n 1)"
    code=0
    wait $pid || code=$?
    [ $code != 0 ] || complain "exit code 0 after a rank was killed"
    gone kill
done

# --- a batch script ---------------------------------------------------------------------------------------
[ -n "$types" ] || finish
cat >batch <<END
#!/bin/sh
#SBATCH --nodes=1 --ntasks-per-node=2 --cpus-per-task=1 --time=1:00:00
#SBATCH --signal=TERM@120
$TANDEM train set $all --final-weights batch.1 &&
    srun --mpi=${types##* } --cpu-bind=none $TANDEM train set $all --final-weights batch.2
END
last="sbatch"
sbatch --wait -o err batch >out </dev/null || complain "exit code $?"
same one.1 batch.1
same one.2 batch.2
finish
