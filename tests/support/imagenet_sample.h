/*
 * imagenet_sample.h -- the 334 images of $TANDEM_SHARED/data/imagenet-sample.tar, one a class
 */
#ifndef TD_TEST_IMAGENET_SAMPLE_H
#define TD_TEST_IMAGENET_SAMPLE_H

#include "tandem/dataset.h"

enum { TD_TEST_SAMPLE_IMAGES = 334, TD_TEST_SKIPPED = 77 };

/**
 * Unpack the archive into the scratch folder and open it as a validation set.
 * 0, TD_TEST_SKIPPED where the archive is absent (said on stderr), or 1: what main should return.
 */
int td_test_sample_open(td_dataset **out);

#endif
