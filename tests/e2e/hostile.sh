# ctest: timeout 240
# hostile.sh -- checkpoints and weight files from somebody else: none names a file that is read or written, runs
# anything, or sets what is out of range; one without a digest is warned of
set -u
. "$TANDEM_SOURCE/tests/e2e/lib.sh"
. "$TANDEM_SOURCE/tests/e2e/lib_files.sh"
edit=$TANDEM_BUILD/tests/checkpoint_edit
HOME=$WORK/home
export HOME
mkdir home victims box
echo 'PATH=/usr/bin' >home/.bashrc
cd box || exit 1
drawn set --classes 2 --train 16 --val 4
small_model small.td 32 2
net="--model small.td -b 8 --epochs 4 --threads 1 --workers 1 --seed 3 --lr 0.01"
expect 0 train set $net --workspace good --run-epochs 1

# everything but the workspace of the run that resumes: names, sizes, contents
outside() {
    (cd "$WORK" && find . \( -path ./box/went -o -path ./box/page -o -name out -o -name err -o -path ./cache \) -prune -o -print | sort &&
        find . \( -path ./box/went -o -path ./box/page -o -name out -o -name err -o -path ./cache \) -prune -o -type f -print0 | sort -z | xargs -0 cksum)
}

# every spelling of every option that names a file or folder, as `help` has them
"$TANDEM" help train >page || complain "no help page"
names=$(sed -n 's/^ .*[^-]*--\([a-z-]*\)\(, [-a-z, ]*\)\{0,1\} \(FILE\|FOLDER\|PATH\)\( .*\)*$/\1/p' page | sort -u)
[ "$(echo "$names" | wc -l)" -ge 20 ] || complain "found few paths among the options: $names"
# of other programs' names and of the command itself: no checkpoint has them
foreign='cfg-file to-predict pipeline-config-path config preset mode hparams-overrides results_dir log_filename save model_dir json_summary help print_config'

for form in "$WORK/victims/" ../victims/ ../../victims/ "$WORK/home/.bashrc"; do
    set --
    for name in $names; do
        case " $foreign " in *" $name "* | *" $(echo "$name" | tr - _) "*) continue ;; esac # these come below
        value=$form$name
        case $form in *.bashrc) value=$form ;; esac
        set -- "$@" "config.$(echo "$name" | tr - _)=\"$value\""
    done
    rm -rf went
    mkdir went
    "$edit" good/checkpoint.safetensors went/checkpoint.safetensors "$@" || complain "cannot edit"
    outside >went/before
    expect 0 train set --resume went/checkpoint.safetensors
    last="$last with paths as $form"
    says '^tandem: warning: '
    says "--csv '"
    outside | cmp -s - went/before || {
        outside | diff went/before - >&2
        complain "something outside of the workspace has changed"
    }
    for file in checkpoint.safetensors experiment_raport.json config.yaml; do
        [ -s went/$file ] || complain "no '$file' in the checkpoint's folder"
    done
done
# the data set is not read from where a checkpoint says
"$edit" good/checkpoint.safetensors went/checkpoint.safetensors "config.data=\"$WORK/box/set\"" || complain "cannot edit"
expect 2 train --resume went/checkpoint.safetensors
error_names "DATA"
expect 2 train --resume went/checkpoint.safetensors --evaluate

# a folder in which a link stands in a file's place: nothing is written through it
for file in experiment_raport.json bad.list config.yaml model_best.safetensors checkpoint.safetensors.tmp.1 tandem.lock; do
    rm -rf went
    mkdir went
    cp good/checkpoint.safetensors went/
    ln -s ../../home/.bashrc went/$file
    outside >went/before
    "$TANDEM" train set --resume went/checkpoint.safetensors >out 2>err </dev/null
    last="'$file' is a link"
    outside | cmp -s - went/before || complain "written through a link"
done

# --- options that are no checkpoint's; numbers and choices out of range -----------------------------
for name in $foreign; do
    "$edit" good/checkpoint.safetensors went/checkpoint.safetensors "config.$name=\"x\"" || complain "cannot edit"
    expect 1 train set --resume went/checkpoint.safetensors
    error_names "'went/checkpoint.safetensors'" "tandem.config" "'$name'"
