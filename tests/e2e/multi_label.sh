# multi_label.sh -- several labels for an image, as columns of 0 and 1 or with a delimiter: training, evaluation, every
# verb that reads the weights; contradictions are errors; tests/oracle/multi_label.py judges the numbers
# ctest: timeout 480
set -u
. "$TANDEM_SOURCE/tests/e2e/lib.sh"
. "$TANDEM_SOURCE/tests/e2e/lib_files.sh"
. "$TANDEM_SOURCE/tests/e2e/lib_serve.sh"

expect 0 dataset draw set --classes 3 --train 24 --val 9 --size 32 --seed 3
# circle: drawn as one; even, third: by the number of the row; some rows have none of them
find set -name '*.jpg' | sort | awk -F/ 'BEGIN { print "image,circle,even,third,split" }
    { print $0 "," ($3 == "circle") "," (NR % 2 == 0) "," (NR % 3 == 0) "," $2 }' >columns.csv
awk -F, 'NR == 1 { print "image,labels,split"; next }
    { s = ""; if ($2) s = s "|circle"; if ($3) s = s "| even "; if ($4) s = s "|third"; print $1 "," substr(s, 2) "," $5 }' \
    columns.csv | sed 's/labels/label/' >delimiter.csv
image=set/val/circle/00000.jpg
small_model net.td 32 3
run="--model net.td --threads 1 --workers 1 --seed 1 -b 4 --lr 0.01 --loss bce"

# --- training: both forms, resumed, with mixed images, on two ranks ----------------------------------------
expect 0 train columns.csv $run --epochs 2 --workspace a --final-weights a.safetensors --json
prints '"mAP": 0\.[0-9]+, "micro_f1": [0-9.]+, "macro_f1": [0-9.]+, "best_mAP": 0\.[0-9]+'
best=$(grep -o '"best_mAP": [0-9.]*' out)
log_names mAP micro macro
if grep top1 out err; then complain "it has no top1"; fi
expect 0 convert a/checkpoint.safetensors kept.safetensors --json
grep -q "$best" out || complain "no $best"
if grep top1 out; then complain "convert knows a top1"; fi
expect 0 convert a/checkpoint.safetensors kept.safetensors --overwrite
prints '^best mAP 0\.[0-9]+$'
header a.safetensors >out
prints '"tandem.multi_label":"1"'
prints '"tandem.classes":"\[\\"circle\\", \\"even\\", \\"third\\"\]"'
expect 0 train delimiter.csv --list-delimiter '|' $run --epochs 2 --workspace b --final-weights b.safetensors
payload a.safetensors >one
payload b.safetensors >two
same one two
expect 0 train delimiter.csv --list-delimiter '|' $run --epochs 1 --workspace b1
expect 0 train delimiter.csv --resume b1/checkpoint.safetensors --epochs 2 --workspace b1 --final-weights b1.safetensors
payload b1.safetensors >two
same one two
expect 0 train columns.csv $run --epochs 1 --workspace c
expect 0 train columns.csv --resume c/checkpoint.safetensors --epochs 2 --workspace c --final-weights c.safetensors
payload c.safetensors >two
same one two
grep -q '"val.mAP"' a/experiment_raport.json || complain "the report has no mAP"
grep -q '"val.AP.circle"' a/experiment_raport.json || complain "the report has no AP of a class"
expect 0 report a b -o page.html
grep -q 'best mAP' page.html || complain "no row of mAP"
grep -q 'AP by class' page.html || complain "no table of classes"
# weights of positive targets: 1 changes nothing, the shares are those of the training set
expect 0 train columns.csv $run --pos-weight 1 --epochs 2 --workspace p --final-weights p.safetensors
payload p.safetensors >two
payload a.safetensors >one
same one two
expect 0 train columns.csv $run --pos-weight balanced --epochs 1 --workspace p1 --final-weights p1.safetensors
expect 0 train columns.csv $run --pos-weight 2,1,2 --epochs 1 --workspace p2 --final-weights p2.safetensors
payload p1.safetensors >one
payload p2.safetensors >two
same one two
expect 0 train columns.csv $run --mixup 0.2 --cutmix 1 --bce-target-thresh 0.2 --epochs 1 --no-checkpoints --workspace d
expect 0 launch --nproc 2 train columns.csv $run -b 2 --epochs 1 --no-checkpoints --workspace e
expect 0 train columns.csv $run --val-list columns.csv --epochs 1 --no-checkpoints --workspace f --use-ema 0.9 --json
prints '"mAP": 0\.[0-9]+, .*"ema_mAP": [0-9.]+, "ema_micro_f1": [0-9.]+, "ema_loss": '
expect 0 train columns.csv $run --epochs 1 --training-only --no-checkpoints --workspace f --overwrite --json
prints '"val_loss": null, "mAP": null, "micro_f1": null, "macro_f1": null, "best_mAP": null'
grep -v ,val columns.csv >train.csv
expect 0 train train.csv $run --val-split 0.25 --epochs 1 --no-checkpoints --workspace g

