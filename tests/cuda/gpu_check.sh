#!/bin/sh
# gpu_check.sh -- scripts/gpu_check on the stand-in: each step with tiny networks, a step that fails, no GPU
set -u
. "$TANDEM_SOURCE/tests/e2e/lib.sh"
. "$TANDEM_SOURCE/tests/e2e/lib_cuda.sh"
cd "$WORK" || exit 1
export TANDEM_NCCL="$stand_in"

# check CODE ARGUMENTS...
check() {
    wanted=$1
    shift
    last="gpu_check $*"
    code=0
    "$TANDEM_SOURCE/scripts/gpu_check" --small --work "$WORK/work" --out "$WORK/page.md" "$@" >out 2>err </dev/null || code=$?
    [ "$code" = "$wanted" ] || { complain "exit code $code, wanted $wanted"; tail -n 5 work/*.log >&2; }
}

# --- no GPU: one sentence
if [ ! -e /proc/driver/nvidia/version ] && [ ! -e /dev/nvidiactl ]; then
    unset TANDEM_GPU_PLUGIN
    check 1
    log_names NVIDIA driver
    [ "$(cat out err | wc -l)" = 1 ] || complain "more than one line"
fi
export TANDEM_GPU_PLUGIN="$stand_in"
TANDEM_STAND_IN_DEVICES=0
export TANDEM_STAND_IN_DEVICES
check 1 --steps ops
log_names GPU
[ ! -e page.md ] || complain "a page without a GPU"
unset TANDEM_STAND_IN_DEVICES
check 2 --steps 'ops everything'

# --- all that needs no GPU of its own
TANDEM_STAND_IN_DEVICES=2
export TANDEM_STAND_IN_DEVICES
check 0 --steps 'ops golden parity resume ranks bench'
unset TANDEM_STAND_IN_DEVICES
for step in ops golden parity resume ranks bench; do
    prints "^$step +[0-9]+ s +passed\$"
    grep -Eq "^\| $step \| passed \| [0-9]+ \|\$" page.md || complain "no row of $step in the page"
done
grep -q '^cuda: .* batch_norm_grad [1-9]' work/ops.log || complain "ops: no kernel of the GPU was compared"
grep -Eq '^- GPU: stand-in 0, compute capability 9\.0' page.md || complain "the page does not name the GPU"
for mode in training inference; do
    grep -Eq "^\| examples/small_cnn.td \| $mode \| fp16 \| 8 \| Tandem \| [0-9.]+ \([0-9.]+–[0-9.]+\) \|  \|\$" page.md ||
        complain "no speed of $mode in the page"
done
grep -Eq '^\| examples/small_cnn.td \| training \| fp16 \| 8 \| Tandem, norms apart \| [0-9.]+ \([0-9.]+–[0-9.]+\) \| [0-9.]+ \|$' page.md ||
    complain "no speed with norms apart in the page"

# --- steps that fail: the others run, the table names them
TANDEM_STAND_IN_FAIL=9 # in every process: a call of cuDNN
export TANDEM_STAND_IN_FAIL
check 1 --steps 'parity bench resume'
for step in parity bench resume; do
    prints "^$step .*FAILED"
    grep -q "^| $step | FAILED" page.md || complain "the page does not say that $step failed"
done
grep -q '^| examples.*| failed: ' page.md || complain "the failure is not in the table of speeds"
unset TANDEM_STAND_IN_FAIL
check 1 --steps 'ops' --minutes 0
prints '^ops +0 s +not run'
finish
