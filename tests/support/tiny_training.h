/*
 * tiny_training.h -- a compiled training step of a network with one convolution, ready to run
 */
#ifndef TD_TEST_TINY_TRAINING_H
#define TD_TEST_TINY_TRAINING_H

#include "tandem/program.h"

enum { TD_TINY_BATCH = 4, TD_TINY_SIDE = 8, TD_TINY_CLASSES = 3 };

typedef struct {
    td_device *dev;
    td_program *program;
    float images[TD_TINY_BATCH * 3 * TD_TINY_SIDE * TD_TINY_SIDE], lr;
    int64_t labels[TD_TINY_BATCH];
} td_tiny_training;

/** Everything is bound, nothing has run; fails the running test when something fails. */
void td_tiny_training_begin(td_tiny_training *t, const char *device);
void td_tiny_training_end(td_tiny_training *t);

/** The first node of that op; fails the running test when there is none. */
int td_tiny_training_node(const td_tiny_training *t, const char *op);

#endif
