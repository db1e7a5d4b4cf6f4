/*
 * convert.c -- tandem convert: checkpoints to weights, from and to PyTorch's format
 *
 * The training state of a weight or statistic W has a prefix: momentum.W, ema.W, ... .  State is
 * not written; with --ema, ema.W is written as W.  PyTorch's checkpoints have a second state_dict
 * for averages; pth/pth.c has read the right one.
 */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/text.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/class_names.h"
#include "checkpoint/quantization.h"
#include "checkpoint/torch_checkpoint.h"
#include "checkpoint/weight_file.h"
#include "checkpoint/weights.h"
#include "image/norm_text.h"
#include "io/atomic.h"
#include "tandem/convert.h"
#include "tandem/model.h"

#define EMA_PREFIX "ema."

static bool is_state(const char *name)
{
    static const char *const prefixes[] = { "momentum.",   "square_avg.",  "exp_avg.",
                                            "exp_avg_sq.", "accumulated.", EMA_PREFIX,
                                            "pending." };
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
        if (td_text_starts(name, prefixes[i]))
            return true;
    return false;
}

static bool has_averages(const td_tensors *in)
{
    for (size_t i = 0; i < td_tensors_count(in); i++)
        if (td_text_starts(td_tensors_at(in, i)->name, EMA_PREFIX))
            return true;
    return false;
}

/* --- tensors ---------------------------------------------------------------------------------- */

/* Copy all tensors of a PyTorch file under our names, with our shapes. */
static td_status copy_renamed(const td_tensors *in, td_tensors *out)
{
    char name[256];
    for (size_t i = 0; i < td_tensors_count(in); i++) {
        td_tensor t = *td_tensors_at(in, i);
        td_weight_name(t.name, name);
        if (t.rank == 2 &&
            (td_text_ends(name, ".se.fc1.weight") || td_text_ends(name, ".se.fc2.weight"))) {
            t.dim[2] = t.dim[3] = 1;
            t.rank = 4;
        }
        TD_TRY(td_tensors_add(out, name, t.dtype, t.rank, t.dim, t.data));
    }
    return TD_OK;
}

/*
 * Copy the weights of our files; an average replaces its weight or statistic; counters have none.
 */
static td_status copy_weights(const td_tensors *in, bool is_ema, td_tensors *out)
{
    char average[300];
    for (size_t i = 0; i < td_tensors_count(in); i++) {
        const td_tensor *t = td_tensors_at(in, i), *from = t;
        if (is_state(t->name))
            continue;
        if (is_ema && strlen(t->name) < 256) {
            snprintf(average, sizeof average, EMA_PREFIX "%s", t->name);
            from = td_tensors_get(in, average);
            from = from ? from : t;
        }
        TD_TRY(td_tensors_add(out, t->name, from->dtype, from->rank, from->dim, from->data));
    }
    return TD_OK;
}

/* --- metadata --------------------------------------------------------------------------------- */

static td_status copy_meta(const td_tensors *in, td_tensors *out)
{
    for (size_t i = 0; i < td_tensors_meta_count(in); i++) {
        const char *key = td_tensors_meta_key(in, i);
        const char *value = td_tensors_meta(in, key);
        if (strcmp(key, "tandem.kind") == 0)
            value = "weights";
        if (!td_text_starts(key, "digest") && !td_text_starts(key, "torch.") &&
            strcmp(key, TD_NORM_META_NODES) != 0 && strcmp(key, "tandem.state") != 0 &&
            strcmp(key, "tandem.config") != 0)
            TD_TRY(td_tensors_set_meta(out, key, value));
    }
    return TD_OK;
}

/* Store the network's name, the metadata that a PyTorch file has. */
static td_status name_network(const td_tensors *in, td_tensors *out)
{
    const char *arch = td_weight_file_arch(in);
    TD_TRY(td_tensors_set_meta(out, "format", "pt"));
    TD_TRY(td_weight_epsilon_copy(in, out)); /* its early names are replaced */
    return arch ? td_tensors_set_meta(out, "tandem.arch", arch) : TD_OK;
}

/* --classes FILE replaces the names in IN. */
static td_status name_classes(const char *classes, const char *path, const td_tensors *in,
                              td_tensors *out)
{
    td_model_opts model;
    if (!classes)
        return TD_OK;
    td_model_defaults(&model);
    model.image_size = 1; /* names do not depend on it; 0 would be resolved and logged */
    td_weight_metadata_apply(in, true, &model);
    const char *arch = td_weight_file_arch(in);
    if (arch)
        model.arch = arch;
    return td_class_names_put(classes, path, &model, model.num_classes, out);
}

/* --image-size N replaces the size in IN */
static td_status name_size(int image_size, td_tensors *out)
{
    char text[16];
    snprintf(text, sizeof text, "%d", image_size);
    return image_size ? td_tensors_set_meta(out, "tandem.image_size", text) : TD_OK;
}

/* --- the checkpoint's metadata ---------------------------------------------------------------- */

