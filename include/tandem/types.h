/*
 * tandem/types.h -- element types, constants of normalization, and kinds of detectors
 */
#ifndef TD_TYPES_H
#define TD_TYPES_H

#include <stddef.h>

#include "tandem/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* clang-format off */
#define TD_DTYPE_LIST(DTYPE) /* name, text, bytes, name in safetensors files */                    \
    DTYPE(F32,  "f32",  4, "F32")                                                                  \
    DTYPE(F64,  "f64",  8, "F64")                                                                  \
    DTYPE(BF16, "bf16", 2, "BF16")                                                                 \
    DTYPE(F16,  "f16",  2, "F16")                                                                  \
    DTYPE(I64,  "i64",  8, "I64")                                                                  \
    DTYPE(I32,  "i32",  4, "I32")                                                                  \
    DTYPE(U8,   "u8",   1, "U8")                                                                   \
    DTYPE(S8,   "s8",   1, "I8")
/* clang-format on */

/** Element types.  TD_DT_NONE (0) means "not chosen". */
typedef enum {
    TD_DT_NONE = 0,
#define TD_DTYPE_ENUM(name, text, bytes, st) TD_DT_##name,
    TD_DTYPE_LIST(TD_DTYPE_ENUM)
#undef TD_DTYPE_ENUM
        TD_N_DTYPE
} td_dtype;

/** "f32"; "none" for TD_DT_NONE. */
TD_API const char *td_dtype_name(td_dtype d);

/** Bytes of one element; 0 for TD_DT_NONE. */
TD_API size_t td_dtype_bytes(td_dtype d);

/** The type with this name; TD_DT_NONE if there is none. */
TD_API td_dtype td_dtype_parse(const char *name);

/** Mean and standard deviation per channel, on the scale 0 .. 255. */
typedef struct {
    float mean[3], std[3];
} td_norm;

/** Which detector a network is; NONE: a classifier. */
typedef enum {
    TD_DETECTOR_NONE,
    TD_DETECTOR_SSD320,
    TD_DETECTOR_SSD300,
    TD_DETECTOR_SSDLITE,  /* torchvision's */
    TD_DETECTOR_RETINANET /* torchvision's */
} td_detector;

#ifdef __cplusplus
}
#endif
#endif