# --- evaluation ----------------------------------------------------------------------------------------------
expect 0 evaluate columns.csv --weights a.safetensors --threads 1 --json
prints '"n": 9, "n_bad": 0, "mAP": 0\.[0-9]+, "micro_f1": [0-9.]+, "macro_f1": [0-9.]+, "threshold": 0.5, "loss": '
scores() {
    grep -o '"mAP".*"loss": [0-9.]\{8\}' out
}
scores >kept
expect 0 evaluate delimiter.csv --list-delimiter '|' --weights a.safetensors --threads 1 --json
scores >given
same kept given
expect 0 launch --nproc 2 evaluate columns.csv --weights a.safetensors -b 2 --threads 1 --json
scores >given
same kept given
expect 0 evaluate columns.csv --weights a.safetensors --threads 1 --threshold 0.9
prints '^micro F1 .* 0.9$'
expect 0 evaluate columns.csv --weights a.safetensors --require 'mAP>=0' --logits logits.safetensors
expect 4 evaluate columns.csv --weights a.safetensors --require 'micro_f1>=1.5'
expect 2 evaluate columns.csv --weights a.safetensors --require 'top1>=0'
expect 0 evaluate columns.csv --weights a.safetensors --threads 1 --per-class
prints '^class +images +predicted +right +AP +precision +recall +F1$'
prints '^circle +3 '
expect 0 evaluate columns.csv --weights a.safetensors --threads 1 --per-class --json
prints '"per_class": \[\{"name": "circle", "n": 3, "n_predicted": [0-9]+, "n_right": [0-9]+, "AP": [0-9.]+, "precision": '
expect 0 launch --nproc 2 evaluate columns.csv --weights a.safetensors -b 2 --threads 1 --per-class --json
prints '"per_class": \[\{"name": "circle", "n": 3, '
# mirror images: the mean logits of a network that looks left are not its logits
expect 0 evaluate columns.csv --weights a.safetensors --threads 1 --logits plain.safetensors
expect 0 evaluate columns.csv --weights a.safetensors --threads 1 --tta hflip --logits flipped.safetensors --json
prints '"mAP": [0-9.]+'
payload plain.safetensors >one
payload flipped.safetensors >two
cmp -s one two && complain "--tta hflip changes no logit"
expect 0 convert a.safetensors a.pth
expect 0 evaluate columns.csv --weights a.pth --threads 1 --json
scores >given
same kept given
expect 0 convert a.safetensors a.onnx --probabilities
expect 0 evaluate columns.csv --weights a.onnx --threads 1 --json
scores | cut -c1-14 >given
cut -c1-14 kept >short
same short given

# --- other verbs ------------------------------------------------------------------------------------------------
expect 0 classify "$image" --weights a.safetensors --threshold 0.000001 --json
prints '"label": 0'
prints '"label": 2'
expect 0 classify "$image" --weights a.safetensors --threshold 1 --json
prints '"classes": \[\]'
cp a.safetensors w.safetensors
serve --threshold 0.000001
ask 200 POST /classify <"$image"
[ "$(grep -o '"label"' out | wc -l)" = 3 ] || complain "wanted 3 classes"
ask 200 POST '/classify?threshold=1' <"$image"
prints '"classes": \[\]'
ask 400 POST '/classify?threshold=2' <"$image"
answer_names threshold 2
ask 200 GET /v2/models/w
prints '"threshold": 1e-06'
stop
expect 0 quantize a.safetensors delimiter.csv --list-delimiter '|' -o q.safetensors --threads 1
expect 0 evaluate columns.csv --weights q.safetensors --threads 1
expect 0 init --model net.td --multi-label -o fresh.safetensors
header fresh.safetensors >out
prints '"tandem.multi_label":"1"'
expect 0 inspect kernels --training --weights a.safetensors
prints ' sigmoid_cross_entropy '
expect 0 benchmark --mode training --model net.td --multi-label --iters 1 --warmup 0 --threads 1 -b 2
expect 0 benchmark delimiter.csv --list-delimiter '|' --mode data --iters 1 --threads 1 --image-size 32 -b 4
# data set tools: the classes of both forms, their images, tensors, the images with a list
expect 0 dataset check columns.csv --split train --json
prints '"name": "circle", "good": 8, "bad": 0\}.*"pictures_without_labels": 5'
grep -o '"classes": \[[^]]*\]' out >kept
expect 0 dataset check delimiter.csv --list-delimiter '|' --split train --json
grep -o '"classes": \[[^]]*\]' out >given
same kept given
expect 0 dataset check delimiter.csv --list-delimiter '|'
prints '^  no label    [0-9]+ images$'
expect 0 dataset check columns.csv --split val --image-size 32 --dump-tensors val.safetensors
expect 0 evaluate val.safetensors --data-backend tensors --weights a.safetensors --threads 1 --json
scores >given
expect 0 evaluate columns.csv --weights a.safetensors --threads 1 --json
scores >kept
same kept given
expect 0 dataset stats columns.csv
cp out one
expect 0 dataset stats delimiter.csv --list-delimiter '|'
cp out two
same one two
expect 0 dataset unpack delimiter.csv images --list-delimiter '|' --json
prints '"pictures": 33'
[ "$(find images/train -type f | wc -l)" = 24 ] || complain "not 24 images"
expect 0 evaluate images/labels.csv --weights a.safetensors --threads 1 --json
scores >given
same kept given
expect 0 dataset unpack columns.csv again
same images/labels.csv again/labels.csv
# names that a CSV file must quote
sed '1s/even/"a, b ""c"""/' columns.csv >quoted.csv
expect 0 dataset unpack quoted.csv quoted
[ "$(head -1 quoted/labels.csv)" = 'image,split,circle,"a, b ""c""",third' ] || complain "$(head -1 quoted/labels.csv)"
expect 0 dataset unpack quoted/labels.csv twice
same quoted/labels.csv twice/labels.csv
expect 1 dataset pack columns.csv x.pack
error_names "'columns.csv'" 'several labels' unpack
[ ! -e x.pack ] || complain "a refused pack is left"
sed '2,$s/circle|/class|/; 2,$s/circle,/class,/' delimiter.csv >named.csv
expect 1 dataset unpack named.csv named --list-delimiter '|'
error_names "'named.csv'" "'class'"
[ ! -e named ] || complain "a refused unpack leaves a folder"
expect 2 dataset check delimiter.csv --list-delimiter '||'
error_names --list-delimiter

