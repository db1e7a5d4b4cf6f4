# shards.sh -- WebDataset: tar files with images and labels train the weights of the folder; splits by folders, by names and
# by patterns; what is wrong with a tar is said in one sentence with file and byte
# ctest: timeout 180
set -u
. "$TANDEM_SOURCE/tests/e2e/lib.sh"
. "$TANDEM_SOURCE/tests/e2e/lib_files.sh"

drawn set --classes 3 --train 24 --val 9
small_model small.td 32 3
net="--model small.td --threads 1 --workers 1 --seed 1 -b 4 --lr 0.01"

# files SPLIT CLASS-OF FILTER: a folder with 0.jpg, 0.cls, ...: the samples of a split in order, labels by CLASS-OF
number=0
samples() { # SPLIT FOLDER
    mkdir -p "$2"
    label=0
    for class in set/"$1"/*; do
        for image in "$class"/*; do
            number=$((number + 1))
            name=$(printf %s/%05d "$2" $number)
            cp "$image" "$name.jpg"
            echo $label >"$name.cls"
        done
        label=$((label + 1))
    done
}
shard() { # FILE FORMAT FROM TO: the samples FROM .. TO of the current folder
    for i in $(seq "$3" "$4"); do
        name=$(printf %05d "$i")
        echo "./$name.cls"
        echo "./$name.jpg"
    done | tar --create --format="$2" --file "$1" --no-recursion --files-from -
}
samples train a
samples val b
mkdir tars
(cd a && shard ../tars/train-000.tar ustar 1 10 && shard ../tars/train-001.tar pax 11 24)
(cd b && shard ../tars/val-000.tar gnu 25 33)

# --- the same training as from the folder ----------------------------------------------------------------
expect 0 train set $net --epochs 1 --no-checkpoints --final-weights folder.safetensors --workspace w1
payload folder.safetensors >one
shards() { # DATA OPTIONS
    expect 0 train "$@" $net --epochs 1 --no-checkpoints --final-weights shards.safetensors --workspace w2 --overwrite
    payload shards.safetensors >two
    same one two
}
shards tars
shards tars --data-backend webdataset
shards 'tars/train-{000..001}.tar' --val-list tars/val-000.tar
shards 'tars/train-{000,001}.tar' --val-list 'tars/val-{000..000}.tar' --workers 3
mkdir -p parts/train parts/val
cp tars/train-* parts/train
cp tars/val-000.tar parts/val/a.tar
shards parts
expect 0 evaluate set --weights folder.safetensors --labels-by-order --threads 1 --json
grep -o '"loss": [0-9.]*' out >first
for data in tars parts parts/val tars/val-000.tar 'tars/val-{000..000}.tar'; do
    expect 0 evaluate "$data" --weights shards.safetensors --threads 1 --json
    prints '"n": 9, '
    grep -o '"loss": [0-9.]*' out >second
    same first second
done
expect 2 evaluate tars --weights shards.safetensors --labels-by-order --threads 1
error_names --labels-by-order "'tars'"
expect 0 train tars $net --evaluate --pretrained-weights shards.safetensors --val-list tars/val-000.tar --workspace w3
# a stopped run resumes; two ranks
expect 0 train tars $net --run-iters 3 --epochs 2 --workspace part
expect 0 train tars --resume part/checkpoint.safetensors --epochs 2 --workspace part --final-weights resumed.safetensors
expect 0 train set $net --epochs 2 --no-checkpoints --final-weights whole.safetensors --workspace w4
payload whole.safetensors >one
payload resumed.safetensors >two
same one two
expect 0 launch --nproc 2 train tars $net --epochs 1 --no-checkpoints --workspace w5
expect 0 train parts/train $net --val-split 0.25 --epochs 1 --no-checkpoints --workspace w6
# labels in .json, numbers or names
mkdir json
(cd a && for i in *.cls; do printf '{"caption": "x", "label": %s}' "$(cat "$i")" >"../json/${i%.cls}.json" && cp "${i%.cls}.jpg" ../json; done)
(cd json && tar --create --file ../numbers.tar --sort=name . && sed -i 's/"label": \([0-9]\)/"label": "class \1"/' *.json && tar --create --file ../names.tar --sort=name .)
expect 0 dataset check numbers.tar
prints '^    2 +8$'
expect 0 dataset check names.tar
prints '^    class 2 +8$'

# --- dataset check, stats; what is not possible ---------------------------------------------------------
expect 0 dataset check tars
prints '^  images      24, 24 readable, 0 not$'
prints '^splits +train, val$'
expect 0 dataset stats set
cp out one
expect 0 dataset stats tars
same one out
printf 'no image' >a/00003.jpg
(cd a && shard ../bad.tar pax 1 24)
expect 1 dataset check bad.tar
prints '00003.jpg'
expect 0 dataset pack tars tars.pack
expect 0 train tars.pack $net --epochs 1 --no-checkpoints --workspace packed
prints '^top1 '
expect 1 train tars/train-000.tar $net --workspace w7
error_names "'tars/train-000.tar'" --val-list --val-split
expect 1 train tars/val-000.tar $net --training-only --workspace w7
error_names "'tars/val-000.tar'" "'train'"
expect 1 train 'tars/train-{000..002}.tar' $net --training-only --workspace w7
error_names "'tars/train-002.tar'"
expect 1 train 'tars/train-{000..' --data-backend webdataset $net --training-only --workspace w7
expect 1 train 'tars/train-{3..1}.tar' $net --training-only --workspace w7
error_names 3 1
expect 1 evaluate tars --annotations x.json --arch ssd320 --weights folder.safetensors

# --- a malformed tar is an error with its place ------------------------------------------------------------
refused() { # FILE WORDS
    file=$1
    shift
    expect 1 dataset check $file
    error_names "'$file'" "$@"
    silent
}
good=tars/train-000.tar
head -c 3000 $good >cut.tar
refused cut.tar truncated
head -c 10240 $good >cut.tar
refused cut.tar 10240
gzip -c $good >zip.tar
refused zip.tar gzip
printf 'hello' >no.tar
refused no.tar
(cat $good && cat tars/val-000.tar) >two.tar
refused two.tar
{ head -c 512 $good | tr 0 1; tail -c +513 $good; } >sum.tar
refused sum.tar 0
cd b
ln -s 00025.jpg link.jpg
tar --create --file ../link.tar 00025.jpg 00025.cls link.jpg
cp 00026.jpg 00025.png
tar --create --file ../both.tar 00025.jpg 00025.png 00025.cls
tar --create --file ../none.tar 00025.jpg 00026.jpg
tar --create --file ../alone.tar 00025.jpg 00025.cls 00026.cls
cp 00025.cls 00025.json
sed -i 's/.*/{"label": 0}/' 00025.json
tar --create --file ../apart.tar 00025.jpg 00025.cls 00026.jpg 00026.cls
tar --append --file ../apart.tar --transform 's/00027/00025/' 00027.jpg
tar --append --file ../apart.tar 00025.json
printf '' >00027.cls
tar --create --file ../empty.tar 00027.jpg 00027.cls
truncate -s 200k hole.jpg
tar --create --sparse --file ../sparse.tar hole.jpg
mkfifo pipe
tar --create --file ../fifo.tar pipe
echo '{"label": -1}' >00028.json
tar --create --file ../json.tar 00028.jpg 00028.json
mkdir folder
tar --create --file ../nothing.tar folder
cd ..
refused link.tar link
refused both.tar "'00025'" two
refused none.tar "'00025'" label
refused alone.tar "'00026'" image
refused apart.tar "'00025'"
refused empty.tar "'00027'" label
refused sparse.tar sparse
refused fifo.tar fifo
refused json.tar "'00028'"
refused nothing.tar
finish
