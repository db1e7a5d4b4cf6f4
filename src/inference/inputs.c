/*
 * inputs.c -- opens a job's data sets and loaders
 */
#include "inference/inputs.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/status.h"
#include "data/hold_out.h"
#include "data/source.h"
#include "runtime/device.h"
#include "transforms/augment.h"

bool td_model_is_default(const td_model_opts *model)
{
    return !model->model && !td_options_chosen(td_model_fields(), model, "arch");
}

static bool is_of_files(const td_input_opts *in)
{
    return in->data_backend != TD_DATA_SYNTHETIC && in->data_backend != TD_DATA_TENSORS;
}

static td_status check_delimiter(const td_input_opts *in)
{
    char delimiter;
    return td_list_delimiter(in->list_delimiter, &delimiter);
}

/*
 * The options of a data set.  What concerns lists, or TFRecords, is left out if DATA is of another
 * kind and --val-list is not: then it is for the latter.
 */
static td_dataset_opts source_of(const td_input_opts *in, const char *split)
{
    const bool is_list = td_dataset_is_list(in->data_backend, in->data) ||
                         !td_dataset_is_list(TD_DATA_LIST, in->val_list);
    const bool is_records = td_dataset_is_records(in->data_backend, in->data) ||
                            !td_dataset_is_records(TD_DATA_LIST, in->val_list);
    return (td_dataset_opts){ .path = in->data,
                              .backend = in->data_backend,
                              .allow_outside = in->list_outside && is_list,
                              .labels_from_zero = in->label_offset == 0 && is_records,
                              .label_delimiter = in->list_delimiter ? *in->list_delimiter : 0,
                              .split = split };
}

void td_input_use_val_list(td_input_opts *in)
{
    in->data = in->val_list;
    in->data_backend = TD_DATA_LIST;
    in->list_outside = in->list_outside && td_dataset_is_list(TD_DATA_LIST, in->data);
    if (!td_dataset_is_records(TD_DATA_LIST, in->data))
        in->label_offset = 1;
}

/* --val-split: there must be no other validation images. */
static td_status check_part(const td_input_opts *in)
{
    td_dataset *val = NULL;
    if (!is_of_files(in))
        return td_error(TD_EUSAGE, "--val-split requires a folder, pack or list of images");
    if (in->val_list)
        return td_error(TD_EUSAGE, "--val-split and --val-list '%s' exclude each other",
                        in->val_list);
    const td_dataset_opts o = source_of(in, "val");
    const td_status st = td_dataset_open(&o, &val);
    td_dataset_free(val);
    if (st == TD_OK)
        return td_error(TD_EUSAGE,
                        "--val-split requires data without validation images, but '%s' "
                        "has some: leave it out",
                        in->data);
    if (st != TD_ENOTFOUND)
        return st;
    td_error_clear();
    return TD_OK;
}

td_status td_open_part(const td_input_opts *in, const char *split, const td_model_opts *model,
                       int64_t n_images, uint64_t seed, td_dataset **out)
{
    *out = NULL;
    TD_TRY(check_delimiter(in));
    if (!(in->val_split > 0))
        return td_open_split(in, split, model, n_images, out);
    TD_TRY(check_part(in));
    td_dataset_opts o = source_of(in, "train");
    o.allow_root = true;
    TD_TRY(td_dataset_open(&o, out));
    const td_status st = td_dataset_hold_out(*out, in->val_split, seed, strcmp(split, "val") == 0);
    if (st == TD_OK)
        return st;
    td_dataset_free(*out);
    *out = NULL;
    return td_error_context(st, "--val-split");
}

td_status td_open_split(const td_input_opts *in, const char *split, const td_model_opts *model,
                        int64_t n_images, td_dataset **out)
{
    const bool is_folder = is_of_files(in);
    TD_TRY(check_delimiter(in));
    td_dataset_opts o = source_of(in, is_folder ? split : NULL);
    o.allow_root = is_folder && strcmp(split, "val") == 0;
    o.n_classes = is_folder ? 0 : model->num_classes;
    o.n_images = n_images;
    return td_dataset_open(&o, out);
}

