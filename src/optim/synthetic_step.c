/*
 * synthetic_step.c -- builds a training step with synthetic inputs
 */
#include "optim/synthetic_step.h"

#include "base/arena.h"
#include "base/rng.h"
#include "boxes/targets.h"
#include "optim/training_graph.h"

#define SCALE 128 /* loss scale for fp16 */

static bool is_scaled(const td_amp_opts *amp)
{
    return td_amp_dtype(amp) == TD_DT_F16;
}

td_status td_step_graph(const td_model_opts *model, int batch, const td_amp_opts *amp, int ranks,
                        const td_norm *norm, td_graph **out)
{
    const td_step_opts step_opts = { .momentum = 0.875,
                                     .decay = 3.0517578125e-05,
                                     .smoothing = 0.1,
                                     .is_scaled = is_scaled(amp),
                                     .ranks = ranks,
                                     .norm = norm };
    td_model_opts m = *model; /* one label for each image is as fast */
    m.multi_label = false;
    return td_training_graph(&m, batch, &step_opts, out);
}

float td_step_scale(const td_amp_opts *amp)
{
    return is_scaled(amp) ? SCALE : 1;
}

td_status td_step_bind_scalars(td_program *step, const td_amp_opts *amp)
{
    static const float lr = (float)TD_STEP_LR, scale = SCALE, inverse = 1.0F / SCALE;
    static const int64_t random[3] = { 0, 0, 0 };
    TD_TRY(td_program_bind(step, "lr", &lr));
    if (td_program_has_input(step, TD_INPUT_RANDOM))
        TD_TRY(td_program_bind(step, TD_INPUT_RANDOM, random));
    if (!is_scaled(amp))
        return TD_OK;
    TD_TRY(td_program_bind(step, TD_INPUT_SCALE, &scale));
    return td_program_bind(step, TD_INPUT_INVERSE, &inverse);
}

#define OBJECTS 7 /* objects per image: COCO's average */

/* A random object of a tenth to a half of the image's sides. */
static td_ground_truth random_object(td_rng *r, int classes)
{
    const float h = (float)(0.1 + 0.4 * td_rng_uniform(r));
    const float w = (float)(0.1 + 0.4 * td_rng_uniform(r));
    const float y = (1 - h) * (float)td_rng_uniform(r), x = (1 - w) * (float)td_rng_uniform(r);
    return (td_ground_truth){ .box = { y, x, y + h, x + w },
                              .label = 1 + (int64_t)td_rng_below(r, (uint64_t)classes) };
}

static int classes_of(const td_model_opts *model)
{
    return model->num_classes ? model->num_classes : td_model_default_classes(model, 1000);
}

static td_status make_targets(const td_model_opts *model, int batch, td_rng *r, td_synthetic *s)
{
    td_anchors *anchors;
    TD_TRY(td_anchors_new(td_model_detector(model), model->image_size, &anchors));
    const size_t n = (size_t)batch * (size_t)anchors->n;
    void *scratch = td_alloc(1, td_targets_scratch_bytes(anchors));
    s->labels = td_alloc(n, sizeof *s->labels);
    s->targets = td_alloc(n, 4 * sizeof *s->targets);
    const bool has_room = scratch && s->labels && s->targets;
    for (int i = 0; i < batch && has_room; i++) {
        td_ground_truth ground_truths[OBJECTS];
        const size_t from = (size_t)i * (size_t)anchors->n;
        for (int k = 0; k < OBJECTS; k++)
            ground_truths[k] = random_object(r, classes_of(model));
        td_targets_assign(anchors, ground_truths, OBJECTS, scratch, s->labels + from,
                          s->targets + 4 * from);
    }
    td_free(scratch);
    td_anchors_free(anchors);
    return has_room ? TD_OK : TD_ENOMEM;
}

static td_status make_labels(const td_model_opts *model, int batch, td_rng *r, td_synthetic *s)
{
    TD_TRY(TD_ALLOC(s->labels, (size_t)batch));
    for (int i = 0; i < batch; i++)
        s->labels[i] = (int64_t)td_rng_below(r, (uint64_t)classes_of(model));
    return TD_OK;
}

static td_status make_images(size_t n, bool as_bytes, td_rng *r, td_synthetic *s)
{
    if (as_bytes)
        TD_TRY(TD_ALLOC(s->pixels, n));
    else
        TD_TRY(TD_ALLOC(s->images, n));
    for (size_t i = 0; i < n; i++)
        if (as_bytes)
            s->pixels[i] = (uint8_t)(td_rng_uniform(r) * 256);
        else
            s->images[i] = (float)(td_rng_uniform(r) * 3.4641 - 1.7321);
    return TD_OK;
}

td_status td_synthetic_make(const td_model_opts *model, int batch, bool as_bytes, td_synthetic *out)
{
    const size_t side = (size_t)model->image_size;
    const size_t n = (size_t)batch * (size_t)td_model_channels(model) * side * side;
    td_rng r = td_rng_make(0, TD_RNG_SYNTH, 0, 0);
    *out = (td_synthetic){ 0 };
    td_status st = make_images(n, as_bytes, &r, out);
    if (st == TD_OK)
        st = td_model_detector(model) ? make_targets(model, batch, &r, out)
                                      : make_labels(model, batch, &r, out);
    if (st != TD_OK)
        td_synthetic_release(out);
    return st;
}

const void *td_synthetic_images(const td_synthetic *s)
{
    return s->pixels ? (const void *)s->pixels : s->images;
}

td_status td_synthetic_bind(const td_synthetic *s, td_program *step)
{
    TD_TRY(td_program_bind(step, "images", td_synthetic_images(s)));
    TD_TRY(td_program_bind(step, "labels", s->labels));
    return s->targets ? td_program_bind(step, "targets", s->targets) : TD_OK;
}

int64_t td_synthetic_bytes(const td_model_opts *model, int batch)
{
    const td_detector detector = td_model_detector(model);
    const int64_t side = model->image_size, anchors = td_anchors_count(detector, model->image_size);
    const int64_t target = (int64_t)sizeof(int64_t) + 4 * (int64_t)sizeof(float);
    return batch * (td_model_channels(model) * side * side * (int64_t)sizeof(float) +
                    (detector ? anchors * target : (int64_t)sizeof(int64_t)));
}

void td_synthetic_release(td_synthetic *s)
{
    td_free(s->images);
    td_free(s->pixels);
    td_free(s->labels);
    td_free(s->targets);
    *s = (td_synthetic){ 0 };
}
