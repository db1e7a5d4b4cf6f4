/*
 * small_training.h -- a training step of a network of two layers
 *
 *     td_small_training t;
 *     td_small_training_begin(&t, "ref", TD_PRECISION_FP32, 1024);
 *     expect_ok(td_program_run(t.program));
 *     td_small_training_end(&t);
 *
 * Convolution, batch norm, relu, pooling, linear; momentum 0.9; the numbers are always the same.
 */
#ifndef TD_TEST_SMALL_TRAINING_H
#define TD_TEST_SMALL_TRAINING_H

#include "pass/amp.h"
#include "tandem/model.h"
#include "tandem/program.h"

enum {
    TD_SMALL_BATCH = 4,
    TD_SMALL_SIDE = 8,
    TD_SMALL_CLASSES = 3,
    TD_SMALL_FLOATS = TD_SMALL_BATCH * 3 * TD_SMALL_SIDE * TD_SMALL_SIDE
};

typedef struct {
    td_device *dev;
    td_program *program;
    float images[TD_SMALL_FLOATS], lr, scale, inverse; /* bound to the program */
    int64_t labels[TD_SMALL_BATCH];
} td_small_training;

/** The options of the network. */
void td_small_training_model(td_model_opts *out);

/** scale: of the loss; 0: a step without loss scaling.  Fails the test where something fails. */
void td_small_training_begin(td_small_training *t, const char *device, td_precision precision,
                             float scale);
void td_small_training_end(td_small_training *t);

/** The first node of that op; fails the running test when there is none. */
int td_small_training_node(const td_small_training *t, const char *op);

#endif
