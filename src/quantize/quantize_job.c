/*
 * quantize_job.c -- tandem quantize: calibrates a network and writes its quantized weights
 *
 * The weights that are written as integers are those of the file, before norms are folded into
 * them: a norm multiplies all elements of a filter by one number, so quantizing the folded filter
 * gives the same integers again.
 */
#include <string.h>
#include <sys/stat.h>

#include "base/arena.h"
#include "base/log.h"
#include "base/text.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/weight_file.h"
#include "checkpoint/weights.h"
#include "inference/detect_data.h"
#include "inference/inputs.h"
#include "io/atomic.h"
#include "model/arch.h"
#include "ops/ops.h"
#include "quantize/calibration.h"
#include "tandem/dataset.h"
#include "tandem/loader.h"
#include "tandem/program.h"

typedef struct {
    td_quantize_opts o; /* a copy, in which the file's metadata complete `model` */
    td_tensors *weights;
    td_device *dev;
    td_dataset *ds;
    td_loader *ld;
    td_calibration *calibration;
    td_quantization quantization;
    td_tensors *wide, *out; /* float32; to be written */
} job;

static void release(job *j)
{
    td_calibration_free(j->calibration);
    td_loader_free(j->ld);
    td_dataset_free(j->ds);
    td_device_close(j->dev);
    td_quantization_release(&j->quantization);
    td_tensors_free(j->out);
    td_tensors_free(j->wide);
    td_tensors_free(j->weights);
}

/* --- open ------------------------------------------------------------------------------------- */

static td_status open_weights(job *j)
{
    td_model_opts *m = &j->o.model;
    const char *path = j->o.weights;
    TD_TRY(td_weight_file_open_for(path, j->o.use_ema, &j->o.model, &j->weights));
    if (td_tensors_meta(j->weights, TD_QUANTIZATION_META))
        return td_error(TD_EUSAGE, "'%s' is quantized already: quantize the float32 weights", path);
    td_weight_metadata_apply(j->weights, td_model_is_default(m), m);
    TD_TRY(td_weight_metadata_check(j->weights, path, m));
    TD_TRY(td_weight_norm_apply(j->weights, path, true, m));
    if (!m->num_classes)
        m->num_classes = td_model_default_classes(
            m, td_model_detector(m) ? 0 : td_weights_classes(j->weights, m));
    return TD_OK;
}

/* Every n-th image, so that all classes are seen. */
static td_status open_loader(job *j, td_loader_opts lo)
{
    const int64_t n = td_dataset_count(j->ds), wanted = j->o.calibration_images;
    lo.order = TD_ORDER_PADDED;
    lo.world = n > wanted ? (int)(n / wanted) : 1;
    return td_loader_new(j->ds, &lo, &j->ld);
}

static td_status open_split(job *j, bool is_detector)
{
    const char *split = j->o.calibrate_on_val ? "val" : "train";
    const int64_t n_synthetic = j->o.calibration_images;
    const td_status st = is_detector
                             ? td_boxes_open(&j->o.input, split, &j->o.model, n_synthetic, &j->ds)
                             : td_open_split(&j->o.input, split, &j->o.model, n_synthetic, &j->ds);
    return st == TD_ENOTFOUND && !j->o.calibrate_on_val
               ? td_error_context(st, "without --calibrate-on-val")
               : st;
}

static td_status open_data(job *j)
{
    td_model_opts *m = &j->o.model;
    const td_input_opts *in = &j->o.input;
    const bool is_detector = td_model_detector(m) != TD_DETECTOR_NONE;
    td_log_backend(in);
    TD_TRY(open_split(j, is_detector));
    TD_TRY(td_resolve_image_size(j->ds, m));
    return open_loader(j, is_detector ? td_boxes_loader_opts(in, m, j->o.batch_size)
                                      : td_loader_opts_of(in, m, j->o.batch_size));
}

static td_status open_calibration(job *j)
{
    TD_TRY(td_device_open(j->o.device.name, &j->dev));
    TD_TRY(td_device_tune(j->dev, j->o.device.tune, j->o.device.tune_cache));
    TD_TRY(td_calibration_new(&j->o.model, j->dev, j->o.batch_size, &j->calibration));
    return td_weights_load(j->weights, j->o.weights,
                           &(td_load_opts){ .use_ema = j->o.use_ema, .model = &j->o.model },
                           td_calibration_program(j->calibration));
}

/* --- calibrate -------------------------------------------------------------------------------- */

