# list.sh -- lists of images and labels in place of a folder: CSV, TSV and text, splits in a column or in a file of their
# own; the weights are those of the folder; malformed rows are named by their lines
# ctest: timeout 180
set -u
. "$TANDEM_SOURCE/tests/e2e/lib.sh"
. "$TANDEM_SOURCE/tests/e2e/lib_files.sh"

drawn set --classes 3 --train 24 --val 9
small_model small.td 32 3
net="--model small.td --threads 1 --workers 1 --seed 1 -b 4 --lr 0.01"

rows() { # SPLIT FORMAT
    for file in set/$1/*/*; do
        class=${file%/*}
        printf "$2\n" "$file" "${class##*/}"
    done
}
{
    echo image,label,split
    rows train '%s,%s,train'
    rows val '"%s",%s,val'
} >both.csv
rows train '%s\t%s' >train.tsv
rows val '%s\t%s' >val.tsv
rows val '%s %s' >val.txt
rows val '%s,%s' >"no ending"

# --- the same training as from the folder ----------------------------------------------------------
expect 0 train set $net --epochs 1 --no-checkpoints --final-weights folder.safetensors --workspace a
expect 0 train both.csv $net --epochs 1 --no-checkpoints --final-weights csv.safetensors --workspace b
expect 0 train train.tsv --val-list val.tsv $net --epochs 1 --no-checkpoints --final-weights tsv.safetensors --workspace c
for file in csv tsv; do
    payload folder.safetensors >one
    payload $file.safetensors >two
    same one two
done
expect 0 evaluate set --weights csv.safetensors --threads 1 --json
grep -o '"loss": [0-9.]*' out >first
for data in both.csv val.tsv val.txt "no ending"; do
    expect 0 evaluate "$data" --data-backend list --weights csv.safetensors --threads 1 --json
    prints '"n": 9, '
    grep -o '"loss": [0-9.]*' out >second
    same first second
done
expect 0 train both.csv $net --evaluate --pretrained-weights csv.safetensors --val-list val.tsv --workspace d
# labels may be numbers
awk -F'\t' '{ if (!($2 in n)) n[$2] = k++ + 0; print $1 "\t" n[$2] }' train.tsv >numbers.tsv
expect 0 train numbers.tsv $net --training-only --epochs 1 --no-checkpoints --final-weights n.safetensors --workspace e
payload n.safetensors >two
same one two
expect 0 evaluate numbers.tsv --weights n.safetensors --threads 1 --json --per-class
prints '"n": 24, '
cp out n
expect 0 evaluate train.tsv --weights csv.safetensors --threads 1 --json
grep -o '"loss": [0-9.]*' out >first
grep -o '"loss": [0-9.]*' n >second
same first second
head -9 numbers.tsv >fewer.tsv
expect 0 evaluate fewer.tsv --weights n.safetensors --threads 1 --per-class --confusion c.csv
# a stopped run resumes
expect 0 train both.csv $net --epochs 1 --workspace part
expect 0 train both.csv --resume part/checkpoint.safetensors --epochs 2 --workspace part --final-weights resumed.safetensors
expect 0 train set $net --epochs 2 --no-checkpoints --final-weights whole.safetensors --workspace whole
payload whole.safetensors >one
payload resumed.safetensors >two
same one two

expect 0 dataset check both.csv
prints '^  images      24, 24 readable, 0 not$'
prints '^splits +train, val$'
expect 0 dataset pack both.csv both.pack
expect 0 dataset check both.pack
prints '^  images      24, 24 readable, 0 not$'
expect 1 train train.tsv $net --workspace none
error_names "'train.tsv'" --val-list --training-only

# --- what is wrong with a row is said, with its line ------------------------------------------------
refused() { # WORDS, the list on stdin
    { echo "image,label"; cat; } >bad.csv
    expect 1 dataset check bad.csv
    error_names "'bad.csv'" "$@"
    silent
}
image=set/train/circle/00000.jpg
[ -e $image ] || image=$(ls set/train/*/* | head -1)
printf '%s\n' "$image,a" "set/none.jpg,b" | refused 3 "'set/none.jpg'"
printf '%s\n' "$image,a" "$image,b" | refused 3 2 "'$image'"
printf '%s\n' "$image," | refused 2 label
printf '%s\n' ",a" | refused 2 image
printf '%s\n' "$image,a" | refused 1 two
printf '%s\n' "$image,a,b" | refused 2 3
printf '%s\n' "\"$image,a" | refused 2 quoted
printf '%s\n' "\"$image\"x,a" | refused 2 quoted
printf '%s\n' "../x.jpg,a" | refused 2 --list-outside
printf '%s\n' "/etc/passwd,a" | refused 2 --list-outside
printf '%s\0\n' "$image,a" | refused 2 zero

printf 'a.jpg,b,other\n' >bad.csv
expect 1 dataset check bad.csv
error_names "'bad.csv'" "'other'" train val

# --- files outside of the list's folder, if that is allowed -------------------------------------------
mkdir lists
rows val "$PWD/%s,%s" >lists/val.csv
rows train '../%s,%s' >lists/train.csv
expect 0 train lists/train.csv --val-list lists/val.csv --list-outside $net --epochs 1 --no-checkpoints \
    --final-weights outside.safetensors --workspace f
payload folder.safetensors >one
payload outside.safetensors >two
same one two
expect 0 evaluate lists/val.csv --list-outside --weights csv.safetensors --threads 1
expect 1 evaluate lists/val.csv --weights csv.safetensors --threads 1
error_names --list-outside
expect 0 dataset check lists/val.csv --list-outside
expect 0 quantize csv.safetensors lists/train.csv --list-outside -o q.safetensors --threads 1
expect 0 benchmark lists/train.csv --list-outside --mode data --iters 1 --threads 1 --image-size 32 -b 4

# the option is refused where no list is read: of DATA and --val-list one must be a list
expect 0 train set --val-list lists/val.csv --list-outside $net --epochs 1 --no-checkpoints --workspace g
expect 2 train set $net --list-outside --epochs 1 --workspace h
error_names --list-outside "'set'"
expect 2 train --data-backend synthetic $net --list-outside --epochs 1 --workspace h
error_names --list-outside synthetic
for verb in "evaluate set --weights csv.safetensors" "quantize csv.safetensors set -o r.safetensors" \
    "benchmark set --mode data --image-size 32" "dataset check set" "dataset stats set"; do
    expect 2 $verb --list-outside --threads 1
    error_names --list-outside "'set'"
done
finish
