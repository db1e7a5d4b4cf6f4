# classify.sh -- folders, lists on standard input, batches, JSON lines; evaluate by class
set -u
. "$TANDEM_SOURCE/tests/e2e/lib.sh"

expect 0 dataset draw set --train 64 --val 80 --size 48 --seed 7
expect 0 train set --arch resnet18 --image-size 32 -b 16 --epochs 1 --lr 0.02 --seed 1 --workspace run --training-only
w=run/checkpoint.safetensors

# a folder is its images by folder, then by name; what it says is what each file by itself says
expect 0 classify --weights $w --json-lines set/val
cp out folder
[ "$(sed 's/^{"path": "\([^"]*\)".*/\1/' folder)" = "$(find set/val -name '*.jpg' | sort)" ] || complain "another order"
find set/val -name '*.jpg' | sort >list
expect 0 classify --weights $w --json-lines --batch-size 1 $(cat list)
labels() {
    sed 's/.*"classes": \[{"label": \([0-9]*\),.*/\1/' "$1"
}
[ "$(labels out)" = "$(labels folder)" ] || complain "batches of 1 and of 8 differ"

# a list on standard input, in the place of -
last="classify -"
first=$(sed -n 1p list)
{ tail -n +2 list; echo; echo absent.jpg; } | "$TANDEM" classify --weights $w --json-lines --top 1 "$first" - >out 2>err ||
    complain "exit code $?"
[ "$(wc -l <out)" = 81 ] || complain "$(wc -l <out) lines for 81 paths"
[ "$(head -80 out | sed 's/.*"label": \([0-9]*\),.*/\1/')" = "$(labels folder)" ] || complain "other labels"
prints '^\{"path": "absent.jpg", "error": "[^"]+", "classes": \[\]\}$'
"$TANDEM" classify --weights $w - </dev/null >out 2>err && complain "an empty list is no error"
error_names 'standard input' empty
printf 'a\0b\n' | "$TANDEM" classify --weights $w - >out 2>err && complain "a NUL byte is no error"
error_names NUL
expect 2 classify --weights $w - -
error_names twice

# as the reference's classify.py is called
expect 0 classify --weights $w --image "$first" --cpu
prints "^$first"
expect 2 classify --weights $w
error_names FILE

# bad ones in their places, whatever the batch
printf 'text' >bad.jpg
expect 0 classify --weights $w --json-lines bad.jpg $(sed -n 1,9p list) bad.jpg $(sed -n 10,12p list) bad.jpg
[ "$(grep -n '"error"' out | cut -d: -f1 | tr '\n' ' ')" = "1 11 15 " ] || complain "bad images elsewhere"
expect 1 classify --weights $w bad.jpg bad.jpg
error_names 2 "'bad.jpg'"
prints '^  unreadable: .*JPEG.*PNG'
# of a single one the reason is the error, and is printed once; --json has it, too
expect 1 classify --weights $w bad.jpg
error_names "'bad.jpg'" JPEG PNG
silent
expect 1 classify --weights $w bad.jpg --json
prints '^\{"predictions": \[\{"path": "bad.jpg", "error": ".*JPEG.*", "classes": \[\]\}\]\}$'
"$TANDEM" classify --weights $w set/val set/val set/val set/val set/val --json >/dev/full 2>err && complain "a full disk is no error"
error_names 'standard output'

# by class: the counts add up to the totals
expect 0 evaluate set --weights $w --per-class --confusion c.csv --json
right=$(sed 's/.*"n_top1": \([0-9]*\), "n_topk".*/\1/' out)
sum=$(sed 's/.*"per_class": \[\(.*\)\], "confusion".*/\1/' out | tr '{' '\n' | sed -n 's/.*"n_top1": \([0-9]*\),.*/\1/p' | paste -sd+ -)
[ "$(($sum))" = "$right" ] || complain "by class $sum are right, in all $right"
[ "$(head -1 c.csv)" = "class,checker,circle,dots,letter_A,letter_X,square,stripes,triangle" ] || complain "$(head -1 c.csv)"
[ "$(tail -n +2 c.csv | cut -d, -f2- | tr ',' '\n' | paste -sd+ - | xargs -I@ sh -c 'echo $((@))')" = 80 ] || complain "the table is not of 80 images"
# classify has the same opinion of every image
for class in circle dots; do
    n=$(grep "^{\"path\": \"set/val/$class/" folder | grep -c "\"classes\": \[{\"label\": [0-9]*, \"name\": \"$class\"")
    column=$(head -1 c.csv | tr ',' '\n' | grep -n "^$class$" | cut -d: -f1)
    [ "$(grep "^$class," c.csv | cut -d, -f$column)" = "$n" ] || complain "evaluate and classify count other ${class}s"
done
expect 0 evaluate set --weights $w --per-class
prints '^class +images +right +top1$'
prints '^  1 circle  '
expect 2 evaluate set --weights $w --confusion c.csv
error_names --confusion --per-class
expect 1 evaluate set --weights $w --per-class --confusion absent/c.csv
says 'absent'
finish
