# workspace.sh -- where a run's files go: a folder of its own unless one is named, and never over another run's files
set -u
. "$TANDEM_SOURCE/tests/e2e/lib.sh"
. "$TANDEM_SOURCE/tests/e2e/lib_files.sh"

expect 0 dataset draw set --classes 2 --train 8 --val 4 --size 40 --seed 1
common="-b 4 --threads 1 --workers 1 --seed 1 --lr 0.01"
small_model small-net.td 32 2
net="--model small-net.td $common"
all() {
    (cd "$1" && cksum $(find . -type f ! -name tandem.lock | sort))
}

# a new folder for every run, named in the log and in the result
expect 0 train set --arch resnet18 --image-size 32 $common --epochs 1
log_names train: "'runs/resnet18-1'"
prints '^checkpoint    runs/resnet18-1/checkpoint.safetensors$'
expect 1 train set --arch resnet34 --resume runs/resnet18-1/checkpoint.safetensors
error_names "'runs/resnet18-1/checkpoint.safetensors'" 'of resnet18' resnet34 --arch
for file in checkpoint.safetensors model_best.safetensors experiment_raport.json config.yaml; do
    [ -f runs/resnet18-1/$file ] || complain "no $file"
    [ ! -e $file ] || complain "$file in the current folder"
done
[ ! -e runs/resnet18-1/tandem.lock ] || complain "the lock is left"
expect 0 train set --arch resnet18 --image-size 32 $common --run-iters 1
says "'runs/resnet18-2'"
expect 0 train set $net --epochs 1
says "'runs/small-net-1'"
first=$(all runs/small-net-1)
cp small-net.td 'odd *;net
.td'
expect 0 train set --model 'odd *;net
.td' $common --run-iters 1
says "'runs/odd___net_-1'"

# two that begin at once do not share one
mkdir pair
(cd pair && "$TANDEM" train ../set --model ../small-net.td $common --epochs 1 --run-iters 1 >a.out 2>a.err </dev/null) &
(cd pair && "$TANDEM" train ../set --model ../small-net.td $common --epochs 1 --run-iters 1 >b.out 2>b.err </dev/null)
wait
[ -f pair/runs/small-net-1/checkpoint.safetensors ] && [ -f pair/runs/small-net-2/checkpoint.safetensors ] ||
    complain "two runs at once: $(find pair/runs)"

# config.yaml names no folder, so that the same run again has one of its own
expect 0 train --config runs/small-net-1/config.yaml --run-iters 1
says "'runs/small-net-2'"

# a folder that holds a run; it has one name, with or without a slash
expect 0 train set $net --epochs 1 --workspace mine//
log_names train: "'mine'"
prints '^checkpoint    mine/checkpoint.safetensors$'
expect 0 train set --resume mine/checkpoint.safetensors
log_names train: "'mine'"
if grep -q '[Ww]riting' err; then complain "writes the files of a run that has ended"; fi
before=$(all mine)
expect 1 train set $net --epochs 2 --workspace mine
error_names "'mine'" "'mine/checkpoint.safetensors'" --workspace --resume --overwrite
[ "$(all mine)" = "$before" ] || complain "the refused run changed something"
for kept in checkpoint.safetensors model_best.safetensors; do
    rm -rf part && mkdir part && cp mine/$kept part
    expect 1 train set $net --epochs 1 --workspace part
    error_names "'part/$kept'"
    [ "$(ls part | grep -v tandem.lock)" = "$kept" ] || complain "left $(ls part)"
done
# one that was killed before its first checkpoint starts again; what is replaced is named
rm -rf part && mkdir part && cp mine/experiment_raport.json mine/config.yaml part
expect 0 train set $net --epochs 1 --run-iters 1 --workspace part
warning_names train: "'part/experiment_raport.json'"
rm -rf part && mkdir part && echo 'lr: 1' >part/config.yaml && echo text >part/notes
expect 0 train set $net --epochs 1 --run-iters 1 --workspace part
log_names "'part/config.yaml'"
[ "$(cat part/config.yaml part/notes)" = "$(printf 'lr: 1\ntext')" ] || complain "a file of the user's is gone"
expect 1 train set $net --epochs 2 --workspace part --resume mine/checkpoint.safetensors
error_names "'part'"
expect 0 train set $net --epochs 1 --workspace mine --overwrite --training-only
[ ! -e mine/model_best.safetensors ] || complain "the best weights of the replaced run are there"
if grep -q overwrite mine/config.yaml; then
    expect 1 train --config mine/config.yaml
    error_names "'mine'"
fi

