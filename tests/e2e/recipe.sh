# ctest: timeout 240
# recipe.sh -- options of the recipe that change what is kept or counted: --gather-checkpoints, --topk,
# --bn-weight-decay; the spellings of names in weight files; quantiles and warm-up of the benchmark
set -u
. "$TANDEM_SOURCE/tests/e2e/lib.sh"
. "$TANDEM_SOURCE/tests/e2e/lib_files.sh"

drawn set --classes 6 --train 48 --val 18
small_model small.td 32 6
small="--model small.td --threads 1 --workers 1 --seed 1 --lr 0.01 -b 8"

# --- checkpoints of epochs ------------------------------------------------------------------------
# kept N FILES...: a run of four epochs with --gather-checkpoints N leaves exactly these epoch files
kept() {
    n=$1
    shift
    expect 0 train set $small --epochs 4 --gather-checkpoints "$n" --workspace "keep$n"
    found=$(cd "keep$n" && ls | grep '^checkpoint_' | tr '\n' ' ')
    [ "$found" = "${*:+$* }" ] || complain "--gather-checkpoints $n kept '$found', wanted '$*'"
    [ -e "keep$n/checkpoint.safetensors" ] && [ -e "keep$n/model_best.safetensors" ] ||
        complain "--gather-checkpoints $n: the last or the best is missing"
    tidy "keep$n"
}
e=checkpoint_000
kept 0
kept 2 ${e}2.safetensors ${e}3.safetensors
kept -1 ${e}0.safetensors ${e}1.safetensors ${e}2.safetensors ${e}3.safetensors
payload keep-1/${e}3.safetensors >a.bytes
payload keep2/${e}3.safetensors >b.bytes
same a.bytes b.bytes

# the file of an epoch is a checkpoint: going on from it is the same run
expect 0 train set $small --epochs 4 --resume keep-1/${e}1.safetensors --workspace again --final-weights again.safetensors
expect 0 train set $small --epochs 4 --resume keep2/checkpoint.safetensors --workspace none --final-weights whole.safetensors
same again.safetensors whole.safetensors

# the best is the first of equals: at a learning rate of 0 only the running statistics move
expect 0 train set --model small.td --threads 1 --workers 1 --seed 1 -b 8 --lr 0 --momentum 0 --wd 0 --epochs 6 \
    --workspace still
first=$(for epoch in 0 1 2 3 4 5; do metric still/experiment_raport.json $epoch val.top1; done |
    awk '$1 > best { best = $1; at = NR - 1 } $1 == best { ties++ } END { print at, NR, ties }')
expect 0 inspect checkpoint still/checkpoint.safetensors
prints "\"best_epoch\": ${first%% *},"

# --- top-k ----------------------------------------------------------------------------------------
expect 0 train set $small --epochs 1 --topk 2 --workspace two --json
prints '"top2": [0-9.]+'
expect 0 evaluate set --weights two/checkpoint.safetensors --topk 1 --json
top1=$(sed 's/.*"n_top1": \([0-9]*\).*/\1/' out)
prints "\"n_topk\": $top1, .*\"k\": 1,"
before=0
for k in 2 3 4 5; do
    expect 0 evaluate set --weights two/checkpoint.safetensors --topk $k --json
    now=$(sed 's/.*"n_topk": \([0-9]*\).*/\1/' out)
    [ "$now" -ge "$before" ] || complain "top$k has $now right, top$((k - 1)) $before"
    before=$now
done
expect 0 evaluate set --weights two/checkpoint.safetensors --topk 6 --json
prints '"n_topk": 18, .*"k": 6,.*"top6": 100'

