/*
 * train_data.c -- class names and loader options of both tasks
 */
#include "train/train_data.h"

#include <string.h>

#include "base/arena.h"
#include "base/log.h"
#include "base/text.h"
#include "data/dataset.h"
#include "image/image.h"
#include "inference/inputs.h"
#include "transforms/augment.h"

int64_t td_train_synthetic_images(const td_train_job *j)
{
    const td_train_opts *o = &j->o;
    int64_t batches = o->profile.iterations > 0 ? o->profile.iterations
                      : o->length.run_steps > 0 ? o->length.run_steps
                                                : 100;
    const int n = j->restart.ranks ? j->restart.ranks : j->ranks.n; /* as many after a restart */
    return batches * o->batch.size * n;
}

td_status td_train_list_classes(td_train_job *j)
{
    const int n = td_dataset_classes(j->data.train_set);
    TD_TRY(TD_ALLOC(j->data.class_names, (size_t)n + 1));
    for (int i = 0; i < n; i++)
        j->data.class_names[i] = td_dataset_class_name(j->data.train_set, i);
    return TD_OK;
}

td_status td_train_validation_absent(td_status st, bool has_classes)
{
    if (st != TD_ENOTFOUND)
        return st;
    char *message = td_copy_text(td_error_message());
    if (!message)
        return TD_ENOMEM;
    st = td_error(st, "%s; %s--training-only trains without validation", message,
                  has_classes ? "--val-split 0.1 holds out a tenth of the training images, " : "");
    td_free(message);
    return st;
}

enum { PROBED = 16, SIDE_LEAST = 32 };

/* The size of an image from its header; 0 x 0 if it cannot be read. */
static void probe_size(const td_train_job *j, int64_t sample, td_transformer *w, int size[2])
{
    td_image_info info;
    const void *bytes;
    size_t n;
    size[0] = size[1] = 0;
    if (td_sample_read(j->data.train_set, sample, w, &bytes, &n) == TD_OK &&
        td_image_probe(bytes, n, &info) == TD_OK)
        td_image_size(&info, j->o.input.stored_orientation, &size[0], &size[1]);
    else
        td_error_clear(); /* counted as a bad image when it is its turn */
}

td_status td_train_bind_images(td_train_job *j, const td_batch *b)
{
    return td_program_bind(j->program, "images", td_batch_images(b));
}

void td_train_note_enlarged(const td_train_job *j)
{
    td_transformer w = { 0 };
    const int wanted = j->o.model.image_size;
    const int64_t n = td_dataset_count(j->data.train_set);
    int size[2], largest[2] = { 0, 0 };
    if (!j->data.is_size_default || j->ranks.rank > 0 ||
        td_dataset_backend(j->data.train_set) != TD_DATA_FOLDER)
        return;
    for (int i = 0; i < PROBED; i++) { /* spread evenly */
        probe_size(j, n * i / PROBED, &w, size);
        if ((int64_t)size[0] * size[1] > (int64_t)largest[0] * largest[1])
            memcpy(largest, size, sizeof largest);
    }
    td_transformer_release(&w);
    const int side = largest[0] > largest[1] ? largest[0] : largest[1];
    if (side == 0 || side >= wanted)
        return;
    td_log(TD_LOG_INFO, "train",
           "the images, such as %d x %d, are enlarged to the default size %d x %d of %s: "
           "--image-size %d trains faster",
           largest[0], largest[1], wanted, wanted, j->o.model.arch,
           side > SIDE_LEAST ? side : SIDE_LEAST);
}

td_status td_train_loader_opts(const td_train_job *j, td_loader_opts *lo)
{
    const td_train_opts *o = &j->o;
    lo->is_training = true;
    lo->seed = j->s.seed;
    lo->rank = j->ranks.rank;
    lo->world = j->ranks.n;
    lo->image_sizes = o->batch.image_size_schedule;
    lo->repeats = o->batch.repeats;
    lo->balanced = o->batch.balanced;
    lo->start_epoch = j->s.epoch;
    lo->start_batch = j->s.iteration;
    lo->order = o->batch.shuffle == TD_SHUFFLE_BUFFER   ? TD_ORDER_BUFFER
                : o->batch.sampler == TD_SAMPLER_PADDED ? TD_ORDER_PADDED
                                                        : TD_ORDER_PERMUTATION;
    return td_input_as_bytes(j->dev, &lo->as_bytes);
}