static td_status read_metadata(const td_tensors *in, const char *path, td_convert_result *r)
{
    td_run_state s;
    double best;
    const char *epoch = td_tensors_meta(in, "torch.epoch");
    const char *best_text = td_tensors_meta(in, "torch.best_prec1");
    if (epoch && !td_text_to_int(epoch, &r->epoch))
        r->epoch = -1;
    if (best_text && td_text_to_real(best_text, &best))
        r->best_top1 = best;
    const char *kind = td_tensors_meta(in, "tandem.kind");
    if (!kind || strcmp(kind, "checkpoint") != 0)
        return TD_OK;
    TD_TRY(td_checkpoint_state(in, path, &s));
    r->epoch = s.epoch;
    r->best_top1 = s.detects || s.is_multi_label ? -1 : s.best;
    r->best_map = s.is_multi_label && s.best >= 0 ? s.best / 100 : -1;
    return TD_OK;
}

/* --- converting a file ------------------------------------------------------------------------ */

static bool is_checkpoint(const td_tensors *t)
{
    const char *kind = td_tensors_meta(t, "tandem.kind");
    return kind && strcmp(kind, "checkpoint") == 0;
}

static int64_t count_weights(const td_tensors *t)
{
    int64_t n = 0;
    for (size_t i = 0; i < td_tensors_count(t); i++)
        n += !is_state(td_tensors_at(t, i)->name);
    return n;
}

/* The format by a file name's ending; TD_CONVERT_BY_ENDING: unknown. */
static td_convert_format format_of_name(const char *path)
{
    if (td_text_ends(path, ".safetensors"))
        return TD_CONVERT_SAFETENSORS;
    return td_text_ends(path, ".pth") || td_text_ends(path, ".pt") || td_text_ends(path, ".pth.tar")
               ? TD_CONVERT_PTH
               : TD_CONVERT_BY_ENDING;
}

static td_status choose_format(const char *path, const td_convert_opts *opts, bool *is_pth)
{
    const td_convert_format named = format_of_name(path);
    const td_convert_format format = opts->format == TD_CONVERT_BY_ENDING ? named : opts->format;
    *is_pth = format == TD_CONVERT_PTH;
    if (format != named && (named != TD_CONVERT_BY_ENDING || td_text_ends(path, ".onnx")))
        return td_error(TD_EUSAGE, "--to %s and the name '%s' exclude each other",
                        *is_pth ? "pth" : "safetensors", path);
    if (!*is_pth && opts->names != TD_CONVERT_NAMES_AUTO)
        return td_error(TD_EUSAGE, "--names requires a PyTorch file as OUT, found '%s'", path);
    if (format != TD_CONVERT_BY_ENDING)
        return TD_OK;
    return td_error(TD_EUSAGE,
                    "cannot convert to '%s': wanted a name that ends in .safetensors, .pth, .pt, "
                    ".pth.tar or .onnx",
                    path);
}

td_status td_convert(const char *in_path, const char *out_path, const td_convert_opts *opts,
                     td_convert_result *result)
{
    td_status st = TD_OK;
    bool is_to_pth;
    td_tensors *in = NULL, *out = NULL;
    const td_model_opts network = { .output = opts->model_output, .image_size = opts->image_size };
    *result = (td_convert_result){ .epoch = -1, .best_top1 = -1, .best_map = -1 };
    TD_TRY(choose_format(out_path, opts, &is_to_pth));
    TD_TRY(td_log_configure(opts->log));
    TD_TRY(td_output_check_new(out_path, opts->overwrite));
    TD_OUT(td_weight_file_read_for(in_path, opts->ema, &network, &in));
    td_weight_file_warn(in, in_path);
    const bool is_pth = td_tensors_meta(in, "torch.container") != NULL;
    if (!is_pth && opts->ema && !has_averages(in))
        TD_OUT(td_error(TD_EFORMAT, "'%s' has no averaged weights", in_path));
    if (is_to_pth && td_tensors_meta(in, TD_QUANTIZATION_META))
        TD_OUT(td_tensors_dequantize(in, in_path));
    TD_OUT(read_metadata(in, in_path, result));
    if (is_to_pth && !is_pth && !opts->ema && is_checkpoint(in)) {
        TD_OUT(name_classes(opts->classes, in_path, in, in));
        TD_OUT(name_size(opts->image_size, in));
        TD_OUT(td_torch_write(in, in_path, opts->names, out_path));
        result->n_tensors = count_weights(in);
        goto out;
    }
    TD_OUT(td_tensors_new(&out));
    st = is_pth ? copy_renamed(in, out) : copy_weights(in, opts->ema, out);
    if (st != TD_OK)
        TD_OUT(td_error_context(st, "'%s'", in_path));
    TD_OUT(copy_meta(in, out));
    if (is_pth)
        TD_OUT(name_network(in, out));
    TD_OUT(name_classes(opts->classes, in_path, in, out));
    TD_OUT(name_size(opts->image_size, out));
    TD_OUT(is_to_pth ? td_torch_write(out, in_path, opts->names, out_path)
                     : td_tensors_write(out, out_path));
    result->n_tensors = (int64_t)td_tensors_count(out);
out:
    td_tensors_free(in);
    td_tensors_free(out);
    return st;
}
