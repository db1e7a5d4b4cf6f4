/*
 * onnx_file/external_data.h -- tensors whose bytes are in a file beside the ONNX file
 *
 *     td_external_files e = { .model = "net.onnx" };
 *     TD_OUT(td_external_read(&e, &place, "conv.weight", n_bytes, &arena, &data));   per tensor
 *     td_external_files_release(&e);
 *
 * The file is not trusted: a location must be the name of a file in the folder of the ONNX file,
 * neither a path nor a link; the file must be a regular one without holes; the tensors taken from
 * it must not be longer than it is, all together, so that memory is bounded by what is on the disk.
 *
 * Source: onnx.proto of ONNX 1.23, TensorProto.external_data.
 */
#ifndef TD_ONNX_FILE_EXTERNAL_DATA_H
#define TD_ONNX_FILE_EXTERNAL_DATA_H

#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/map.h"
#include "base/status.h"

/** The entries of a tensor's external_data. */
typedef struct {
    const char *location;   /* NULL: none was given */
    int64_t offset, length; /* length -1: as many bytes as the tensor's shape has */
} td_external_place;

/** The files that were read.  All zero but `model` is empty. */
typedef struct {
    const char *model; /* the path of the ONNX file, borrowed */
    td_map used;       /* by location: int64_t *, the bytes that tensors have taken */
} td_external_files;

void td_external_files_release(td_external_files *e);

/** Set an entry, "location", "offset" or "length"; others are ignored.  TD_EFORMAT, TD_ELIMIT. */
td_status td_external_place_set(td_external_place *p, const char *key, const char *value,
                                const char *model) TD_CHECKED;

/**
 * Read the `n_bytes` that the shape of the tensor `name` has into memory of `arena`.
 *   TD_EUNSUPPORTED  the file is a link or has several names
 *   TD_ENOTFOUND, TD_EIO
 *   TD_EFORMAT       no location, another length than n_bytes, a range that is not within the file,
 *                    tensors that take more than the file has, a hole
 *   TD_ENOMEM
 */
td_status td_external_read(td_external_files *e, const td_external_place *p, const char *name,
                           size_t n_bytes, td_arena *arena, const void **out) TD_CHECKED;

#endif
