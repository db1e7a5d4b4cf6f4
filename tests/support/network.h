/*
 * network.h -- a golden case of a network, and a network filled for it
 *
 *     td_test_network_case c;
 *     td_test_network_open(&c, "classification", "resnet18-k10-s64-b4-margin");
 *     td_test_network n;
 *     td_test_network_build(&n, &c, &(td_test_network_form){ "cpu", TD_DT_F32, TD_NETWORK_STEP });
 *     td_test_network_feed(&n, "images", "labels");
 *     td_test_network_run(&n);
 *     double *logits = td_test_network_output(&n, "logits", &count);        td_free it
 *     td_test_network_release(&n);
 *     td_test_network_close(&c);
 *
 * What goes wrong on the way fails the running test.
 */
#ifndef TD_TEST_NETWORK_H
#define TD_TEST_NETWORK_H

#include "base/json.h"
#include "comm/comm.h"
#include "io/safetensors.h"
#include "support/fill.h"
#include "tandem/amp.h"
#include "tandem/program.h"

typedef struct {
    char name[128];
    td_json *doc;
    td_tensors *tensors;
    const char *arch, *backbone, *prefix; /* borrowed from doc; backbone NULL: not a detector */
    td_fill_kind fill;
    bool has_se;
    int n_classes, batch, image_size;
    double label_smoothing;
} td_test_network_case;

/** Names of the cases of a type, "step", in a golden folder; sorted, at most `max`. */
int td_test_network_cases(const char *part, const char *type, int max, char (*names)[128]);

void td_test_network_open(td_test_network_case *c, const char *part, const char *name);
void td_test_network_close(td_test_network_case *c);

/** Largest deviation of the reference's float32 runs; `path` as "step1.buffers.max". */
double td_test_network_agreement(const td_test_network_case *c, const char *path);

typedef enum {
    TD_NETWORK_EVAL,      /* forward, with the running statistics */
    TD_NETWORK_GRADIENTS, /* training step; "grad.<parameter>" are outputs, nothing moves but BN */
    TD_NETWORK_STEP, /* training step; momentum buffers "momentum.<parameter>" take up gradients */
    TD_NETWORK_JOB,  /* the same by the training job's own graph, without stage outputs */
} td_test_network_mode;

typedef struct {
    const char *device;
    td_dtype dtype; /* TD_DT_F32 or TD_DT_F64 */
    td_test_network_mode mode;
    double lr, momentum, decay; /* of the last two; decay leaves td_is_undecayed parameters out */

    /* TD_NETWORK_JOB only */
    td_precision precision; /* fp16 has the loss scale of td_step_scale */
    td_comm *comm;          /* gradients are averaged over its ranks; NULL: one rank */
} td_test_network_form;

typedef struct {
    const td_test_network_case *c;
    td_test_network_form form;
    td_device *dev;
    td_program *p;
    void *images;    /* [batch, 3, image_size, image_size] of the form's dtype */
    int64_t *labels; /* classifier: [batch]; detector: [batch, anchors] */
    float *targets;  /* detector: [batch, anchors, 4]; classifier: NULL */
    double lr_f64;
    float lr_f32, loss_scale, inverse_scale;
} td_test_network;

/** Compile, and fill every parameter from the case's formula; momentum buffers are zero. */
void td_test_network_build(td_test_network *n, const td_test_network_case *c,
                           const td_test_network_form *form);
void td_test_network_release(td_test_network *n);

/** Fill and bind the inputs: `images` and `labels` are the names the fill hashes, "images.3". */
void td_test_network_feed(td_test_network *n, const char *images, const char *labels);

/**
 * The same of a detector: its images are 127.5 (2u - 1), `objects` are those of the case file, for
 * each image a list of [class, ymin, xmin, ymax, xmax].
 */
void td_test_network_feed_objects(td_test_network *n, const char *images, const td_json *objects);
void td_test_network_run(td_test_network *n);

/** Copies as float64, td_free them; *count elements. */
double *td_test_network_output(const td_test_network *n, const char *name, int64_t *count);
double *td_test_network_param(const td_test_network *n, const char *name, int64_t *count);

#endif
