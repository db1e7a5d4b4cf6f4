/*
 * pth/pth_metadata.h -- what a weight file says about its network, in a file of PyTorch's
 *
 * PyTorch's files have no place of their own for it.  It is a dict "tandem":
 *
 *     { "arch": "resnet18", "num_classes": 2, "image_size": 64, "se_form": 0,
 *       "classes": ["cat", "dog"], ... }
 *
 * an entry of a training checkpoint; of a bare state_dict an attribute (torch.load(path).tandem),
 * so that load_state_dict finds no key that is not a tensor.  In the set of tensors each entry is
 * the metadata "tandem.KEY" that a .safetensors file has.
 */
#ifndef TD_PTH_PTH_METADATA_H
#define TD_PTH_PTH_METADATA_H

#include "io/safetensors.h"
#include "pth/pickle.h"
#include "pth/pth_write.h"

#define TD_PTH_METADATA_KEY "tandem"

/** Is there metadata of `t` that the dict holds? */
bool td_pth_metadata_is_there(const td_tensors *t);

/** Does the dict hold the metadata `key` ("tandem.image_size")? */
bool td_pth_metadata_holds(const char *key);

/** Write the dict.  TD_EFORMAT: a value of `t` is no number or no list; `what` names the file. */
td_status td_pth_metadata_write(const td_tensors *t, const char *what, td_pth_writer *w) TD_CHECKED;

/**
 * Make the entries of `dict` metadata of `t`.  NULL or no dict: nothing.  Unknown keys are left
 * out.
 *
 *   TD_EFORMAT  a value is of another kind, no UTF-8, or out of range
 *   TD_ELIMIT   more than 64 MB of text, or a million elements of a list
 */
td_status td_pth_metadata_read(const td_pvalue *dict, const char *what, td_tensors *t) TD_CHECKED;

#endif
