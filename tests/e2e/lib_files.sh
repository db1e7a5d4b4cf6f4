# lib_files.sh -- sourced by tests, after lib.sh: make and judge files
#
#   le64 N                       N as eight bytes, lowest first
#   safetensors FILE HEADER      header length and header; the caller appends the payload
#   tensors_header N C H W       header of a data set of N images and labels; payload: images, then labels
#   floats HEX...                each 32-bit pattern, 3f800000 for 1, as four bytes, lowest first
#   payload FILE                 what follows the header
#   header FILE                  the header's JSON
#   tensor FILE NAME             its bytes
#   small_model FILE SIDE K      graph text: two convolutions with batch norm, for SIDE x SIDE images, K classes
#   plain_model FILE SIDE C1 C2 STRIDE SCALE2   graph text without norms, 4 classes: convolutions to C1 and C2 channels,
#                                the first of that stride, the second's weights of that deviation
#   report_is_sound FILE         every line of a --raport-file is "DLLL " and an object of the promised form
#   metric FILE STEP NAME        value of a metric in the report's record of that step, '0, 10'
#   same FILE FILE               equal bytes, else complain
#   tidy FOLDER                  no temporary is left in the folder, else complain
#   drawn FOLDER OPTIONS...      a drawn data set of 32 x 32 images

octets() {
    for octet; do
        printf "\\$(printf %03o "$octet")"
    done
}

le64() {
    for shift in 0 8 16 24 32 40 48 56; do
        octets $(($1 >> shift & 255))
    done
}

floats() {
    for word; do
        word=$((0x$word))
        octets $((word & 255)) $((word >> 8 & 255)) $((word >> 16 & 255)) $((word >> 24 & 255))
    done
}

safetensors() {
    { le64 ${#2}; printf %s "$2"; } >"$1"
}

header_bytes() {
    od -An -t u8 -N 8 "$1" | tr -d ' '
}

tensors_header() {
    bytes=$(($1 * $2 * $3 * $4 * 4))
    printf '{"images":{"dtype":"F32","shape":[%d,%d,%d,%d],"data_offsets":[0,%d]},' "$1" "$2" "$3" "$4" $bytes
    printf '"labels":{"dtype":"I64","shape":[%d],"data_offsets":[%d,%d]}}' "$1" $bytes $((bytes + $1 * 8))
}

payload() {
    tail -c +$((9 + $(header_bytes "$1"))) "$1"
}

header() {
    tail -c +9 "$1" | head -c "$(header_bytes "$1")"
}

tensor() {
    at=$(header "$1" | sed "s/.*\"$2\":{[^}]*\"data_offsets\":\[\([0-9]*\),\([0-9]*\)\].*/\1 \2/")
    payload "$1" | tail -c +$((${at% *} + 1)) | head -c $((${at#* } - ${at% *}))
}

small_model() {
    cat >"$1" <<END
# two convolutions with batch norm
%images:f32[1,3,$2,$2] = input
%conv1.weight:f32[16,3,3,3] = param {init=normal, scale=0.272}
%1 = conv2d %images, %conv1.weight {pad=1}
%bn1.weight:f32[16] = param {init=ones}
%bn1.bias:f32[16] = param
%bn1.running_mean:f32[16] = param {role=stat}
%bn1.running_var:f32[16] = param {role=stat, init=ones}
%2 = batch_norm_infer %1, %bn1.weight, %bn1.bias, %bn1.running_mean, %bn1.running_var
%3 = relu %2
%4, %where1 = max_pool2d %3 {kernel=2, stride=2}
%conv2.weight:f32[32,16,3,3] = param {init=normal, scale=0.118}
%5 = conv2d %4, %conv2.weight {pad=1}
%bn2.weight:f32[32] = param {init=ones}
%bn2.bias:f32[32] = param
%bn2.running_mean:f32[32] = param {role=stat}
%bn2.running_var:f32[32] = param {role=stat, init=ones}
%6 = batch_norm_infer %5, %bn2.weight, %bn2.bias, %bn2.running_mean, %bn2.running_var
%7 = relu %6
%8, %where2 = max_pool2d %7 {kernel=2, stride=2}
%9 = global_avg_pool %8
%fc.weight:f32[$3,32] = param {init=uniform, scale=0.177}
%fc.bias:f32[$3] = param {init=uniform, scale=0.177}
%10 = linear %9, %fc.weight, %fc.bias
output logits = %10
END
}

report_is_sound() {
    number='(null|-?[0-9.]+(e[-+]?[0-9]+)?)'
    text='"([^"\\]|\\.)*"'
    times='"timestamp": "[0-9.]+", "datetime": "[-0-9]+ [0-9:.]+", "elapsedtime": "[0-9.]+"'
    metric="\"((train|val|val_ema)\.)?[a-z0-9_]+\": $number"
    setting="\"((model|run)\.)?[-a-z0-9_]+\": ($number|$text|true|false)"
    log="\"step\": \[([0-9]+(, [0-9]+){0,2})?\], \"data\": \{($metric(, $metric)*)?\}"
    parameter="\"step\": \"PARAMETER\", \"data\": \{$setting(, $setting)*\}"
    metadata="\"metric\": $text, \"metadata\": \{(\"unit\": (null|$text), )?\"format\": $text\}"
    names="\"actual\": $text, \"predicted\": $text"
    matrix="\"classes\": \[$text(, $text)*\], \"counts\": \[[][0-9, ]*\]"
    pairs="\"pairs\": \[(, |\{$names, \"count\": [0-9]+\})*\]"
    mistakes="\"mistakes\": \[(, |\{\"path\": $text, \"sample\": [0-9]+, $names, \"probability\": $number\})*\]"
    confusion="\"step\": \[[0-9]*\], \"data\": \{\"images\": [0-9]+, \"wrong\": [0-9]+, ($matrix|$pairs), $mistakes\}"
    if grep -Evn "^DLLL \{$times, \"type\": \"(LOG\", ($log|$parameter)|CONFUSION\", $confusion|METADATA\", $metadata)\}$" "$1" >&2; then
        complain "'$1' has lines that are no records"
    fi
}

metric() {
    sed -n "s/.*\"step\": \[$2\], .*\"$3\": \([-0-9.e+]*\)[,}].*/\1/p" "$1"
}

same() {
    cmp "$1" "$2" >&2 || complain "'$1' and '$2' differ"
}

tidy() {
    if ls "$1" | grep -E '\.(tmp|part)\.' >&2; then
        complain "temporaries are left in '$1'"
    fi
}

drawn() {
    "$TANDEM" dataset draw "$@" --size 32 >draw.log 2>&1 || { cat draw.log >&2; exit 1; }
}

plain_model() {
    cat >"$1" <<END
%images:f32[1,3,$2,$2] = input
%conv1.weight:f32[$3,3,3,3] = param {init=normal, scale=0.2}
%conv2.weight:f32[$4,$3,3,3] = param {init=normal, scale=$6}
%fc.weight:f32[4,$4] = param {init=uniform, scale=0.2}
%fc.bias:f32[4] = param
%a = conv2d %images, %conv1.weight {pad=1, stride=$5}
%b = relu %a
%c = conv2d %b, %conv2.weight {pad=1, stride=2}
%d = relu %c
%e = global_avg_pool %d
%f = linear %e, %fc.weight, %fc.bias
output logits = %f
END
}
