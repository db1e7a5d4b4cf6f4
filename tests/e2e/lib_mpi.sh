# lib_mpi.sh -- sourced by tests that start ranks by mpirun
#
#   $mpis           "openmpi mpich", those whose mpirun and plug-in are installed
#   $mpis_missing   the sentence for a test that is skipped without any
#
# mpirun starts ranks of a container's root, and more of them than there are cores.
mpis=""
for mpi in openmpi mpich; do
    command -v mpirun.$mpi >/dev/null 2>&1 && [ -e "$TANDEM_BUILD/libtandem_mpi_$mpi.so" ] && mpis="$mpis${mpis:+ }$mpi"
done
mpis_missing="skipped: no mpirun with its plug-in (scripts/setup --mpi brings Open MPI and MPICH)"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
