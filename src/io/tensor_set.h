/*
 * io/tensor_set.h -- the struct of a set of tensors, for the files that implement safetensors.h
 */
#ifndef TD_IO_TENSOR_SET_H
#define TD_IO_TENSOR_SET_H

#include "base/arena.h"
#include "base/map.h"
#include "io/mapping.h"
#include "io/safetensors.h"

#define TD_NAME_IN_MESSAGE "%.200s" /* a name from a file */

struct td_tensors {
    td_arena texts;   /* names, metadata values */
    td_tensor *items; /* [n], in file order */
    size_t n, cap;
    td_map index;  /* name -> index into items, plus 1 */
    td_map meta;   /* key -> text */
    void **blocks; /* [n_blocks] data that the set owns */
    size_t n_blocks, cap_blocks;
    td_mapping *file; /* set by td_tensors_map */
};

/** A zeroed block that is freed with the set. */
td_status td_tensors_new_block(td_tensors *t, size_t n_bytes, void **out) TD_CHECKED;

#endif
