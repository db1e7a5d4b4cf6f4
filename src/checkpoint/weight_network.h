/*
 * checkpoint/weight_network.h -- find the built-in network of a file that does not name it
 */
#ifndef TD_CHECKPOINT_WEIGHT_NETWORK_H
#define TD_CHECKPOINT_WEIGHT_NETWORK_H

#include "io/safetensors.h"

/** The name of a classifier with these layers and widths, for a message; NULL: none. */
const char *td_weight_network(const td_tensors *t);

#endif