static td_status calibrate(job *j, int64_t *n_images)
{
    const td_batch *b;
    td_status st = TD_OK;
    *n_images = 0;
    while (*n_images < j->o.calibration_images && (st = td_loader_next(j->ld, &b)) == TD_OK) {
        const int64_t left = j->o.calibration_images - *n_images;
        const int n = b->n < left ? b->n : (int)left;
        if (n)
            TD_TRY(td_calibration_run(j->calibration, b->images, n));
        *n_images += n;
    }
    if (st != TD_OK && st != TD_EEND)
        return st;
    if (*n_images == 0)
        return td_error(TD_EUSAGE, "'%s' has no image to calibrate with", td_dataset_root(j->ds));
    return td_calibration_finish(j->calibration, &j->o, &j->quantization);
}

static int count_quantized(const td_quantization *q)
{
    int n = 0;
    for (int i = 0; i < q->n; i++)
        n += !q->ranges[i].is_wide;
    return n;
}

/* --- write ------------------------------------------------------------------------------------ */

/* Copy the file's names of classes and its other metadata, but nothing of a training. */
static td_status copy_meta(const job *j)
{
    for (size_t i = 0; i < td_tensors_meta_count(j->weights); i++) {
        const char *key = td_tensors_meta_key(j->weights, i);
        if (!td_text_starts(key, "digest") && !td_text_starts(key, "torch.") &&
            strcmp(key, "tandem.state") != 0 && strcmp(key, "tandem.config") != 0 &&
            !td_tensors_meta(j->out, key))
            TD_TRY(td_tensors_set_meta(j->out, key, td_tensors_meta(j->weights, key)));
    }
    return TD_OK;
}

static td_status write(job *j)
{
    const td_weight_metadata metadata = { .model = &j->o.model,
                                          .num_classes = j->o.model.num_classes };
    TD_TRY(td_tensors_new(&j->wide));
    TD_TRY(td_weights_save(td_calibration_program(j->calibration), 0,
                           td_weights_batches(j->weights), NULL, j->wide));
    TD_TRY(td_tensors_new(&j->out));
    TD_TRY(td_quantization_add_tensors(&j->quantization, j->wide, j->out));
    TD_TRY(td_weight_metadata_store(j->out, "weights", &metadata));
    TD_TRY(copy_meta(j));
    TD_TRY(td_quantization_store(&j->quantization, j->out));
    return td_tensors_write(j->out, j->o.output);
}

/* --- the result ------------------------------------------------------------------------------- */

static td_quantize_layer layer_of(const td_quantized_layer *l)
{
    return (td_quantize_layer){ .weight = l->range.weight,
                                .why = l->why,
                                .is_wide = l->range.is_wide,
                                .input = (double)l->range.input,
                                .output = (double)l->range.output,
                                .input_db = l->input_db,
                                .weights_db = l->weights_db };
}

/* Move the layers to the result. */
static td_status report(job *j, td_quantize_result *r)
{
    struct stat s;
    td_quantization *q = TD_NEW(td_quantization);
    r->memory = q;
    if (!q)
        return TD_ENOMEM;
    TD_TRY(TD_ALLOC(r->layers, (size_t)j->quantization.n + 1));
    r->n_layers = j->quantization.n;
    r->n_quantized = count_quantized(&j->quantization);
    for (int i = 0; i < r->n_layers; i++)
        r->layers[i] = layer_of(&j->quantization.layers[i]);
    *q = j->quantization;
    j->quantization = (td_quantization){ 0 };
    if (stat(j->o.output, &s) == 0)
        r->bytes = (int64_t)s.st_size;
    return TD_OK;
}

void td_quantize_release(td_quantize_result *r)
{
    if (r->memory)
        td_quantization_release(r->memory);
    td_free(r->memory);
    td_free(r->layers);
    *r = (td_quantize_result){ 0 };
}

static td_status check(const td_quantize_opts *o)
{
    if (!o->weights)
        return td_error(TD_EUSAGE, "quantize requires a weight file");
    if (!o->output)
        return td_error(TD_EUSAGE, "quantize requires --output FILE");
    TD_TRY(td_weight_file_name_check("--output", o->output));
    return td_output_check_new(o->output, o->overwrite);
}

td_status td_quantize(const td_quantize_opts *opts, td_quantize_result *out)
{
    td_status st = TD_OK;
    job j = { .o = *opts };
    *out = (td_quantize_result){ 0 };
    TD_TRY(check(opts));
    TD_OUT(td_log_configure(opts->log));
    td_set_threads(opts->device.threads);
    TD_OUT(open_weights(&j));
    TD_OUT(open_data(&j));
    TD_OUT(open_calibration(&j));
    TD_OUT(calibrate(&j, &out->n_images));
    if (!count_quantized(&j.quantization))
        TD_OUT(td_error(TD_EUSAGE,
                        "'%s': no layer of the network is quantized: %slinear layers and the first "
                        "convolution are only with --quantize-also",
                        opts->weights,
                        opts->keep_wide ? "--keep-wide keeps those that it names, " : ""));
    TD_OUT(write(&j));
    st = report(&j, out);
out:
    release(&j);
    if (st != TD_OK)
        td_quantize_release(out);
    return st;
}
