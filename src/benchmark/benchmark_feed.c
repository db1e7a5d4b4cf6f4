/*
 * benchmark_feed.c -- binds batches of a data set or synthetic ones
 */
#include "benchmark/benchmark_feed.h"

#include "base/arena.h"
#include "base/log.h"
#include "data/bad_limit.h"
#include "inference/detect_data.h"
#include "inference/inputs.h"

enum { SYNTHETIC_CLASSES = 1000 };

bool td_feed_has_data(const td_input_opts *input)
{
    return input->data && input->data_backend != TD_DATA_SYNTHETIC;
}

static td_status open_set(td_feed *f, td_model_opts *model)
{
    const char *split = f->o.is_training ? "train" : "val";
    td_input_opts in = *f->o.input;
    if (!f->o.is_training && in.val_annotations)
        in.annotations = in.val_annotations;
    td_log_backend(&in);
    if (f->is_detector)
        TD_TRY(td_boxes_open(&in, split, model, 0, &f->ds));
    else
        TD_TRY(td_open_split(&in, split, model, 0, &f->ds));
    return td_resolve_image_size(f->ds, model);
}

static td_status resolve_classes(const td_feed *f, td_model_opts *model)
{
    const int n = td_dataset_classes(f->ds);
    if (!model->num_classes)
        model->num_classes = f->is_detector ? n : td_model_default_classes(model, n);
    if (n > model->num_classes && f->o.is_training)
        return td_error(TD_ESHAPE, "'%s' has %d classes, the network %d", td_dataset_root(f->ds), n,
                        model->num_classes);
    return TD_OK;
}

static td_status open_loader(td_feed *f, const td_model_opts *model)
{
    td_loader_opts lo = f->is_detector ? td_boxes_loader_opts(f->o.input, model, f->o.batch)
                                       : td_loader_opts_of(f->o.input, model, f->o.batch);
    lo.is_training = f->o.is_training;
    TD_TRY(td_input_as_bytes(f->o.dev, &lo.as_bytes));
    lo.rank = td_comm_rank(f->o.comm);
    lo.world = td_comm_size(f->o.comm);
    const int64_t n = td_dataset_count(f->ds), wanted = (int64_t)f->o.batch * lo.world;
    if (n < wanted)
        return td_error(TD_EARG, "'%s' has %lld images, a batch%s has %lld", td_dataset_root(f->ds),
                        (long long)n, lo.world > 1 ? " on all ranks" : "", (long long)wanted);
    TD_TRY(td_loader_new(f->ds, &lo, &f->ld));
    f->norm = td_loader_pixel_norm(f->ld);
    return TD_OK;
}

td_status td_feed_open(const td_feed_opts *o, td_model_opts *model, td_feed *out)
{
    *out = (td_feed){ .o = *o, .is_detector = td_model_detector(model) != TD_DETECTOR_NONE };
    if (td_feed_has_data(o->input)) {
        TD_TRY(open_set(out, model));
        TD_TRY(resolve_classes(out, model));
        return open_loader(out, model);
    }
    if (o->input->data)
        td_log(TD_LOG_WARN, "benchmark", "--data-backend synthetic excludes DATA '%s'",
               o->input->data);
    TD_TRY(td_model_resolve(model));
    if (!model->num_classes)
        model->num_classes = td_model_default_classes(model, SYNTHETIC_CLASSES);
    TD_TRY(td_input_norm(o->dev, o->input, model, &out->norm));
    return td_synthetic_make(model, o->batch, out->norm != NULL, &out->synthetic);
}

/*
 * The next full batch: in evaluation, skip the smaller batch at the end of the data, and those with
 * unreadable images.
 */
static td_status next_full(td_feed *f, const td_batch **out)
{
    f->wait_s = 0;
    for (int64_t n_short = 0, n_ends = 0; n_ends < 3 && n_short <= td_loader_batches(f->ld) + 1;) {
        const td_status st = td_loader_next(f->ld, out);
        if (st == TD_EEND) {
            n_ends++;
            continue;
        }
        TD_TRY(st);
        f->wait_s += (*out)->wait_s;
        if ((*out)->n == f->o.batch)
            return TD_OK;
        n_short++;
    }
    return td_error(TD_EARG, "'%s' does not fill a batch of %d: too many images are unreadable",
                    td_dataset_root(f->ds), f->o.batch);
}

static td_status bind(const td_feed *f, const td_batch *b, td_program *p)
{
    TD_TRY(td_program_bind(p, "images", td_batch_images(b)));
    if (!f->o.is_training)
        return TD_OK;
    if (!f->is_detector)
        return td_program_bind(p, "labels", b->labels);
    if (!b->anchor_labels || !b->anchor_targets)
        return td_error(TD_EFORMAT, "'%s' has no boxes to train with", td_dataset_root(f->ds));
    TD_TRY(td_program_bind(p, "labels", b->anchor_labels));
    return td_program_bind(p, "targets", b->anchor_targets);
}

td_status td_feed_next(td_feed *f, td_program *p, const void **images)
{
    const td_batch *b;
    *images = td_synthetic_images(&f->synthetic);
    if (f->ld) {
        TD_TRY(next_full(f, &b));
        *images = td_batch_images(b);
        return p ? bind(f, b, p) : TD_OK;
    }
    if (!p)
        return TD_OK;
    return f->o.is_training ? td_synthetic_bind(&f->synthetic, p)
                            : td_program_bind(p, "images", *images);
}

const void *td_feed_peek(const td_feed *f)
{
    return f->ld ? td_loader_peek(f->ld) : td_synthetic_images(&f->synthetic);
}

td_status td_feed_check(const td_feed *f)
{
    return f->ld ? td_bad_limit_check(f->o.comm, f->ld) : TD_OK;
}

void td_feed_release(td_feed *f)
{
    td_loader_free(f->ld);
    td_dataset_free(f->ds);
    td_synthetic_release(&f->synthetic);
    *f = (td_feed){ 0 };
}
