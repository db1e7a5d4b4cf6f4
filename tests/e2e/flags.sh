# ctest: timeout 240
# flags.sh -- every flag of the reference programs, flags.table a line each: what it sets, or the refusal; and that
# --print-config is a --config that leads to the same, from any form of file
set -u
. "$TANDEM_SOURCE/tests/e2e/lib.sh"

cat >configs.yml <<'END'
precision: {AMP: {amp: True, lr: 1, workers: 1}, FP32: {amp: False}}
platform: {P1: {workers: 7, lr: 1.5}, P2: {workers: 2}}
base: &base {arch: resnet18, lr: 2, print_freq: 5, epochs: 4}
models: {net: {P1: {AMP: {<<: *base, batch_size: 16}}}}
mode:
  convergence: &c {print_freq: 20, save_checkpoints: True}
  fast: {<<: *c, print_freq: 2, lr: 3, augmentation: null}
END

# one TEST of the line's end after its mark
check_setting() {
    grep -qxF -e "  $1" out || complain "no '$1' in the configuration"
}

n=0
while IFS= read -r line; do
    case $line in '' | '#'*) continue ;; esac
    n=$((n + 1))
    case $line in
    *' ! '*)
        expect 2 ${line%% ! *} --print-config
        grep -qF -e "$(echo "${line#* ! }" | sed 's/^ *//')" err || complain "stderr does not say '${line#* ! }'"
        silent
        ;;
    *)
        expect 0 ${line%% : *} --print-config
        rest=${line#* : }
        while :; do
            check_setting "${rest%% ; *}"
            case $rest in *' ; '*) rest=${rest#* ; } ;; *) break ;; esac
        done
        ;;
    esac
done <"$TANDEM_SOURCE/tests/e2e/flags.table"
[ "$n" -gt 140 ] || complain "only $n lines in the table"

# what is printed reads back to the same, and the line wins over it
expect 0 train DIR --preset resnet50/DGXA100/AMP/90 --seed 3 --workspace 'a "b" #c' --amp-allow-add relu --print-config
cp out printed.yaml
expect 0 train --config printed.yaml --print-config
cmp -s out printed.yaml || complain "--print-config does not read back: $(diff out printed.yaml | head -5)"
expect 0 train --config printed.yaml --lr 9 -b 7 --print-config
check_setting 'lr: 9'
check_setting 'batch_size: 7'
check_setting 'epochs: 90'

# the order: preset, then file, then line; the file may name the preset
printf 'preset: resnet50/T4/FP32\nrecipe:\n  lr: 0.5\n  warmup: 3\n' >over.yaml
expect 0 train --config over.yaml --warmup 2 --print-config
check_setting 'optimizer_batch_size: 2048'
check_setting 'lr: 0.5'
check_setting 'warmup: 2'
printf '{"arch": "resnet18",\n "lrr": 1}' >c.json
expect 2 train --config c.json --print-config
error_names "c.json" "2" "'lrr'" "'lr'"
printf 'arch: resnet18\nrecip:\n  lr: 1\n' >c.yaml
expect 2 train --config c.yaml --print-config
error_names "c.yaml" "2" "'recip'" "'recipe'"
printf 'lr: 1\nlr: 2\n' >c.yaml
expect 1 train --config c.yaml --print-config
error_names "c.yaml" "2" "'lr'" "1"
for name in config help print_config; do
    printf '%s: c.yaml\n' $name >c.yaml
    expect 2 train --config c.yaml --print-config
    error_names "c.yaml" "1" "'$name'"
done
printf 'quantize: true\n' >c.yaml
expect 2 train --config c.yaml --print-config
error_names quantize
printf 'models: {net: {P: {AMP: {lrr: 3}}}}\nprecision: {AMP: {}}\nplatform: {P: {}}\nmode: {m: {}}\n' >bad.yml
expect 2 train --cfg_file bad.yml --model net --platform P --precision AMP --mode m --print-config
error_names "bad.yml" "1" "'lrr'"
printf 'models: [\n' >bad.yml
expect 1 train --cfg_file bad.yml --preset net/P/AMP --print-config
error_names "bad.yml"
printf 'models: [[[3]], {a: {b: 1}}]\nrule: [x]\nmode: 3\n' >bad.yml
expect 0 train --cfg_file bad.yml --preset list
expect 2 train --cfg_file bad.yml --preset net --platform P --precision AMP --print-config
error_names "'AMP'"
printf 'precision: {AMP: [1]}\nplatform: {P: {lr: [1, 2]}}\n' >bad.yml
expect 1 train --cfg_file bad.yml --preset net/P/AMP --print-config
error_names "bad.yml" "1"
expect 1 train --cfg_file absent.yml --preset net/P/AMP --print-config
error_names "absent.yml"

# what is named twice, or not there
expect 2 train --preset resnet50/90/50 --print-config
error_names "'90'" "'50'"
expect 2 train --preset resnet50/T4/DGXA100/AMP --print-config
error_names "'T4'" "'DGXA100'"
expect 2 train --preset resnet50/T4/AMP/FP32 --print-config
error_names "'AMP'" "'FP32'"
expect 2 train --preset resnet50/evaluate/convergence --print-config
error_names "'evaluate'" "'convergence'"
expect 2 train --model resnet51 --precision AMP --platform T4 --print-config
error_names "model" "'resnet51'"

# the options of every verb, without what it works on
for verb in classify convert inspect dataset report; do
    expect 0 $verb --print-config
    [ -s out ] || complain "$verb --print-config prints nothing"
done

# a --model that is a file is a network of one's own, whatever its name
expect 0 train --preset list
prints '^resnet50/DGXA100/AMP +256 +2048 +2.048 3.0517578125e-05'
prints '^se-resnext101-32x4d/DGX1V/FP32/2019-12 '
cp out list
expect 0 help presets
cmp -s out list || complain "help presets and --preset list differ"
expect 0 train --preset list --cfg_file configs.yml
prints '^net/P1/AMP +16 '
touch resnet50
expect 0 train --model resnet50 --print-config
check_setting 'model: "resnet50"'
finish
