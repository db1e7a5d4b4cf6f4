# lib_cuda.sh -- device cuda on the stand-ins of CUDA's libraries; the test is skipped where they were not built
stand_in=$TANDEM_BUILD/tests/libtandem_cuda_stand_in.so
[ -f "$stand_in" ] || { echo "skipped: no C++ compiler, so no plug-in"; exit 77; }
export TANDEM_GPU_PLUGIN="$stand_in" TANDEM_CUDNN="$stand_in" TANDEM_CUBLASLT="$stand_in"
