/*
 * pth/pth_metadata.h -- a network's metadata in a PyTorch weight file
 *
 * PyTorch's format has no field for metadata.  It is stored as a dict "tandem":
 *
 *     { "arch": "resnet18", "num_classes": 2, "image_size": 64, "se_form": 0,
 *       "classes": ["cat", "dog"], ... }
 *
 * In a training checkpoint the dict is an entry; in a bare state_dict it is an attribute
 * (torch.load(path).tandem), so that load_state_dict finds only tensors.  In a td_tensors each
 * entry is the metadata "tandem.KEY", as in a .safetensors file.
 */
#ifndef TD_PTH_PTH_METADATA_H
#define TD_PTH_PTH_METADATA_H

#include "io/safetensors.h"
#include "pth/pickle.h"
#include "pth/pth_write.h"

#define TD_PTH_METADATA_KEY "tandem"

/** Does `t` have metadata that belongs into the dict? */
bool td_pth_metadata_is_there(const td_tensors *t);

/** Does the metadata `key` ("tandem.image_size") belong into the dict? */
bool td_pth_metadata_holds(const char *key);

/** Write the dict.  TD_EFORMAT: a value in `t` that should be a number or a list is not; `what`
    names the file. */
td_status td_pth_metadata_write(const td_tensors *t, const char *what, td_pth_writer *w) TD_CHECKED;

/**
 * Add the entries of `dict` to the metadata of `t`; nothing if it is NULL or not a dict.  Unknown
 * keys are ignored.
 *
 *   TD_EFORMAT  a value has the wrong kind, is not UTF-8, or is out of range
 *   TD_ELIMIT   more than 64 MB of text, or a million elements of a list
 */
td_status td_pth_metadata_read(const td_pvalue *dict, const char *what, td_tensors *t) TD_CHECKED;

#endif