# --- weight decay of batch norm -------------------------------------------------------------------
# bytes FILE TENSOR: the tensor's payload
bytes() {
    range=$(header "$1" | tr '{' '\n' | grep -A1 "\"$2\":" | tail -1 | sed -n 's/.*"data_offsets": *\[\([0-9]*\), *\([0-9]*\)\].*/\1 \2/p')
    [ -n "$range" ] || complain "$1 has no $2"
    payload "$1" | tail -c +$((${range% *} + 1)) | head -c $((${range#* } - ${range% *})) | od -An -t x1
}
one="--run-iters 1 --epochs 1 --momentum 0 --no-checkpoints --training-only"
expect 0 train set $small $one --wd 0 --workspace a --final-weights plain.safetensors
expect 0 train set $small $one --wd 0.5 --workspace b --final-weights decayed.safetensors
expect 0 train set $small $one --wd 0.5 --bn-weight-decay --workspace c --final-weights all.safetensors
last="weight decay"
norm=$(header plain.safetensors | tr '",' '\n\n' | grep '^bn.*weight$' | head -1)
conv=$(header plain.safetensors | tr '",' '\n\n' | grep '^conv.*weight$' | head -1)
[ "$(bytes plain.safetensors "$norm")" = "$(bytes decayed.safetensors "$norm")" ] || complain "$norm is decayed"
[ "$(bytes plain.safetensors "$norm")" != "$(bytes all.safetensors "$norm")" ] || complain "$norm is not decayed"
[ "$(bytes plain.safetensors "$conv")" != "$(bytes decayed.safetensors "$conv")" ] || complain "$conv is not decayed"
[ "$(bytes decayed.safetensors "$conv")" = "$(bytes all.safetensors "$conv")" ] || complain "$conv depends on the switch"

# --- names in weight files ------------------------------------------------------------------------
# renamed SCRIPT FROM TO: FROM with its header sent through sed, without the digest, its payload as it is
renamed() {
    header "$2" | sed "s/\"digest\":\"[^\"]*\",\"digest_of\":\"[^\"]*\",//; $1" >text
    { le64 "$(wc -c <text)"; cat text; payload "$2"; } >"$3"
}
net="--arch se-resnet50 --num-classes 6"
expect 0 init $net --seed 3 -o plain.safetensors --overwrite
expect 0 evaluate set $net --image-size 32 --weights plain.safetensors --logits want.safetensors
for script in 's/"\([a-z][a-z0-9]*\.\)/"module.\1/g; s/"module\.tandem\./"tandem./g' \
    's/"\([a-z][a-z0-9]*\.\)/"module.1.\1/g; s/"module\.1\.tandem\./"tandem./g' \
    's/"layer4\./"layers.3./g; s/"layer3\./"layers.2./g; s/"layer2\./"layers.1./g; s/"layer1\./"layers.0./g' \
    's/\.se\.fc1\./.squeeze.squeeze./g; s/\.se\.fc2\./.squeeze.expand./g' \
    's/\(se\.fc[12]\.weight":{"dtype":"F32","shape":\[[0-9]*,[0-9]*\),1,1\]/\1]/g'; do
    renamed "$script" plain.safetensors other.safetensors
    cmp -s plain.safetensors other.safetensors && complain "sed '$script' changed nothing"
    expect 0 evaluate set $net --image-size 32 --weights other.safetensors --logits got.safetensors
    same want.safetensors got.safetensors
done
renamed 's/"layer1\./"layers.7./g' plain.safetensors other.safetensors
expect 1 evaluate set $net --image-size 32 --weights other.safetensors
says "other.safetensors"

# --- benchmark ------------------------------------------------------------------------------------
expect 0 benchmark --mode inference --arch resnet18 --image-size 32 -b 1 --threads 1 --iters 9 --warmup 2 --no-bound --json
prints '"iters": 9, "warmup": 2, '
sed 's/.*"images_per_s": {"median": \([0-9.]*\), "min": \([0-9.]*\), "max": \([0-9.]*\)}.*"avg": \([0-9.]*\), "p50": \([0-9.]*\), "p90": \([0-9.]*\), "p95": \([0-9.]*\), "p99": \([0-9.]*\), "max": [0-9.]*}.*/\1 \2 \3 \4 \5 \6 \7 \8/' out >numbers
awk 'NF != 8 || !($2 <= $1 && $1 <= $3 && $5 <= $6 && $6 <= $7 && $7 <= $8) { exit 1 }
     { d = 1000 / $5 / $1; slow = 1000 / $2; fast = 1000 / $3 }
     d < 0.999 || d > 1.001 || $4 < fast * 0.999 || $4 > slow * 1.001 || $8 > slow * 1.001 { exit 1 }' numbers ||
    complain "quantiles do not fit: $(cat numbers)"
# --- the validation loss of a training with label smoothing says so, and is evaluate's with the same -------
expect 0 train set $small --epochs 1 --label-smoothing 0.1 --workspace smooth
loss=$(sed -n "s/^val loss  *\\([0-9.]*\\), with label smoothing 0.1; .*--label-smoothing 0.1$/\\1/p" out)
[ -n "$loss" ] || complain "no loss with its reason"
expect 0 evaluate set --weights smooth/checkpoint.safetensors -b 8 --threads 1 --label-smoothing 0.1
prints "^loss +$loss$"
expect 0 evaluate set --weights smooth/checkpoint.safetensors -b 8 --threads 1
if grep -q "^loss  *$loss$" out; then complain "smoothing makes no difference"; fi
# with mixup it is without label smoothing, as the reference's, and says so; a report shows which loss is which
expect 0 train set $small --epochs 1 --label-smoothing 0.1 --mixup 0.2 --warmup 1 --workspace mixed
log_names train: --warmup 1
loss=$(sed -n "s/^val loss  *\\([0-9.]*\\), without label smoothing, .*/\\1/p" out)
[ -n "$loss" ] || complain "no loss with its reason"
expect 0 evaluate set --weights mixed/checkpoint.safetensors -b 8 --threads 1
prints "^loss +$loss$"
expect 0 report smooth mixed
prints '^its label smoothing +0\.10 +0\.00$'
expect 0 report mixed
if grep -q '^its label smoothing' out; then complain "a row of smoothing where there is none"; fi
finish
