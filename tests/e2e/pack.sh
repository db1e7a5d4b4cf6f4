# ctest: timeout 300
# pack.sh -- a folder and its pack are one data set: the same weights to the bit, the same order, labels, bad images
# and evaluation, also when a run goes from one to the other; shrinking; and packs that are cut, damaged or no packs
set -u
. "$TANDEM_SOURCE/tests/e2e/lib.sh"
. "$TANDEM_SOURCE/tests/e2e/lib_files.sh"

small_model small.td 32 4
tab=$(printf '\t')
net="--model small.td --threads 1 --seed 3 -b 8 --lr 0.01"

# --- a folder with everything that is odd --------------------------------------------------------
drawn set --classes 4 --train 80 --val 20
mkdir -p set/train/circle/deep/er "set/val/square/with space"
mv set/train/circle/00003.jpg set/train/circle/deep/er
mv set/train/circle/00005.jpg "set/train/circle/line
break.JPG"
mv set/val/square/00001.jpg "set/val/square/with space"
cp "$TANDEM_SOURCE"/tests/data/images/*.jpg "$TANDEM_SOURCE"/tests/data/images/*.png set/train/stripes
ln -s 00000.jpg set/train/square/link.jpg
: >set/train/letter_A/00002.jpg
echo text >set/val/letter_A/00001.jpg
echo hidden >set/train/circle/.hidden.jpg
echo notes >set/train/circle/notes.txt

expect 0 dataset pack set set.pack --json
prints '^\{"path": "set.pack", "pictures": [0-9]+, "shrunk": 0, "unreadable": 0, "bytes": [0-9]+, "digest": "xxh3:[0-9a-f]{16}", "seconds": [0-9.e-]+\}$'
digest=$(sed 's/.*\(xxh3:[0-9a-f]*\).*/\1/' out)
tidy .
n=$(find -L set/train set/val -type f ! -name '.*' ! -name '*.txt' | tr '\n' ' ' | tr ' ' '\n' | grep -ci '\.\(jpg\|png\)$')
[ "$(sed 's/.*"pictures": \([0-9]*\).*/\1/' out)" = "$n" ] || complain "packed $(cat out), wanted $n images"
expect 0 dataset pack set again.pack
prints "^  digest      $digest$"
same set.pack again.pack
cp again.pack before
expect 1 dataset pack set.pack again.pack
error_names "'again.pack'" --overwrite
cmp again.pack before || complain "dataset pack replaced a file"
expect 0 dataset pack set.pack again.pack --overwrite
same set.pack again.pack
expect 0 inspect dataset set.pack
prints "^set.pack/train: [0-9]+ images, 4 classes"

# --- check says the same, but for files that are no images: a pack has none ---------------------------
without_times() {
    sed -e 's/, "seconds": [0-9.e-]*//g' -e "s,$1/,SET/,g" -e 's/, "other_files": [0-9]*, "others": \[[^]]*\]//g'
}
expect 0 dataset check set --max-bad 1 --json
without_times set <out >of_folder
expect 0 dataset check set.pack --max-bad 1 --json
without_times set.pack <out >of_pack
same of_folder of_pack
for split in train val; do
    expect 0 dataset check set --split $split --max-bad 1 --dump-tensors folder.safetensors --image-size 32
    expect 0 dataset check set.pack --split $split --max-bad 1 --dump-tensors pack.safetensors --image-size 32
    same folder.safetensors pack.safetensors
done

# --- training: the same bits -------------------------------------------------------------------------
bad_list() {
    sed "s,^$1/,SET/," "$2/bad.list"
}
for workers in 1 3; do
    for data in set set.pack; do
        expect 0 train $data $net --workers $workers --epochs 2 --max-bad 0.2 --workspace run.$data --overwrite \
            --final-weights final.$data.$workers.safetensors --train-logits logits.$data.$workers.safetensors
        log_names 4 '32 x 32'
        bad_list $data run.$data >bad.$data.$workers
    done
    same final.set.$workers.safetensors final.set.pack.$workers.safetensors
    same logits.set.$workers.safetensors logits.set.pack.$workers.safetensors
    same bad.set.$workers bad.set.pack.$workers
