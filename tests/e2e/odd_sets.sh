# ctest: timeout 180
# odd_sets.sh -- unusual but right: names with spaces, newlines, quotes and bytes that are no UTF-8; one image per
# class; batches larger than the validation set; every kind of image file; links; deep folders; a part of the classes
set -u
. "$TANDEM_SOURCE/tests/e2e/lib.sh"
. "$TANDEM_SOURCE/tests/e2e/lib_files.sh"

small_model small.td 32 4
net="--model small.td --threads 1 --workers 1 --seed 1 -b 8 --epochs 1"

# --- names --------------------------------------------------------------------------------------
odd='odd set
of "two" lines'
latin=$(printf 'caf\351')
quoted='it'\''s "a" class\'
drawn "$odd" --classes 4 --train 48 --val 12
for split in train val; do
    mv "$odd/$split/circle" "$odd/$split/$latin"
    mv "$odd/$split/square" "$odd/$split/$quoted"
done
long=$(printf 'x%.0s' 1 2 3 4 5 6 7 8 9 10)
long=$(for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25; do printf %s "$long"; done).jpg
mkdir -p "$odd/train/stripes/deep/er"
cp "$odd/train/stripes/00000.jpg" "$odd/train/stripes/deep/er/$long"
ln -s 00000.jpg "$odd/train/stripes/link.JPG"
expect 0 train "$odd" $net --workspace "a b
c" --final-weights "final 'weights'.safetensors"
log_names 4 50 '32 x 32'
report_is_sound "a b
c/experiment_raport.json"
expect 0 evaluate "$odd" --weights "final 'weights'.safetensors" -b 500 --json
prints '"n": 12, '
cp out first
expect 0 train "$odd" --resume "a b
c/checkpoint.safetensors" --epochs 2 --workspace again
expect 0 inspect checkpoint "final 'weights'.safetensors" --json
prints 'letter_A'
expect 0 classify --weights "final 'weights'.safetensors" --json "$odd/val/$latin/00000.jpg" "$odd/val/$quoted/00000.jpg"
[ "$(wc -l <out)" = 1 ] || complain "a name broke the line of JSON"
prints '"name": "it'\''s \\"a\\" class\\\\"'

# a part of the classes is judged by the network's own numbers
mkdir some
cp -r "$odd/val/$quoted" "$odd/val/stripes" some
expect 0 evaluate some --weights "final 'weights'.safetensors" --json
prints '"n": 6, '

# --- small --------------------------------------------------------------------------------------
for class in a b; do
    mkdir -p tiny/train/$class tiny/val/$class
    cp some/stripes/0000$([ $class = a ] && echo 0 || echo 1).jpg tiny/train/$class
    cp some/stripes/00002.jpg tiny/val/$class
done
small_model two.td 32 2
common="--threads 1 --seed 1 --workspace tiny.run --lr 0.01"
tiny="--model two.td $common"
expect 0 train tiny $tiny -b 2 --epochs 2
expect 0 train tiny $tiny -b 1 --epochs 1 --no-checkpoints
expect 0 evaluate tiny --weights tiny.run/checkpoint.safetensors -b 64 --json
prints '"n": 2, '
expect 0 train tiny $tiny -b 2 --epochs 4 --gather-checkpoints 2 --workspace gather
[ "$(ls gather | grep checkpoint | tr '\n' ' ')" = 'checkpoint.safetensors checkpoint_0002.safetensors checkpoint_0003.safetensors ' ] ||
    complain "kept $(ls gather)"
same gather/checkpoint.safetensors gather/checkpoint_0003.safetensors
for size in 8 9 33; do
    expect 0 train tiny --arch resnet18 $common -b 2 --epochs 1 --no-checkpoints --image-size $size
done