static td_crop_rules rules_of(const td_input_opts *in)
{
    bool is_dali = in->data_backend == TD_DATA_DALI_CPU || in->data_backend == TD_DATA_DALI_GPU;
    if (in->crop != TD_RULES_AUTO)
        return in->crop;
    return is_dali ? TD_RULES_DALI : TD_RULES_TORCHVISION;
}

void td_log_backend(const td_input_opts *in)
{
    if (in->data_backend == TD_DATA_DALI_GPU)
        td_log(TD_LOG_WARN, "data",
               "dali-gpu: images are decoded on the CPU, with the same results");
}

td_loader_opts td_loader_opts_of(const td_input_opts *in, const td_model_opts *model, int batch)
{
    const int padding = td_model_eval_padding(model);
    return (td_loader_opts){ .batch_size = batch,
                             .image_size = model->image_size,
                             .channels = td_model_channels(model),
                             .eval_padding = padding > 0 ? padding : -1,
                             .interpolation = in->interpolation,
                             .train_interpolation = in->train_interpolation,
                             .crop = rules_of(in),
                             .antialias = in->antialias,
                             .point_sampled = in->point_sampled,
                             .normalization = in->normalization,
                             .norm = model->norm,
                             .autoaugment = in->augmentation == TD_AUGMENTATION_AUTOAUGMENT,
                             .auto_augment = in->auto_augment,
                             .timm_augment = in->timm_augment,
                             .ra_ops = in->ra_ops,
                             .ra_magnitude = in->ra_magnitude,
                             .augment_bins = in->augment_bins,
                             .color_jitter = in->color_jitter,
                             .jitter_strength = in->jitter_strength,
                             .random_erase = in->random_erase,
                             .stored_orientation = in->stored_orientation,
                             .fast_decode = in->decode == TD_DECODE_FAST && !in->exact_decode,
                             .workers = in->workers,
                             .prefetch = in->prefetch,
                             .nice = 5,
                             .max_bad = in->max_bad > 0 ? in->max_bad : -1 };
}

td_status td_input_as_bytes(const td_device *dev, bool *out)
{
    const char *wanted = getenv("TANDEM_INPUT");
    *out = wanted ? strcmp(wanted, "u8") == 0 : dev->memory == &td_gpu_memory;
    if (wanted && !*out && strcmp(wanted, "f32") != 0)
        return td_error(TD_EUSAGE, "TANDEM_INPUT is '%.40s', wanted u8 or f32", wanted);
    return TD_OK;
}

td_status td_input_norm(const td_device *dev, const td_input_opts *in, const td_model_opts *model,
                        const td_norm **out)
{
    td_transform t = { .detector = td_model_detector(model) };
    const td_loader_opts lo = td_loader_opts_of(in, model, 1);
    TD_TRY(td_input_as_bytes(dev, &t.as_bytes));
    if (!t.detector)
        TD_TRY(td_transform_choose(&t, &lo));
    *out = !t.as_bytes || !td_transform_gives_bytes(&t) ? NULL
           : t.norm.std[0] > 0                          ? &model->norm
                                                        : td_transform_norm(&t);
    return TD_OK;
}

const void *td_batch_images(const td_batch *b)
{
    return b->pixels ? (const void *)b->pixels : b->images;
}

td_status td_resolve_image_size(const td_dataset *ds, td_model_opts *model)
{
    int channels, height, width;
    td_dataset_shape(ds, &channels, &height, &width);
    if (!channels) { /* use the network's size */
        TD_TRY(td_model_resolve(model));
        return td_model_check_resize(model);
    }
    if ((channels != 3 && channels != 1) || height != width)
        return td_error(TD_ESHAPE,
                        "'%s' contains %dx%dx%d images, wanted square ones with 1 or 3 channels",
                        td_dataset_root(ds), channels, height, width);
    if (model->channels && model->channels != channels)
        return td_error(TD_ESHAPE, "'%s' contains images of %d channels, the network reads %d",
                        td_dataset_root(ds), channels, model->channels);
    model->channels = channels;
    model->image_size = height;
    return td_model_resolve(model);
}
