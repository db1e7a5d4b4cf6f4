/*
 * optim/weight_average.h -- the factor of the averages of weights for each batch
 */
#ifndef TD_OPTIM_WEIGHT_AVERAGE_H
#define TD_OPTIM_WEIGHT_AVERAGE_H

#include <stdbool.h>
#include <stdint.h>

#include "tandem/train_opts.h"

typedef struct {
    td_ema_rule rule;
    double decay;

    /* torchvision's rule: */
    int every;          /* optimizer steps from one update of the averages to the next */
    int warmup, epochs; /* those of the learning rate's warm-up; of the whole training */
    double step_images; /* images of an optimizer step, of all ranks */
} td_weight_average;

/** The position of a batch. */
typedef struct {
    int64_t batch; /* of the whole training, counted from 0 */
    int64_t epoch;
    int64_t step; /* within the epoch, counted from 0, of the optimizer step it belongs to */
    bool is_last; /* of that step */
} td_weight_average_place;

/**
 * m in average = m average + (1 - m) value, which is computed for each batch; 1 leaves the averages
 * as they are, 0 makes them copies.
 *
 *   nvidia       min(decay, (1 + t) / (10 + t)), t being the number of the batch
 *   torchvision  after the first step of each epoch, and then after every `every`-th:
 *                0 during the warm-up and for the first step after it, otherwise 1 - alpha,
 *                alpha = min(1, (1 - decay) step_images every / epochs); for other batches 1
 *
 * Sources: NVIDIA DeepLearningExamples, ConvNets; torchvision, references/classification/train.py.
 */
double td_weight_average_factor(const td_weight_average *o, const td_weight_average_place *at);

/** The decay of one update by torchvision's rule: 1 - alpha. */
double td_weight_average_decay(const td_weight_average *o);

#endif