# --- contradictions -----------------------------------------------------------------------------------------------
expect 2 train columns.csv --model net.td -b 4
error_names "'columns.csv'" --loss bce
expect 2 train columns.csv $run --label-smoothing 0.1
error_names --label-smoothing "'columns.csv'"
expect 2 train columns.csv $run --balanced-sampling
error_names balanced "'columns.csv'"
expect 2 train columns.csv $run --class-weights balanced
expect 2 train set $run --multi-label
error_names "'set/train'"
expect 1 train columns.csv --arch squeezenet1_1 --image-size 32 -b 4 --loss bce --num-classes 5
error_names 3 5
expect 0 train set --model net.td --threads 1 -b 4 --epochs 1 --no-checkpoints --workspace h --final-weights h.safetensors
expect 2 evaluate columns.csv --weights h.safetensors --labels-by-order
error_names "'columns.csv'" --multi-label
expect 2 evaluate set --weights a.safetensors --labels-by-order
error_names "'set/val'"
for option in "--per-class --confusion c.csv" "--label-smoothing 0.1"; do
    expect 2 evaluate columns.csv --weights a.safetensors $option
    option=${option% *}
    error_names "${option##* }" "'a.safetensors'"
done
for verb in "evaluate set --labels-by-order" "classify $image" "serve --port 0"; do
    expect 2 $verb --weights h.safetensors --threshold 0.4
    error_names --threshold "'h.safetensors'"
done
expect 2 train set --model net.td -b 4 --pos-weight 2
error_names --pos-weight --loss bce
for w in 1,2 1,2,3,4 1,x,2 -1; do
    expect 2 train columns.csv $run --pos-weight "$w"
    error_names --pos-weight
done
expect 2 train columns.csv $run --list-delimiter '||'
error_names --list-delimiter
expect 2 train columns.csv $run --list-delimiter ';'
error_names --list-delimiter "'columns.csv'"
# data that are no list
expect 0 dataset pack set set.pack
for verb in "train set $run" "train set.pack $run" "train set $run --data-backend dali-cpu" "train set $run --val-split 0.2" \
    "evaluate val.safetensors --data-backend tensors --weights a.safetensors" "dataset check set" "dataset stats set.pack"; do
    expect 2 $verb --list-delimiter '|'
    error_names --list-delimiter
done
expect 2 train $run --data-backend synthetic --list-delimiter '|'
error_names --list-delimiter synthetic
expect 1 train absent.csv $run --list-delimiter '|'
error_names "'absent.csv'"
expect 2 train set --arch ssd320 --multi-label
error_names --multi-label "'ssd320'"
expect 2 detect "$image" --weights a.safetensors --arch ssd320 --multi-label

# --- malformed lists ------------------------------------------------------------------------------------------------
bad_list() {
    sed "$1" "$2" >bad.csv
    shift 2
    expect 1 train bad.csv $run --list-delimiter "$1"
    shift
    error_names "'bad.csv'" "$@"
}
bad_column() {
    sed "$1" columns.csv >bad.csv
    shift
    expect 1 train bad.csv $run
    error_names "'bad.csv'" "$@"
}
bad_column '5s/,0,/,2,/' 5 2 0 1
bad_column '1s/even/circle/' circle
bad_column '1s/even//' 1 3
bad_column '7s/,[01],train/,train/' 7
bad_list '3s/,[^,]*,/,even|even,/' delimiter.csv '|' 3 even
finish