done
for wrong in threads=4097 threads=-1 batch_size=0 batch_size=1e9 workers=2000 workers=-1 prefetch=0 prefetch=100000 \
    image_size=100000 num_classes=-5 epochs=0 lr=-1 'lr="nan"' momentum=7 device='"/dev/sda"' arch='"../x"' \
    data_backend='"ftp"' precision=5 topk=0 seed=-7 'lr=[1]' 'lr={"a":1}'; do
    "$edit" good/checkpoint.safetensors went/checkpoint.safetensors "config.$wrong" || complain "cannot edit"
    code=0
    "$TANDEM" train set --resume went/checkpoint.safetensors >out 2>err </dev/null || code=$?
    last="config.$wrong"
    [ $code = 1 ] || [ $code = 2 ] || complain "exit code $code"
    [ "$(grep -c '^tandem: error: ' err)" = 1 ] || complain "not one sentence"
done

# --- a run goes on with the paths that its own line names -------------------------------------------
rm -rf went
expect 0 train set $net --workspace went --run-epochs 1 --csv one.csv --raport-file own.json --checkpoint-filename own.safetensors
expect 0 train set --resume went/own.safetensors --run-epochs 1
says "--raport-file 'own.json'"
says "--csv 'one.csv'"
says "--checkpoint-filename 'own.safetensors'"
[ "$(wc -l <one.csv)" = 2 ] || complain "a table went on that was not named"
expect 0 train set --resume went/checkpoint.safetensors --csv one.csv --raport-file own.json --checkpoint-filename own.safetensors
if grep -q '^tandem: warning: .*--' err; then complain "warned of paths that are named again"; fi
[ "$(cut -d, -f1 one.csv | tr '\n' ' ')" = 'epoch 0 2 3 ' ] || complain "rows of the table: $(cut -d, -f1 one.csv)"
# and in the workspace that it names
expect 0 train set --resume good/checkpoint.safetensors --workspace elsewhere --run-epochs 1
[ -s elsewhere/checkpoint.safetensors ] || complain "not in the workspace that was named"
(cd good && last='from its folder' && "$TANDEM" train ../set --resume checkpoint.safetensors --run-epochs 1 >../out 2>../err) ||
    complain "does not resume from its own folder"
[ -z "$(ls good | grep -v -e '^checkpoint.safetensors$' -e '^model_best.safetensors$' -e '^experiment_raport.json$' -e '^config.yaml$' -e lock)" ] ||
    complain "more in the folder than a run leaves: $(ls good)"

# --- without a digest: read, with a warning; weight files too ---------------------------------------
LC_ALL=C sed 's/"digest/"xigest/g' good/checkpoint.safetensors >bare.safetensors
expect 0 train set --resume bare.safetensors --workspace went2 --run-epochs 1
warning_names weights: "'bare.safetensors'"
expect 0 evaluate set --weights bare.safetensors
warning_names weights: "'bare.safetensors'"
expect 0 convert bare.safetensors whole.safetensors
warning_names weights: "'bare.safetensors'"
expect 0 evaluate set --weights whole.safetensors
if grep -q digest err; then complain "warned of a file with a digest"; fi

# --- weight files of others: evaluate, classify and convert obey no option in them --------------------
set --
for name in $names; do
    [ "$name" != config ] || continue
    set -- "$@" "config.$(echo "$name" | tr - _)=\"$WORK/victims/$name\"" "meta.tandem.$name=$WORK/victims/$name"
done
rm -rf went
mkdir went
"$edit" good/checkpoint.safetensors went/w.safetensors "$@" 'meta.torch.arch=/etc/passwd' \
    "config.logits=\"$WORK/victims/logits\"" "config.draw=\"$WORK/victims/draw\"" || complain "cannot edit"
outside >went/before
expect 0 evaluate set --weights went/w.safetensors
expect 0 classify set/val/*/*1.jpg --weights went/w.safetensors
expect 0 convert went/w.safetensors went/converted.safetensors
expect 0 convert went/w.safetensors went/converted.onnx
expect 0 inspect model --weights went/w.safetensors
last="reading a hostile weight file"
outside | cmp -s - went/before || {
    outside | diff went/before - >&2
    complain "something outside of the folder has changed"
}
# nor does one make an image a matter of minutes and gigabytes
expect 0 init --arch resnet18 --num-classes 2 --seed 1 -o fresh.safetensors
"$edit" fresh.safetensors large.safetensors meta.tandem.image_size=8192 || complain "cannot edit"
expect 0 classify set/val/circle/00001.jpg --weights large.safetensors --image-size 32
expect 0 classify set/val/circle/00001.jpg --weights large.safetensors --log warn
warning_names 8192 2048 --image-size
if header went/converted.safetensors | grep -q 'tandem.config'; then complain "the options went along"; fi
finish