# a run that trains nothing leaves nothing; a folder that was there stays, with the files of others
plain_model nan.td 32 4 4 1 1e6
safetensors nan.safetensors "$(tensors_header 8 3 32 32)"
{ floats 7e967699 && head -c $((8 * 3 * 32 * 32 * 4 - 4 + 8 * 8)) /dev/zero; } >>nan.safetensors
nan="train nan.safetensors --data-backend tensors --model nan.td $common --epochs 1"
runs=$(ls runs)
for where in '' '--workspace nothing' '--workspace nothing --no-checkpoints'; do
    expect 1 $nan $where
    error_names 'epoch 0' 'iteration 1' loss
    [ "$(ls runs)" = "$runs" ] && [ ! -e nothing ] || complain "left $(ls -d runs/* nothing)"
done
mkdir nothing && echo text >nothing/notes
expect 1 $nan --workspace nothing
[ "$(cat nothing/notes)" = text ] || complain "a file of the user's is gone"
rm -rf nothing
# one that names its bad images keeps the list
cp -r set part_set && for file in part_set/train/*/*; do echo damaged >"$file"; printf '\377\330\377' | dd of="$file" conv=notrunc 2>/dev/null; done
expect 1 train part_set $net --epochs 1 --workspace listed
log_names train: "'listed/bad.list'"
[ -s listed/bad.list ] || complain "no list of bad images"

# a run continues in its folder, wherever the command is started
expect 0 train set --resume runs/small-net-1/checkpoint.safetensors --epochs 2
prints '^checkpoint    runs/small-net-1/checkpoint.safetensors$'
[ "$(all runs/small-net-1)" != "$first" ] || complain "nothing was continued"
expect 0 train set --resume runs/small-net-1/checkpoint.safetensors --epochs 3 --workspace moved
[ -f moved/checkpoint.safetensors ] || complain "no moved/checkpoint.safetensors"
# the checkpoint's folder, then --config's, then the command line's; the checkpoint may be named in the file, too
saved=$PWD/moved/checkpoint.safetensors
printf 'outputs:\n  workspace: by_file\n' >place.yaml
printf 'outputs:\n  resume: %s\n  workspace: null\n' "$saved" >resume.yaml
while read -r folder options; do
    expect 0 train set --epochs 3 $options
    log_names train: "'$folder'"
done <<END
$PWD/moved --resume $saved
$PWD/moved --config resume.yaml
by_file --resume $saved --config place.yaml
by_line --resume $saved --config place.yaml --workspace by_line
by_line --config resume.yaml --workspace by_line --overwrite
END
(cd moved && "$TANDEM" train ../set --resume checkpoint.safetensors --epochs 4 >../out 2>../err </dev/null) || complain "fails"
log_names train: "'.'"
# nor does the config.yaml of a resumed run name a folder
grep -Eq '^  workspace: null$' moved/config.yaml || complain "config.yaml of a resumed run: $(grep workspace moved/config.yaml)"

# files that the command line names are where it says
expect 0 train set $net --epochs 1 --run-iters 1 --raport-file report.json --csv epochs.csv --final-weights w.safetensors
[ -f report.json ] && [ -f epochs.csv ] && [ -f w.safetensors ] || complain "a named file is missing"
expect 0 train set $net --epochs 1 --run-iters 1 --raport-file report.json --workspace named
[ -f named/report.json ] || complain "no report in the workspace"
rm -rf runs
expect 0 train set $net --run-iters 1 --no-checkpoints --final-weights w.safetensors --raport-file again.json
[ -f again.json ] && [ ! -e runs ] || complain "a run that saves nothing"
expect 0 train set $net --run-iters 1 --checkpoint-filename c.safetensors
[ -f c.safetensors ] && [ ! -e runs ] || complain "a checkpoint with a name"
expect 1 train set $net --run-iters 1 --checkpoint-filename c.safetensors
error_names "'./c.safetensors'"
# also where the name is the default one; a name that was given is not missed by a checkpoint with another one
expect 0 train set $net --run-iters 1 --checkpoint-filename checkpoint.safetensors
[ -f checkpoint.safetensors ] && [ ! -e runs ] || complain "a checkpoint with the default name"
expect 0 train set --resume c.safetensors --run-iters 1 --epochs 2
says "'c.safetensors'.* --checkpoint-filename"
expect 0 train set --resume c.safetensors --run-iters 1 --epochs 2 --checkpoint-filename checkpoint.safetensors --overwrite
if grep -q -e --checkpoint-filename err; then complain "warns of a name that was given"; fi

# what cannot be a folder
: >runs
expect 1 train set $net --run-iters 1
error_names "'runs'"
finish
