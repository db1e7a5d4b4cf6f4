# ctest: processors 2
# ranks_mpi.sh -- ranks that mpirun starts: the bytes of ranks that `launch` starts; skipped where there is no MPI
set -u
. "$TANDEM_SOURCE/tests/e2e/lib.sh"
. "$TANDEM_SOURCE/tests/e2e/lib_files.sh"

if ! command -v mpirun >/dev/null 2>&1 || [ ! -e "$TANDEM_BUILD/libtandem_mpi.so" ]; then
    echo "skipped: no mpirun, or no libtandem_mpi.so (scripts/setup --mpi brings Open MPI)" >&2
    exit 77
fi

# mpi CODE RANKS ARGUMENTS...
mpirun=mpirun
mpi() {
    wanted=$1 ranks=$2
    shift 2
    last="$mpirun -np $ranks tandem $*"
    code=0
    OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 \
        $mpirun -np "$ranks" "$TANDEM" "$@" >out 2>err </dev/null || code=$?
    [ "$code" = "$wanted" ] || complain "exit code $code, wanted $wanted"
}

drawn set --classes 4 --train 96 --val 23
small_model small.td 32 4
all="--model small.td --threads 1 --workers 1 --seed 7 --lr 0.01 -b 8 --epochs 1 --no-checkpoints --final-state"
expect 0 launch --nproc 2 train set $all --final-weights launch.safetensors
mpi 0 2 train set $all --final-weights mpi.safetensors
log_names train: '2 ranks'
prints '^steps +6$'
[ "$(grep -c '^steps' out)" = 1 ] || complain "several ranks have printed"
same launch.safetensors mpi.safetensors
# the same by MPICH, where it is besides: a library of its own, and other variables that name the ranks
if command -v mpirun.mpich >/dev/null 2>&1 && command -v mpicc.mpich >/dev/null 2>&1; then
    last="mpicc.mpich"
    mpicc.mpich -std=c11 -D_GNU_SOURCE -fPIC -shared -I"$TANDEM_SOURCE/include" -I"$TANDEM_SOURCE/src" -o mpich.so \
        "$TANDEM_SOURCE"/src/backend/mpi/*.c 2>err || complain "the library for MPICH does not build"
    export TANDEM_MPI_PLUGIN="$PWD/mpich.so"
    mpirun=mpirun.mpich
    mpi 0 2 train set $all --final-weights mpich.safetensors
    log_names train: '2 ranks'
    same launch.safetensors mpich.safetensors
    mpirun=mpirun
    unset TANDEM_MPI_PLUGIN
fi
mpi 1 2 train nowhere $all
error_names "'nowhere'"
# without the library: a sentence that says what to do
last="a plug-in that is not there"
code=0
OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 TANDEM_MPI_PLUGIN=./none.so "$TANDEM" train set $all >out 2>err || code=$?
[ $code = 1 ] || complain "exit code $code, wanted 1"
error_names libtandem_mpi.so "'tandem launch'"
finish