done
same final.set.1.safetensors final.set.3.safetensors
grep -q "^SET/train/letter_A/00002.jpg${tab}.*empty" bad.set.1 || complain "bad.list: $(cat bad.set.1)"
grep -q "^SET/val/letter_A/00001.jpg$tab" bad.set.1 || complain "bad.list: $(cat bad.set.1)"

# from the folder to the pack in the middle of a run, and --data
expect 0 train set $net --epochs 2 --run-epochs 1 --max-bad 0.2 --workspace half
expect 0 train set.pack --resume half/checkpoint.safetensors --workspace half --final-weights half.safetensors
same half.safetensors final.set.1.safetensors
expect 0 train --data set.pack $net --epochs 2 --max-bad 0.2 --workspace named --final-weights named.safetensors
same named.safetensors final.set.1.safetensors

# one bad image more than allowed ends both runs with one sentence
fails() { # WORDS ARGUMENTS...
    words=$1
    shift
    expect 1 "$@"
    error_names $words
    silent
    [ "$(grep -c 'error: ' err)" = 1 ] || complain "not one sentence"
}
for data in set set.pack; do
    fails "'$data/train' 1 0 '$data/train/letter_A/00002.jpg'" \
        train $data $net --epochs 1 --max-bad 0 --no-checkpoints
done

# --- evaluation, benchmark ----------------------------------------------------------------------------
judged() {
    sed 's/, "images_per_s.*//' out
}
expect 0 evaluate set --weights final.set.1.safetensors --max-bad 0.2 --logits folder.safetensors --json
judged >of_folder
prints '"n_bad": 1,'
expect 0 evaluate set.pack --weights final.set.1.safetensors --max-bad 0.2 --logits pack.safetensors --json
judged >of_pack
same of_folder of_pack
same folder.safetensors pack.safetensors
expect 0 benchmark --mode data set.pack --threads 1 --max-bad 0.2 --json
prints '"images_per_s"'

# --- one folder of classes; one split -----------------------------------------------------------------
expect 0 dataset pack set/val val.pack
expect 0 evaluate val.pack --weights final.set.1.safetensors --max-bad 0.2 --json
judged >of_pack
same of_folder of_pack
fails "'val.pack' 'train'" train val.pack $net
expect 0 dataset pack set only.pack --split val
expect 0 evaluate only.pack --weights final.set.1.safetensors --max-bad 0.2 --json
judged >of_pack
same of_folder of_pack
fails "'only.pack' 'train' 'val'" train only.pack $net
fails "'set.pack' 'test' 'train' 'val'" dataset check set.pack --split test
fails "'set' 'test'" dataset pack set no.pack --split test

# --- shrinking ------------------------------------------------------------------------------------------
for threads in 1 4; do
    expect 0 dataset pack set small$threads.pack --short-side 20 --quality 80 --threads $threads --json
    prints '"shrunk": [1-9][0-9]*, "unreadable": [1-9]'
    log_names data: "'set/train/letter_A/00002.jpg'"
done
same small1.pack small4.pack
expect 0 dataset check small1.pack --max-bad 1 --json
prints '"width": \{"min": [0-9]+, "median": 20, '
expect 0 train small1.pack $net --epochs 1 --max-bad 0.2 --no-checkpoints
[ "$(wc -c <small1.pack)" -lt "$(wc -c <set.pack)" ] || complain "shrunk images take more room"
expect 0 dataset pack set large.pack --short-side 60000 --json
prints '"shrunk": 0, '

