# ctest: timeout 300
# report.sh -- what a run tells programs: text lines, JSON lines, tables, event files; and what `tandem report` makes of them
set -u
. "$TANDEM_SOURCE/tests/e2e/lib.sh"
. "$TANDEM_SOURCE/tests/e2e/lib_files.sh"

drawn set --classes 4 --train 64 --val 22
small_model small.td 32 4
small="--model small.td --threads 1 --workers 1 --seed 1 --lr 0.01 -b 8 --no-checkpoints --raport-file experiment_raport.json"

# --- lines of text: --log-format dll -------------------------------------------------------------
when='DLL [0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{6} - '
rate='[0-9.]+ images/s'
expect 0 train set --model small.td --threads 1 --seed 1 --lr 0.01 -b 8 --epochs 2 --print-freq 3 --workspace run \
    --log-format dll --tensorboard events --csv epochs.csv --csv-iterations iterations.csv --raport-names tf
says "^${when}PARAMETER arch : None  model : small.td  .* batch_size : 8  .* lr : 0.01  .* nesterov : False  "
says "^${when}PARAMETER model.arch : "
says '^Using seed = 1$'
says '^BSM: 1$'
says '^ ! Weight decay NOT applied to BN parameters $'
says '^RUNNING EPOCHS FROM 0 TO 2$'
says "^${when}Epoch: 0 Iteration: 3  train.loss : [0-9]+\.[0-9]{5} None train.compute_ips : [0-9]+\.[0-9]{2} images/s train.total_ips : $rate train.lr : 0.01  train.grad_scale : 1.0 None "
says "^${when}Epoch: 1 Iteration: 8  Validation Iteration: 3  val.top1 : [0-9]+\.[0-9]{2} % val.top5 : 100.00 % val.loss : [0-9.]+ None "
says "^${when}Epoch: 1  train.loss : .* None .*val.top1 : [0-9.]+ % val.top5 : 100.00 % val.loss : .* val.compute_latency : [0-9.]+ s"
says "^${when}Epoch: 1  train.data_time : [0-9.]+ s train.compute_time : .* val.compute_latency_at99 : [0-9.]+ s val.compute_latency_at100 : "
says '^SAVING run/checkpoint.safetensors$'
says "^${when}Summary: train.loss : "
says "^${when}Summary: train.data_time : "
says '^Experiment ended$'
if grep -q '^train: epoch' err; then complain "our own lines too"; fi
[ "$(grep -c 'DLL .*Epoch: 0 Iteration: [0-9]* ' err)" = 3 ] || complain "not two steps and one validation in epoch 0"

# --- JSON: parameters first, all metrics known, the run's aggregates -------------------------------
report=run/experiment_raport.json
last=report
report_is_sound $report
grep -v METADATA $report | head -1 | grep -q '"step": "PARAMETER", "data": {"arch": ' || complain "the options are not first"
grep -v METADATA $report | sed -n 2p | grep -q '"step": "PARAMETER", "data": {"model.arch": ' || complain "the network's are not second"
grep -v METADATA $report | sed -n 3p | grep -q '"run.job": "train"' || complain "the machine is not third"
for name in train.loss train.lr val.top1 val.compute_latency_at90 val_ema.top1 val_ema.compute_latency_at100 train_throughput eval_latency_p99; do
    grep -q "\"METADATA\", \"metric\": \"$name\"" $report || complain "no metadata of $name"
done
grep -q '"metric": "val.loss", "metadata": {"unit": null, "format": "{:.5f}"}' $report || complain "metadata of val.loss"
grep -q '"metric": "train.lr", "metadata": {"format": "{}"}' $report || complain "metadata of train.lr"
least() { awk "BEGIN { printf \"%.9g\", ($1 < $2) ? $1 : $2 }"; }
most() { awk "BEGIN { printf \"%.9g\", ($1 > $2) ? $1 : $2 }"; }
for name in train.loss val.loss; do
    [ "$(metric $report '' $name)" = "$(least "$(metric $report 0 $name)" "$(metric $report 1 $name)")" ] ||
        complain "the run's $name is not the least"
done
[ "$(metric $report '' val.top1)" = "$(most "$(metric $report 0 val.top1)" "$(metric $report 1 val.top1)")" ] ||
    complain "the run's top1 is not the most"
for q in 50 90 95 99 100; do
    [ -n "$(metric $report '' val.compute_latency_at$q)" ] || complain "no latency at $q %"
done
[ -n "$(metric $report '0, 8, 3' val.loss)" ] || complain "no record inside the validation"

