# lib_cuda.sh -- device cuda on the stand-ins of CUDA's libraries; the test is skipped where they were not built
stand_in=$TANDEM_BUILD/tests/libtandem_cuda_stand_in.so
[ -f "$stand_in" ] || { echo "skipped: no C++ compiler, so no plug-in"; exit 77; }
export TANDEM_GPU_PLUGIN="$stand_in" TANDEM_CUDNN="$stand_in" TANDEM_CUBLASLT="$stand_in"

# norm NAME CHANNELS X Y -- graph text: Y = batch norm of X
norm() {
    echo "%$1.weight:f32[$2] = param {init=ones}"
    echo "%$1.bias:f32[$2] = param"
    echo "%$1.running_mean:f32[$2] = param {role=stat}"
    echo "%$1.running_var:f32[$2] = param {role=stat, init=ones}"
    echo "%$4 = batch_norm_infer %$3, %$1.weight, %$1.bias, %$1.running_mean, %$1.running_var"
}

# close_losses NAME OTHER LIMIT -- every loss in NAME.losses within LIMIT, relatively, of that in OTHER.losses
close_losses() {
    [ "$(wc -l <"$1.losses")" -ge 3 ] || complain "not three losses in $1"
    paste "$1.losses" "$2.losses" | awk -v limit="$3" '{ d = $1 - $2; if (NF != 2 || d * d > limit * limit * $1 * $1) exit 1 }' ||
        complain "losses of $1 and $2: $(paste "$1.losses" "$2.losses" | tr '\n\t' ' /')"
}