# --- images -----------------------------------------------------------------------------------
expect 0 classify --weights tiny.run/checkpoint.safetensors --topk 1 "$TANDEM_SOURCE"/tests/data/images/*
n=$(ls "$TANDEM_SOURCE"/tests/data/images | wc -l)
[ $n -ge 30 ] || complain "only $n images"
[ "$(grep -Ec '^  [ab]: [0-9.]+%$' out)" = $n ] || complain "not a class for each of $n images"
cp "$TANDEM_SOURCE/tests/data/images/rgb.png" tiny/val/a/png.jpg
cp "$TANDEM_SOURCE/tests/data/images/cmyk.jpg" tiny/val/a/jpg.png
expect 0 evaluate tiny --weights tiny.run/checkpoint.safetensors --json
prints '"n": 4, .*"n_bad": 0,'

# a data set of every format: all of it is read, in a pack too
mkdir -p formats/train/a formats/train/b formats/val/a formats/val/b
for file in lossy.webp gray8_lzw.tif cmyk.tif plain.gif rgb.bmp rgb.png rgb.jpg; do
    for split in train val; do
        cp "$TANDEM_SOURCE/tests/data/images/$file" formats/$split/a
        cp "$TANDEM_SOURCE/tests/data/images/$file" "formats/$split/b/${file%.*}_${file##*.}" # without its ending
    done
done
expect 0 dataset check formats --split train
prints '^  images      14, 14 readable, 0 not$'
prints '2 JPEG .* 2 PNG, 2 WebP, 4 TIFF, 2 GIF, 2 BMP;'
expect 0 dataset check formats --split train --json
prints '"jpeg": 2, "png": 2, "webp": 2, "tiff": 4, "gif": 2, "bmp": 2,'
expect 0 train formats $tiny -b 4 --epochs 1 --workspace formats.run
expect 0 evaluate formats --weights formats.run/checkpoint.safetensors --json
prints '"n": 14, .*"n_bad": 0,'
cp out first
expect 0 dataset pack formats formats.pack
expect 0 evaluate formats.pack --weights formats.run/checkpoint.safetensors --json
prints '"n": 14, .*"n_bad": 0,'
# damaged files of these formats are named, each with its reason
for file in lossy.webp gray8_lzw.tif plain.gif rgb.bmp; do
    head -c 200 "$TANDEM_SOURCE/tests/data/images/$file" >formats/val/a/$file
done
expect 1 dataset check formats --split val
for reason in lossy.webp:.WebP gray8_lzw.tif:.TIFF plain.gif:.GIF rgb.bmp:.BMP; do
    prints "unreadable  formats/val/a/$reason: "
done

# --- many threads, many workers, far ahead --------------------------------------------------------
expect 0 train tiny $tiny -b 2 --epochs 2 --no-checkpoints --threads 17 --workers 99 --prefetch 99
# --- what is an image, its first bytes say; what is none, `dataset check` counts and names ------------------------
expect 0 dataset draw kinds --classes 2 --train 8 --val 4 --size 40 --seed 1
class=$(ls kinds/train | head -1)
mv "kinds/train/$class/00000.jpg" "kinds/train/$class/nameless"
[ -e "kinds/train/$class/00002.jpg" ] && mv "kinds/train/$class/00002.jpg" "kinds/train/$class/odd.xyz"
echo notes >"kinds/train/$class/notes.txt"
printf '....ftypavif....' >"kinds/train/$class/real.avif"
: >"kinds/train/$class/empty"
mkfifo "kinds/train/$class/pipe"
echo notes >kinds/train/README
expect 0 dataset check kinds --split train
prints '^  images      8, 8 readable, 0 not$'
prints '^  no images   5 '
prints '^    kinds/train/README$'
for name in notes.txt real.avif empty pipe; do
    prints "^    kinds/train/$class/$name$"
done
log_names data: 5 "'kinds/train'" "'kinds/train/README'"
expect 0 dataset check kinds --split train --json
prints '"other_files": 5, "others": \["kinds/train/'
expect 0 train kinds --arch resnet18 --image-size 32 -b 4 --threads 1 --run-iters 1 --no-checkpoints --training-only
log_names data: 5 "'kinds/train'" "'kinds/train/README'"
rm "kinds/train/$class/notes.txt" "kinds/train/$class/real.avif" "kinds/train/$class/empty" "kinds/train/$class/pipe"
expect 0 dataset check kinds
[ "$(grep -c 'README' err)" = 1 ] || complain "the file is not logged once"
says '^data: ignoring 1 file '

# --- the splits that exist, and what the missing one is for: both are named, and a set with one is usable ----------
prints '^splits +train, val$'
expect 0 dataset check kinds --json
prints '\], "missing_splits": \[\]\}$'
expect 0 dataset check kinds --split val
if grep -q splits out; then complain "one split was chosen"; fi
expect 0 dataset check kinds/val
prints '^splits +no train, no val.*evaluation'
expect 0 dataset check kinds/val --json
prints '"missing_splits": \["train", "val"\]\}$'
cp -r kinds/val kept
mv "kinds/val/$class" kinds/val/zebra
expect 1 dataset check kinds
error_names "'kinds/val'" "'zebra'"
prints '^splits +train, val$'
expect 1 dataset check kinds --json
prints '"missing_splits": \[\]\}$'
rm -r kinds/val/zebra
cp -r kept/"$class" kinds/val
cp -r kept/"$class" kinds/val/zebra
expect 1 dataset check kinds
error_names "'kinds/val'" "'zebra'"
rm -r kinds/val kept/zebra 2>/dev/null
cp -r kept kinds/val
expect 0 dataset check kinds
mv kinds/val gone
expect 0 dataset check kinds
prints '^splits +train; no val.*--training-only'
expect 0 dataset check kinds --json
prints '"missing_splits": \["val"\]\}$'
expect 1 train kinds --arch resnet18 --image-size 32 -b 4 --threads 1 --no-checkpoints
error_names "'kinds'" "'val'" --training-only
expect 1 train kinds/train --arch resnet18 --image-size 32 -b 4 --threads 1 --no-checkpoints
error_names "'kinds/train'" "'train'" "'kinds'"
mv gone kinds/val
mv kinds/train gone
expect 0 dataset check kinds
prints '^splits +val; no train.*evaluation'
expect 0 dataset check kinds --json
prints '"missing_splits": \["train"\]\}$'
mkdir kinds/train
expect 1 dataset check kinds
error_names "'kinds/train'"
finish
