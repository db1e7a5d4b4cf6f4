/*
 * network_step.h -- golden cases of type "step": an evaluation and a training step against the
 * reference
 *
 *     int main(int argc, char **argv)
 *     {
 *         return td_test_network_step_main("networks", &(td_step_run){ "cpu", TD_DT_F32, ... });
 *     }
 *
 * Compared are logits and stage outputs of both modes, the loss, BN's running statistics after the
 * training forward and all gradients; a line per case shows each figure beside its limit.  Limits
 * are those that tests/golden/classification/README.md suggests at the end of section 6.
 */
#ifndef TD_TEST_NETWORK_STEP_H
#define TD_TEST_NETWORK_STEP_H

#include "support/network.h"

typedef struct {
    const char *device;
    td_dtype dtype;
    td_test_network_mode training; /* where gradients are read: outputs or momentum buffers */
    bool (*takes)(const td_test_network_case *c); /* NULL: every case */
} td_step_run;

/**
 * Run the cases there are, each as a cmocka test, or those whose names match the pattern `filter`;
 * the program's exit status.
 */
int td_test_network_step_main(const char *group, const td_step_run *run, const char *filter);

#endif