# TensorFlow's names: fractions, milliseconds; train_throughput leaves out 20 steps, of which there are 16
top1=$(metric $report 1 val.top1)
awk "BEGIN { d = $(metric $report '' top1_accuracy) * 100 - $top1; exit !(d * d < 1e-6) }" || complain "top1_accuracy"
grep '"step": \[\]' $report | grep -q '"train_throughput": null' || complain "throughput of steps that there are not"
[ -n "$(metric $report '0, 3' imgs_per_sec)" ] || complain "no imgs_per_sec"
expect 0 train set $small --epochs 1 --workspace tf --raport-names tf --raport-warmup 2
for name in train_throughput eval_throughput eval_latency_avg eval_latency_p90 eval_latency_p95 eval_latency_p99; do
    [ -n "$(metric tf/experiment_raport.json '' $name)" ] || complain "no $name"
done

# --- tables, resumed: no epoch twice ---------------------------------------------------------------
last=tables
[ "$(cut -d, -f1 epochs.csv | tr '\n' ' ')" = 'epoch 0 1 ' ] || complain "rows of epochs.csv: $(cut -d, -f1 epochs.csv)"
[ "$(cut -d, -f1,2 iterations.csv | tr '\n' ' ')" = 'epoch,iteration 0,3 0,6 1,3 1,6 ' ] || complain "rows of iterations.csv"
[ "$(awk -F, '{ print NF }' epochs.csv | sort -u | wc -l)" = 1 ] || complain "rows of different lengths"
top1_at=$(head -1 epochs.csv | tr , '\n' | grep -n '^val.top1$' | cut -d: -f1)
[ "$(sed -n 3p epochs.csv | cut -d, -f"$top1_at")" = "$top1" ] || complain "another top1 in the table"
whole="--model small.td --threads 1 --workers 1 --seed 1 -b 8 --epochs 4 --print-freq 2 --workspace part --csv part.csv --csv-iterations part_i.csv --tensorboard part_events"
expect 0 train set $whole --run-epochs 2
expect 0 train set $whole --resume part/checkpoint.safetensors --run-iters 5
expect 0 train set --resume part/checkpoint.safetensors --csv part.csv --csv-iterations part_i.csv --tensorboard part_events
[ "$(cut -d, -f1 part.csv | tr '\n' ' ')" = 'epoch 0 1 2 3 ' ] || complain "rows of part.csv: $(cut -d, -f1 part.csv)"
sort -u part_i.csv | cmp -s - part_i.csv || [ "$(sort -u part_i.csv | wc -l)" = "$(wc -l <part_i.csv)" ] || complain "rows twice"
[ "$(cut -d, -f1,2 part_i.csv | sort | uniq -d)" = '' ] || complain "iterations twice"
# cards by the field's names; nothing that would be a chart of one point
cat part_events/* | tr -c '[:alnum:]/_.' '\n' | grep -o '[a-z_]*/[a-zA-Z0-9_.]*' | sort -u >tags
for tag in train/loss train/lr train_epoch/loss val/loss val/top1 val/top5; do
    grep -qx "$tag" tags || complain "no card $tag in TensorBoard's files: $(tr '\n' ' ' <tags)"
done
if grep -q '^run/\|^iteration/train\|^epoch/val' tags; then complain "cards of other names: $(tr '\n' ' ' <tags)"; fi
[ "$(ls part_events | wc -l)" = 3 ] || complain "not an event file for each run"
expect 1 train set $whole --resume part/checkpoint.safetensors --topk 3
error_names "'part.csv'"
expect 2 train set $small --epochs 1 --csv one.csv --csv-iterations one.csv
error_names "'one.csv'"
expect 1 train set $small --epochs 1 --csv absent/x.csv
error_names "'absent/x.csv'"
touch a_file
expect 1 train set $small --epochs 1 --tensorboard a_file
[ -e /dev/full ] && {
    expect 1 train set $small --epochs 1 --csv /dev/full
    error_names "'/dev/full'"
}

# --- the reference's arithmetic ----------------------------------------------------------------------
expect 0 train set $small --epochs 2 --workspace compat --raport-compat --print-freq 1
report=compat/experiment_raport.json
[ "$(metric $report '' train.loss)" = "$(most "$(metric $report 0 train.loss)" "$(metric $report 1 train.loss)")" ] ||
    complain "--raport-compat: the run's loss is not the largest"
mean=$(for i in 1 2 3 4 5 6 7 8; do metric $report "0, $i" train.compute_ips; done | awk '{ s += $1 } END { print s / NR }')
awk "BEGIN { q = $(metric $report 0 train.compute_ips) / $mean; exit !(q > 0.9999 && q < 1.0001) }" ||
    complain "--raport-compat: the epoch's rate is not the mean of the steps'"
[ "$(grep -c PARAMETER $report)" = 2 ] || complain "--raport-compat: not two records of parameters"

