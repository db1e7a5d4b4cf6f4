/*
 * io/safetensors.h -- reads and writes named tensors in one file
 *
 * The format (Hugging Face, safetensors 0.3): 8 bytes little-endian header length, that many bytes
 * of JSON { name: { dtype, shape, data_offsets }, "__metadata__": { text: text } }, then the bytes.
 * A header with gaps, overlaps, duplicates or trailing bytes is an error, so that a file is
 * unambiguous.  Nothing in a file is executed; sizes are checked before memory is allocated.
 *
 *     td_tensors *t;
 *     TD_TRY(td_tensors_read("w.safetensors", &t));
 *     const td_tensor *w = td_tensors_get(t, "conv1.weight");
 *     td_tensors_free(t);
 *
 *     td_tensors *o;  TD_TRY(td_tensors_new(&o));
 *     TD_OUT(td_tensors_add(o, "fc.bias", TD_DT_F32, 1, (int64_t[]){ 10 }, bias));      borrowed
 *     TD_OUT(td_tensors_set_meta(o, "arch", "resnet18"));
 *     TD_OUT(td_tensors_write(o, "out.safetensors"));                                   atomic
 */
#ifndef TD_IO_SAFETENSORS_H
#define TD_IO_SAFETENSORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "tandem/types.h"

#define TD_TENSOR_RANK_MAX 8
#define TD_SCALE_SUFFIX    "_scale" /* the scales of an s8 tensor: its name and this */

typedef struct {
    const char *name;
    td_dtype dtype;
    int rank;
    int64_t dim[TD_TENSOR_RANK_MAX];
    const void *data; /* C order; at least 8-byte aligned */
    size_t n_bytes;
} td_tensor;

typedef struct td_tensors td_tensors;

TD_CHECKED td_status td_tensors_new(td_tensors **out);
void td_tensors_free(td_tensors *t);

/**
 * Read a whole file.
 *
 *   TD_ENOTFOUND     no such file
 *   TD_EIO           unreadable, or not a regular file
 *   TD_EFORMAT       malformed: the message names the file, the tensor and the position; or its
 *                    digest (see td_tensors_write) does not match its content: "... was damaged"
 *   TD_ELIMIT        header above 100 MB or of millions of values; more than 8 dimensions
 *   TD_EUNSUPPORTED  a tensor of a type that td_dtype lacks (BOOL, U64, F8_E4M3, ...)
 *   TD_ENOMEM
 */
TD_CHECKED td_status td_tensors_read(const char *path, td_tensors **out);

/**
 * The same from memory, without TD_ENOTFOUND and TD_EIO.  `bytes` is borrowed until
 * td_tensors_free; `what` names it in messages.
 */
TD_CHECKED td_status td_tensors_parse(const void *bytes, size_t n_bytes, const char *what,
                                      td_tensors **out);

/**
 * The same without reading: tensors point into the mapped file if they are 8-byte aligned in it.
 * For weights that are copied immediately; saves three quarters of the time to a first result. The
 * file may change in the meantime: after copying, call td_tensors_check.
 */
TD_CHECKED td_status td_tensors_map(const char *path, td_tensors **out);

/** TD_EIO: part of a mapped file could not be read.  TD_OK for any other set. */
TD_CHECKED td_status td_tensors_check(const td_tensors *t);

size_t td_tensors_count(const td_tensors *t);
const td_tensor *td_tensors_at(const td_tensors *t, size_t i); /* in file order */
const td_tensor *td_tensors_get(const td_tensors *t, const char *name);
const char *td_tensors_meta(const td_tensors *t, const char *key); /* NULL when absent */
size_t td_tensors_meta_count(const td_tensors *t);
const char *td_tensors_meta_key(const td_tensors *t, size_t i);

/**
 * Add a tensor; the name and shape are copied, `data` is borrowed until the set is freed.
 *
 *   TD_EARG    the name exists already, empty, "__metadata__" or not UTF-8; no such type or
 *              shape; no data
 *   TD_ENOMEM  the set is unchanged, like after TD_EARG
 */
TD_CHECKED td_status td_tensors_add(td_tensors *t, const char *name, td_dtype dtype, int rank,
                                    const int64_t *dim, const void *data);

/** Add a tensor whose zeroed bytes the set owns; *data points to them. */
TD_CHECKED td_status td_tensors_add_new(td_tensors *t, const char *name, td_dtype dtype, int rank,
                                        const int64_t *dim, void **data);

/** Convert all f16 and bf16 tensors to f32, exactly.  On TD_ENOMEM some are already converted. */
TD_CHECKED td_status td_tensors_widen(td_tensors *t);

/**
 * Convert every s8 tensor N to f32: each element times the element of N_scale, an f32 tensor
 * [rows], of its row, the first index; N_scale is removed.  TD_EFORMAT names `what` and the tensor:
 * no such scales, or one that is not a positive finite number; the set can then only be freed.
 */
TD_CHECKED td_status td_tensors_dequantize(td_tensors *t, const char *what);

/** Set or replace a metadata text.  TD_EARG: not UTF-8, or one of the two digest keys. */
TD_CHECKED td_status td_tensors_set_meta(td_tensors *t, const char *key, const char *value);

/**
 * Write atomically (io/atomic.h): `path` gets the whole new content or, on failure, keeps the old
 * one.
 *
 * The metadata gets "digest": "xxh3:<16 hex digits>", over the whole file except these digits:
 * names, types, shapes, other metadata, data; and "digest_of", which records that.  Tensors are
 * sorted by descending element size, then insertion; the data starts 64-byte aligned.
 *
 *   TD_EIO     could not be written (folder missing, disk full, ...)
 *   TD_ELIMIT  the header would be longer than td_tensors_read accepts
 *   TD_ENOMEM
 */
TD_CHECKED td_status td_tensors_write(const td_tensors *t, const char *path);

#endif
