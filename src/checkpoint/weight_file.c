/*
 * weight_file.c -- opens a weight file with the reader for its format
 */
#include "checkpoint/weight_file.h"

#include <string.h>

#include "base/log.h"
#include "base/text.h"
#include "checkpoint/onnx_network.h"
#include "checkpoint/quantization.h"
#include "checkpoint/weight_suggest.h"
#include "io/blob.h"
#include "io/foreign.h"
#include "model/arch.h"
#include "onnx_file/onnx.h"
#include "pth/pth.h"

td_status td_weight_file_is_torch(const char *path, bool *out)
{
    td_blob file;
    unsigned char head[TD_PTH_HEAD_BYTES];
    td_status st = td_blob_open(path, &file);
    if (st != TD_OK)
        return td_weight_suggest(st, path);
    size_t n = file.n_bytes < sizeof head ? (size_t)file.n_bytes : sizeof head;
    st = td_blob_read(&file, 0, n, head);
    *out = st == TD_OK && td_pth_is(head, n);
    td_blob_close(&file);
    return st;
}

static td_status read_or_map(const char *path, bool is_ema, const td_model_opts *model, bool maps,
                             td_tensors **out)
{
    bool is_pth = false;
    *out = NULL;
    if (td_onnx_is(path))
        return td_onnx_weights_read(path, model, out);
    if (model && model->output && !model->model)
        return td_error(TD_EUSAGE,
                        "--model-output requires an ONNX file as the network: '%s' is "
                        "none",
                        path);
    TD_TRY(td_foreign_refuse(path,
                             "weights: .safetensors, .onnx, or PyTorch's .pth, .pth.tar or .pt"));
    TD_TRY(td_weight_file_is_torch(path, &is_pth));
    if (is_pth)
        return td_pth_read(path, is_ema, out);
    return maps ? td_tensors_map(path, out) : td_tensors_read(path, out);
}

td_status td_weight_file_read(const char *path, bool is_ema, td_tensors **out)
{
    return read_or_map(path, is_ema, NULL, false, out);
}

td_status td_weight_file_read_for(const char *path, bool is_ema, const td_model_opts *model,
                                  td_tensors **out)
{
    return read_or_map(path, is_ema, model, false, out);
}

void td_weight_file_warn(const td_tensors *t, const char *path)
{
    const char *digest = td_tensors_meta(t, "digest");
    const bool is_checked =
        td_tensors_meta(t, "digest_of") || (digest && td_text_starts(digest, "xxh3:"));
    if (td_tensors_meta(t, "tandem.kind") && !is_checked)
        td_log(TD_LOG_WARN, "weights",
               "'%s' has no digest (this program always writes one), so changes to it cannot be "
               "detected",
               path);
}

const char *td_weight_file_arch(const td_tensors *t)
{
    const td_arch *row;
    const char *arch = td_tensors_meta(t, "torch.arch");
    if (!arch || td_tensors_meta(t, "tandem.arch") || td_tensors_meta(t, "tandem.graph"))
        return NULL;
    if (td_arch_row(arch, &row) == TD_OK)
        return row->name;
    td_error_clear();
    return NULL;
}

bool td_weight_file_is_average(const td_tensors *t)
{
    const char *section = td_tensors_meta(t, "torch.section");
    return section && strstr(section, "ema");
}

td_status td_weight_file_open(const char *path, td_tensors **out)
{
    return td_weight_file_open_as(path, false, out);
}

td_status td_weight_file_open_as(const char *path, bool is_ema, td_tensors **out)
{
    return td_weight_file_open_for(path, is_ema, NULL, out);
}

td_status td_weight_file_open_for(const char *path, bool is_ema, const td_model_opts *model,
                                  td_tensors **out)
{
    td_status st = TD_OK;
    td_tensors *t;
    *out = NULL;
    TD_TRY(read_or_map(path, is_ema, model, true, &t));
    td_weight_file_warn(t, path);
    TD_OUT(td_tensors_widen(t));
    if (td_tensors_meta(t, TD_QUANTIZATION_META))
        TD_OUT(td_tensors_dequantize(t, path));
    const char *arch = td_weight_file_arch(t);
    if (arch)
        TD_OUT(td_tensors_set_meta(t, "tandem.arch", arch));
    *out = t;
    t = NULL;
out:
    td_tensors_free(t);
    return st;
}

td_status td_weight_file_name_check(const char *option, const char *path)
{
    static const char *const others[] = { ".onnx", ".pth", ".pt", ".pth.tar" };
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (td_text_ends(path, others[i]))
            return td_error(TD_EUSAGE,
                            "%s: '%s' would be a safetensors file, wanted a name that ends in "
                            ".safetensors; 'tandem convert' makes a file that ends in %s of it",
                            option, path, others[i]);
    return TD_OK;
}