# --- evaluate's report -------------------------------------------------------------------------------
expect 0 evaluate set --weights run/checkpoint.safetensors -b 4 -p 2 --raport-file judged.json --raport-names tf --raport-warmup 1
report_is_sound judged.json
[ -n "$(metric judged.json '0, 0, 2' val.top1)" ] || complain "no record inside the evaluation"
[ -n "$(metric judged.json '' eval_throughput)" ] || complain "no eval_throughput"
awk "BEGIN { d = $(metric judged.json '' val.top1) - $top1; exit !(d * d < 1e-6) }" || complain "another top1"
expect 0 train set --evaluate --resume run/checkpoint.safetensors -b 4 --prof 2 --workspace run --raport-file bench.json
[ -n "$(metric run/bench.json '' val.compute_latency)" ] || complain "train --evaluate writes no report"

# --- tandem report -------------------------------------------------------------------------------------
expect 0 report run compat
prints '^ +run +compat$'
prints '^best top1, % +[0-9.]+ +[0-9.]+$'
prints '^images/s, training +[0-9.]+ +[0-9.]+$'
prints '^latency at 99 %, ms +[0-9.]+ +[0-9.]+$'
expect 0 report run judged.json --format csv -o all.csv
prints '^all.csv$'
[ "$(wc -l <all.csv)" = 3 ] || complain "not a line for each run"
# --json is for the whole result: into a file of JSON, not into one that is named as something else
expect 0 report run --json
prints '^\{"runs": '
cp out wanted.json
expect 0 report run --json -o tables.json
prints '^\{"output": "tables.json"\}$'
same wanted.json tables.json
for file in x.html x.htm x.md x.csv; do
    expect 2 report run --json -o $file
    error_names --json "'$file'" "-o FILE.json"
    [ ! -e $file ] || complain "$file was written"
done
expect 0 report run --format markdown
prints '^\|---\|--:\|$'
expect 0 report run compat judged.json -o page.html --title 'a <b> & c'
last=page.html
grep -q '<h1>a &lt;b&gt; &amp; c</h1>' page.html || complain "the title is not escaped"
[ "$(grep -o 'class="chart"' page.html | wc -l)" -ge 5 ] || complain "not five charts"
[ "$(grep -o '<polyline' page.html | wc -l)" -ge 10 ] || complain "not ten curves"
if grep -Eo '(https?:|src=|href=|url\(|@import|<script|<link|<iframe)' page.html >&2; then complain "the page loads something"; fi
grep -q 'default-src .none.' page.html || complain "no policy"
grep -q 'What differs' page.html || complain "no differences"
tidy .

cp run/experiment_raport.json kept.json
expect 2 report judged.json run -o run/experiment_raport.json
error_names "'run/experiment_raport.json'"
cmp -s kept.json run/experiment_raport.json || complain "a report was overwritten by its own page"

# --- what the network confuses: counts as evaluate has them, and images only where asked for -----------------------
confused() {
    sed -n "s/.*\"CONFUSION\", \"step\": \[$2\], \"data\": {\(.*\)}}\$/\1/p" "$1"
}
expect 0 evaluate set --weights run/checkpoint.safetensors --per-class --confusion confusion.csv
counts=$(sed 1d confusion.csv | cut -d, -f2- | sed 's/,/, /g; s/.*/[&]/' | paste -s -d , | sed 's/,\[/, [/g')
[ "$(grep -c '"CONFUSION"' run/experiment_raport.json)" = 1 ] || complain "not one record of what is confused"
for text in "$(confused run/experiment_raport.json 1)" "$(confused judged.json '')"; do
    case $text in
        '"images": 22, '*"\"counts\": [$counts], "*'"path": "val/'*) ;;
        *) complain "evaluate --confusion has [$counts], the report $text" ;;
    esac
done
if grep -q CONFUSION compat/experiment_raport.json; then complain "--raport-compat has a record of its own"; fi
echo mine >plain.html
expect 1 report run -o plain.html
error_names "'plain.html'" --overwrite
[ "$(cat plain.html)" = mine ] || complain "report replaced a file"
expect 0 report run -o plain.html --overwrite
grep -q '<caption>Confusion matrix' plain.html || complain "no matrix on the page"
n_wrong=$(confused run/experiment_raport.json 1 | sed 's/.*"wrong": \([0-9]*\).*/\1/')
[ "$(grep -c '^<li><div><b>' plain.html)" = "$n_wrong" ] || complain "not $n_wrong mistakes on the page"
if grep -q 'src=' plain.html; then complain "images that nobody asked for"; fi
expect 0 report run -o images.html --images set
[ "$(grep -c '^<li><img alt="val/.* src="data:image/jpeg;base64,' images.html)" = "$n_wrong" ] || complain "not $n_wrong images on the page"
sed 's|"path": "val/|"path": "../set/val/|g' run/experiment_raport.json >outside.json
expect 0 report outside.json -o outside.html --images set
if grep -q '<img' outside.html; then complain "images from outside the folder"; fi
expect 2 report run --images set
error_names --images
expect 1 report run -o x.html --images absent
error_names --images "'absent'"

