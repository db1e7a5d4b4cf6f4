# hostile_process.sh -- where a process is started: closed descriptors, a full standard output, a terminal that goes away,
# and names of files that would write to the terminal
set -u
. "$TANDEM_SOURCE/tests/e2e/lib.sh"
. "$TANDEM_SOURCE/tests/e2e/lib_files.sh"
. "$TANDEM_SOURCE/tests/e2e/lib_background.sh"

drawn set --classes 2 --train 16 --val 4
small_model small.td 32 2
net="--model small.td -b 8 --threads 1 --workers 1 --seed 3 --lr 0.01"
expect 0 train set $net --epochs 1 --workspace whole --log debug --csv whole.csv --final-weights whole.safetensors --final-state

# --- closed descriptors: no file gets what was meant for them ---------------------------------------
closed() {
    wanted=$1
    shift
    rm -rf run c.csv f.safetensors
    last="closed: $*"
    code=0
    case $* in
    0) run <&- >out 2>err ;;
    1) run >&- 2>err ;;
    2) run >out 2>&- ;;
    '0 1') run <&- >&- 2>err ;;
    '0 2') run <&- >out 2>&- ;;
    '1 2') run >&- 2>&- ;;
    '0 1 2') run <&- >&- 2>&- ;;
    esac
    [ $code = "$wanted" ] || complain "exit code $code, wanted $wanted"
    same whole.safetensors f.safetensors
    [ "$(head -1 c.csv)" = "$(head -1 whole.csv)" ] && [ "$(wc -l <c.csv)" = 2 ] || complain "c.csv: $(cat c.csv)"
    report_is_sound run/experiment_raport.json
    if grep -l 'train: \|^epoch  \|^checkpoint ' run/config.yaml c.csv; then complain "log lines in a file"; fi
}
run() {
    "$TANDEM" train set $net --epochs 1 --workspace run --log debug --csv c.csv --final-weights f.safetensors --final-state || code=$?
}
: >out
: >err
# without standard output the result has no place to go: an error; all else is done
closed 0 0
closed 1 1
closed 0 2
closed 1 0 1
closed 0 0 2
closed 1 1 2
closed 1 0 1 2
code=0
"$TANDEM" classify - --weights whole.safetensors --model small.td >out 2>err <&- || code=$?
last="classify - with standard input closed"
[ $code -gt 0 ] && [ $code -lt 128 ] || complain "exit code $code"

# --- standard output that takes nothing ---------------------------------------------------------------
if [ -e /dev/full ]; then
    for line in "train set $net --epochs 1 --workspace full --no-checkpoints" "evaluate set --weights whole/checkpoint.safetensors" \
        "classify set/val/circle/00000.jpg --weights whole/checkpoint.safetensors --json-lines" "help train" version "inspect ops" \
        "evaluate set --weights whole/checkpoint.safetensors --json" "train set $net --print-config" \
        "convert whole/checkpoint.safetensors c.safetensors" "report whole" "dataset check set"; do
        last="tandem $line >/dev/full"
        code=0
        "$TANDEM" $line >/dev/full 2>err || code=$?
        [ $code = 1 ] || complain "exit code $code, wanted 1"
        error_names 'standard output'
    done
fi

# --- SIGHUP: a terminal that was closed ------------------------------------------------------------------
holds hang 'epoch 0, iteration 1/' train set $net --epochs 4 -p 1 --workspace hang
kill -HUP $pid
sleep 0.2
kill -HUP $pid # the shell's and the kernel's
ends hang 3
says "^tandem: stopped: .*'hang/checkpoint.safetensors'"
expect 0 train set --resume hang/checkpoint.safetensors --final-weights hang.safetensors --final-state
expect 0 train set $net --epochs 4 --workspace straight --final-weights straight.safetensors --final-state
same straight.safetensors hang.safetensors
# under nohup it stays ignored
: >nohup.err
(trap '' HUP && exec "$TANDEM_BUILD/tests/held" nohup.err 'epoch 0, iteration 1/' "$TANDEM" train set $net --epochs 4 -p 1 \
    --workspace nohup --overwrite --final-weights nohup.safetensors --final-state >out </dev/null) &
pid=$!
waits nohup 'epoch 0, iteration 1/' && kill -HUP $pid
ends nohup 0
same straight.safetensors nohup.safetensors

# --- a signal while a file is written: the process ends by it, and neither that file nor its temporary is left ------
# ends_writing SIGNAL FILE ARGUMENTS...: the signal comes in the second call that writes FILE
ends_writing() {
    signal=$1
    file=$2
    shift 2
    last="signal $signal: tandem $*"
    code=0
    ASAN_OPTIONS=verify_asan_link_order=0 LD_PRELOAD=$TANDEM_BUILD/tests/kill_at.so KILL_AT=2 KILL_WITH="$signal" KILL_PATH="$file" \
        "$TANDEM" "$@" >out 2>err </dev/null || code=$?
    [ $code = $((128 + signal)) ] || complain "exit code $code"
    if ls | grep -q "$file"; then complain "left: $(ls -d "$file"*)"; fi
}
for signal in 1 2 15; do
    ends_writing $signal half.onnx convert whole/checkpoint.safetensors half.onnx
    ends_writing $signal half.safetensors init --arch resnet18 -o half.safetensors
    ends_writing $signal half8.safetensors quantize whole/checkpoint.safetensors set -o half8.safetensors
done

# --- names that a terminal would obey ----------------------------------------------------------------------
name=$(printf 'x\033]0;owned\007\033[2J\r\ntandem: error: forged \302\233 \342\200\256 \351.jpg')
visible='x\\x1b]0;owned\\x07\\x1b\[2J\\x0d\\ntandem: error: forged \\u009b \\u202e \\xe9.jpg'
expect 1 classify "$name" --weights whole/checkpoint.safetensors
says "'$visible'"
[ "$(wc -l <err)" = 1 ] || complain "more than one line"
expect 1 evaluate set --weights "$name"
says "'$visible'"
expect 1 train "$name" $net --workspace run
says "'$visible"
expect 2 train set $net --workspace run "--$name"
[ "$(grep -c '^tandem: error' err)" = 1 ] || complain "more than one error"
cp whole/checkpoint.safetensors "$name.safetensors"
echo none >"set/train/circle/$name"
expect 0 train set $net --epochs 1 --max-bad 1 --workspace "odd $name" --training-only
cp err all
"$TANDEM" evaluate set --weights "$name.safetensors" >>out 2>>all
"$TANDEM" train set --resume "$name.safetensors" --epochs 2 --max-bad 1 --training-only >>out 2>>all
last="every message about such names"
grep -q "^train: resumed '$visible.safetensors'" all || complain "did not resume: $(tail -1 all)"
if LC_ALL=C tr -d '\n\t\40-\176' <all | grep -q .; then complain "raw bytes on stderr"; fi
if grep -q '^tandem: error: forged' all; then complain "a forged line on stderr"; fi
finish
