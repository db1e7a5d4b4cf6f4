#!/bin/sh
# ctest: timeout 600
# gpu_check.sh -- scripts/gpu_check on the stand-in: each step with tiny networks, a step that fails, no GPU, a bundle
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
check 0 --steps 'ops golden parity resume ranks bench accuracy walkthrough peers'
unset TANDEM_STAND_IN_DEVICES
for step in ops golden parity resume ranks bench accuracy walkthrough; do
    prints "^$step +[0-9]+ s +passed\$"
    grep -Eq "^\| $step \| passed \| [0-9]+ \|\$" page.md || complain "no row of $step in the page"
done
prints '^peers +[0-9]+ s +skipped: PyTorch'
grep -q 'steps_of_lamb' work/ops.log || complain "ops: updates of many tensors were not run"
grep -q '^cuda: .* batch_norm_grad [1-9]' work/ops.log || complain "ops: no kernel of the GPU was compared"
grep -Eq '^- GPU: stand-in 0, compute capability 9\.0' page.md || complain "the page does not name the GPU"
for mode in training inference; do
    grep -Eq "^\| examples/small_cnn.td \| $mode \| fp16 \| 8 \| Tandem \| [0-9.]+ \([0-9.]+–[0-9.]+\) \|  \|\$" page.md ||
        complain "no speed of $mode in the page"
done
grep -Eq '^\| examples/small_cnn.td \| training \| fp16 \| 8 \| Tandem, norms apart \| [0-9.]+ \([0-9.]+–[0-9.]+\) \| [0-9.]+ \|$' page.md ||
    complain "no speed with norms apart in the page"

grep -Eq '^    tf32 +-b 4 --precision tf32 ' page.md || complain "no walkthrough in the page"
grep -Eq '^- drawn images, fp16 on the GPU \(processor, float32: [0-9.]+ %\): [0-9.]+ %, at least' page.md ||
    complain "no accuracy in the page"
grep -q '^- properties of the GPU: gpus/stand-in-0.json' page.md || complain "the page does not name the properties"
grep -q '"multiProcessorCount"' gpus/stand-in-0.json || complain "no properties of the GPU"

# --- --keep: what was found earlier stays; --rows measures these only
cp page.md before.md
check 0 --steps bench --keep --rows 'Tandem .* inference'
for step in ops golden parity; do
    grep -q "^| $step | passed" page.md || complain "--keep has lost $step"
done
[ "$(grep -c '^| bench |' page.md)" = 1 ] || complain "bench is there twice"
[ "$(grep '^| .* | training | .* | Tandem |' page.md)" = "$(grep '^| .* | training | .* | Tandem |' before.md)" ] ||
    complain "--rows has measured or lost a training"
[ "$(grep '^| .* | inference | .* | Tandem |' page.md)" != "$(grep '^| .* | inference | .* | Tandem |' before.md)" ] ||
    complain "--rows has not measured inference"
check 1 --steps ops --cifar nowhere
log_names --cifar nowhere

# --- a bundle, unpacked elsewhere
XZ_OPT=-0 TANDEM_GPU_PLUGIN="$stand_in" sh "$TANDEM_SOURCE/scripts/gpu_bundle" --out "$WORK/bundle.tar.xz" >out 2>err || complain "no bundle: $(cat err)"
tar xf bundle.tar.xz
mv tandem-gpu elsewhere
(
    unset TANDEM_BUILD TANDEM_SOURCE TANDEM_GOLDEN TANDEM
    there=$WORK/elsewhere/build/release/libtandem_cuda.so # one library has one memory
    export TANDEM_GPU_PLUGIN="$there" TANDEM_CUDNN="$there" TANDEM_CUBLASLT="$there" TANDEM_NCCL="$there"
    elsewhere/scripts/gpu_check --small --work "$WORK/there" --out "$WORK/there.md" --steps 'ops golden resume' >out 2>err
) || complain "the bundle fails: $(cat out err)"
for step in ops golden resume; do
    grep -q "^| $step | passed" there.md || complain "$step did not pass in the bundle"
done
grep -q "commit $(cat elsewhere/BUNDLE)" there.md || complain "no commit in the page of the bundle"
elsewhere/scripts/gpu_check --small --steps build >out 2>err && complain "a bundle builds"

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