# --- bad runs --------------------------------------------------------------------------------------------
: >empty.json
expect 1 report empty.json
error_names "'empty.json'"
silent
echo 'no report' >text.json
expect 1 report run text.json -o never.html
error_names "'text.json'" 'line 1' "'no report'"
[ ! -e never.html ] || complain "a page of a run that is none"
head -c 300 /dev/urandom >random.json
expect 1 report random.json
grep METADATA run/experiment_raport.json >none.json
expect 1 report none.json
error_names "'none.json'"
mkdir no_run
expect 1 report no_run
error_names "'no_run'" experiment_raport.json
expect 1 report absent
expect 2 report
error_names RUN
expect 2 report run --format pdf
head -c $(($(wc -c <run/experiment_raport.json) - 7)) run/experiment_raport.json >cut.json
expect 0 report cut.json -o cut.html
warning_names "'cut.json'"
grep -q 'class="warn"' cut.html || complain "the page does not warn"
expect 1 report run -o absent/page.html
says "absent/page.html"
[ -e /dev/full ] && {
    "$TANDEM" report run >/dev/full 2>err && complain "a full disk is no error"
    error_names 'standard output'
}
many=$(for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17; do echo run; done)
expect 2 report $many -o many.html
error_names 16 17
expect 0 report $many
expect 2 report $many --format csv $(for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do echo $many; done)
error_names 256 272

# --- several seeds -------------------------------------------------------------------------------------------
for seed in 1 2 3; do
    expect 0 train set $small --seed $seed --epochs 2 --workspace f$seed
    expect 0 train set $small --seed $seed --epochs 2 --workspace h$seed --precision bf16 --workers 2
done
expect 0 report f1 f2 f3 h3 h2 h1
prints '^small.td, fp32  top1, %  best   3 +[0-9.]+ +[0-9.]+ +[0-9.]+ +[0-9.]+ +[0-9.]+$'
prints '^small.td, bf16  top5, %  final  3 +100.000 +0.000 +100.000 +100.000 +100.000$'
prints '^small.td, bf16  top1, %  best   bf16 - fp32 +[-+][0-9.]+ +[0-9.]+ +([0-9.]+|-) +(yes|no)$'
mean=$(awk '/^small.td, fp32  top1, %  final/ { print $7 }' out)
last_top1() {
    metric "$1/experiment_raport.json" 1 val.top1
}
awk "BEGIN { d = $mean - ($(last_top1 f1) + $(last_top1 f2) + $(last_top1 f3)) / 3; exit !(d * d < 1e-6) }" ||
    complain "the mean of three seeds is $mean"
expect 0 report f1 f2 f3 h1 --json
prints '^\{"runs": \[\{"run": "f1", .*"seeds": \[\{"group": "small.td, fp32", .*"n": 3, .*"precisions": \[\{"group": "small.td, bf16", "base": "small.td, fp32"'
expect 0 report f1 f2 -o seeds.html
grep -q '<h2>Spread over seeds</h2>' seeds.html || complain "no seeds on the page"
expect 0 report f1 h1 --format markdown
if grep -q 'seed alone' out; then complain "one seed has no spread"; fi
grep -v '"step": \[\]' f3/experiment_raport.json >going.json
expect 0 report f1 f2 going.json
prints "^[^ ].*: 'going.json'$"
prints '^small.td, fp32  top1, %  best   2 '
expect 0 report f1 --json -o written.json
prints '^[{]"output": "written.json"[}]$'
expect 2 report f1 --json --format html
error_names --json --format

# --- in a browser, where there is one ------------------------------------------------------------------------
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome || true)
if [ -z "$browser" ]; then
    echo "report.sh: no Chromium here: the page was not looked at by a browser"
else
    last=chromium
    timeout 60 "$browser" --headless --no-sandbox --disable-gpu --user-data-dir="$PWD/profile" --dump-dom "file://$PWD/page.html" >dom.html 2>browser.err
    [ "$(grep -o '<polyline' dom.html | wc -l)" = "$(grep -o '<polyline' page.html | wc -l)" ] || complain "curves are lost in the browser"
    timeout 60 "$browser" --headless --no-sandbox --disable-gpu --user-data-dir="$PWD/profile" --hide-scrollbars --window-size=800,1200 \
        --screenshot="$PWD/page.png" "file://$PWD/page.html" >browser.err 2>&1
    [ "$(wc -c <page.png)" -gt 20000 ] || complain "the image of the page is empty"
fi
finish
