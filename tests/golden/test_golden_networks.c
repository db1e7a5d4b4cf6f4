/* ctest: timeout 900 */
/*
 * test_golden_networks.c -- every architecture in float32 on "cpu" against the reference's numbers
 *
 * Gradients are read as the momentum buffers of an optimiser step without momentum, decay or
 * movement: the same graph that trains, with parameters and gradients in the layouts its kernels
 * chose.
 */
#include "support/network_step.h"

int main(int argc, char **argv)
{
    td_process_setup(argv);
    return td_test_network_step_main(
        "networks",
        &(td_step_run){ .device = "cpu", .dtype = TD_DT_F32, .training = TD_NETWORK_STEP },
        argc > 1 ? argv[1] : NULL);
}
