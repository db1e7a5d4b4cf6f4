# lib_cuda_input.sh -- sourced after lib_cuda.sh by tests of what is copied to the device as images
#
#   run INPUT ARGUMENTS...       a command with TANDEM_INPUT=u8 or f32, or usual: without it; copies to the device go to
#                                copies.INPUT, and what it prints but times to result.INPUT
#   copied INPUT BYTES TIMES     so often were images of as many bytes copied, alone or with the other inputs of a step;
#                                once more if the smaller batch at the end was sent ahead
#   as_bytes TIMES ARGUMENTS...  as many batches of $BYTES bytes; with f32, of four times as many; the same results

run() {
    input=$1
    rm -f "copies.$input"
    shift
    case $input in
    usual) TANDEM_STAND_IN_COPIES=copies.$input expect 0 "$@" ;;
    *) TANDEM_STAND_IN_COPIES=copies.$input TANDEM_INPUT=$input expect 0 "$@" ;;
    esac
    grep -Ev '^(images/s|latency|checkpoint|best weights|workspace) ' out >"result.$input"
}

copied() {
    n=$(awk -v least="$2" '$1 >= least && $1 < least + 1024 { n++ } END { print n + 0 }' "copies.$1")
    most=$(($3 + ($3 > 0)))
    [ "$n" -ge "$3" ] && [ "$n" -le $most ] || complain "$n copies of $2 bytes, wanted $3 ($1)"
}

# compares what two runs printed and, where there are, the weights that they trained
run_both() {
    run f32 "$@"
    [ ! -e final.safetensors ] || mv final.safetensors floats.safetensors
    run usual "$@"
    cmp result.f32 result.usual >&2 || complain "other results"
    [ ! -e final.safetensors ] || cmp floats.safetensors final.safetensors >&2 || complain "other weights"
}

as_bytes() {
    times=$1
    shift
    run_both "$@"
    copied f32 $((4 * BYTES)) "$times"
    copied usual "$BYTES" "$times"
    copied usual $((4 * BYTES)) 0
}
