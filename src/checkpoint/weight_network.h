/*
 * checkpoint/weight_network.h -- which built-in network tensors are of, where a file names none
 */
#ifndef TD_CHECKPOINT_WEIGHT_NETWORK_H
#define TD_CHECKPOINT_WEIGHT_NETWORK_H

#include "io/safetensors.h"

/** A classifier with these layers and widths, for a message; NULL: none. */
const char *td_weight_network(const td_tensors *t);

#endif