# --- what cannot be packed ---------------------------------------------------------------------------------
expect 2 dataset pack set
error_names DATA OUT.pack
expect 1 dataset pack folder.safetensors x.pack
error_names "'folder.safetensors'" tensors image
expect 2 dataset pack set no.pack --short-side -3
expect 2 dataset pack set no.pack --quality 101
fails "'absent'" dataset pack absent no.pack
fails "'absent/no.pack'" dataset pack set absent/no.pack
fails "'set'" dataset pack set.pack set
fails "'set.pack'" dataset pack set.pack ./set.pack
mkdir empty
fails "'empty'" dataset pack empty no.pack
cp -r set gone
ln -s nowhere gone/val/stripes/zz.jpg
cp set.pack gone.pack
fails "'gone/val/stripes/zz.jpg'" dataset pack gone gone.pack --overwrite
same set.pack gone.pack
tidy .
last="ulimit -f"
code=0
(ulimit -f 20 && exec "$TANDEM" dataset pack set gone.pack --overwrite) >out 2>err </dev/null || code=$?
[ $code = 1 ] || complain "exit code $code, wanted 1"
log_names "'gone.pack'"
same set.pack gone.pack
tidy .

# a signal: nothing is left, the old pack stands
drawn many --classes 2 --train 6000 --val 2
last="SIGINT"
cp set.pack gone.pack
"$TANDEM" dataset pack many gone.pack --overwrite --short-side 31 --threads 1 >out 2>err </dev/null &
pid=$!
n=0
until ls | grep -q 'gone.pack.tmp' || [ $n = 600 ]; do
    sleep 0.01
    n=$((n + 1))
done
kill -INT $pid
code=0
wait $pid || code=$?
[ $code = 3 ] || complain "exit code $code, wanted 3"
says '^tandem: stopped: '
same set.pack gone.pack
tidy .

# --- what is no pack ------------------------------------------------------------------------------------------
size=$(wc -c <set.pack)
: >zero.pack
fails "'zero.pack' empty" train zero.pack $net
echo 'hello, this is a text' >text.pack
fails "'text.pack'" dataset check text.pack
cp "$TANDEM_SOURCE/tests/data/images/rgb.png" named.set
fails "'named.set'" train named.set $net
cp set.pack named.set
expect 0 dataset check named.set --max-bad 1
mkfifo pipe.pack
fails "'pipe.pack'" train pipe.pack $net
fails "'no.pack'" evaluate no.pack --weights final.set.1.safetensors
for part in 8 30 100 $((size / 2)) $((size - 64)) $((size - 1)); do
    head -c $part set.pack >cut.pack
    fails "'cut.pack' cut" train cut.pack $net
    fails "'cut.pack' cut" dataset check cut.pack
done
{ cat set.pack; echo; } >long.pack
fails "'long.pack' trailer" train long.pack $net
{ head -c 8 set.pack; octets 3 0 0 0; tail -c +13 set.pack; } >later.pack
fails "'later.pack' 3 1 2" train later.pack $net

# one bit, in turn in the index and the tail
for at in $((size - 70)) $((size - 900)) $((size - 64)) $((size - 40)) $((size - 24)) $((size - 10)); do
    byte=$(od -An -t u1 -j $at -N 1 set.pack | tr -d ' ')
    { head -c $at set.pack; octets $((byte ^ 4)); tail -c +$((at + 2)) set.pack; } >flipped.pack
    fails "'flipped.pack' damaged" train flipped.pack $net
done

# one bit of an image: that image is bad, the others are not
byte=$(od -An -t u1 -j 700 -N 1 set.pack | tr -d ' ')
{ head -c 700 set.pack; octets $((byte ^ 4)); tail -c +702 set.pack; } >flipped.pack
expect 0 dataset check set.pack --split train --max-bad 1 --json
before=$(sed 's/.*"good": \([0-9]*\), "bad": \([0-9]*\), "jpeg.*/\1 \2/' out)
expect 0 dataset check flipped.pack --split train --max-bad 1 --json
after=$(sed 's/.*"good": \([0-9]*\), "bad": \([0-9]*\), "jpeg.*/\1 \2/' out)
[ "$after" = "$((${before% *} - 1)) $((${before#* } + 1))" ] || complain "good and bad: $before, then $after"
prints '"reason": "damaged'
expect 0 train flipped.pack $net --epochs 1 --max-bad 0.2 --workspace flipped
grep -q 'flipped.pack/train/circle/.*damaged' flipped/bad.list || complain "bad.list: $(cat flipped/bad.list)"
fails '0 damaged' dataset pack flipped.pack no.pack

finish
