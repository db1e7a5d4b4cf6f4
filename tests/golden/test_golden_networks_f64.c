/* ctest: timeout 1200 */
/*
 * test_golden_networks_f64.c -- every architecture in float64 on "ref", against the reference
 *
 * Agreement to 1e-9 leaves no room for a wrong formula, and no sum is so near zero that rounding
 * would turn a relu: cases with a margin repeat those without, where there is one of the size.  Of
 * the cases of 224 x 224, which take a minute or more each, only resnet50 runs.  TANDEM_GOLDEN_ALL
 * runs all.
 */
#include <stdlib.h>
#include <string.h>

#include "support/network_step.h"

static bool is_quick(const td_test_network_case *c)
{
    const bool is_resnet50 = strcmp(c->arch, "resnet50") == 0;
    if (c->fill != TD_FILL_PLAIN)
        return c->image_size == 97 && !is_resnet50;
    return c->image_size < 224 || is_resnet50;
}

int main(int argc, char **argv)
{
    td_process_setup(argv);
    return td_test_network_step_main(
        "networks_f64",
        &(td_step_run){ .device = "ref",
                        .dtype = TD_DT_F64,
                        .training = TD_NETWORK_GRADIENTS,
                        .takes = getenv("TANDEM_GOLDEN_ALL") ? NULL : is_quick },
        argc > 1 ? argv[1] : NULL);
}
