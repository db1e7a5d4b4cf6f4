/*
 * backend/cuda/cudnn_graph.h -- convolutions and fused operations, by cuDNN
 *
 * A td_cudnn_conv describes a convolution or one of its gradients, with the operations before and
 * after it that one kernel shall compute too.  td_cudnn_plan_init asks cuDNN's heuristics for
 * engines and keeps the first that accepts the problem; td_cudnn_plan_execute starts it on a
 * stream.
 *
 * Planning needs no GPU if the properties of the device are given as JSON (cuDNN >= 9.8).
 *
 * This header includes neither cuDNN nor the rest of the program, and cuDNN is opened by dlopen, so
 * its users build and start without it.  Memory of all structs is the caller's.
 *
 * Functions that can fail return 0 or a status (TD_CUDNN_EREQUEST, TD_CUDNN_EPLAN, or a
 * cudnnStatus_t, which is >= 1000) and write one sentence into `error` [TD_CUDNN_TEXT].
 */
#ifndef TD_BACKEND_CUDA_CUDNN_GRAPH_H
#define TD_BACKEND_CUDA_CUDNN_GRAPH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    TD_CUDNN_TEXT = 512,       /* bytes of an error text */
    TD_CUDNN_KNOBS = 160,      /* bytes of the text of an engine's knobs */
    TD_CUDNN_REFUSALS = 24,    /* refused engines that a plan remembers */
    TD_CUDNN_DESCRIPTORS = 64, /* the largest graph needs 34, reading an engine's knobs 25 more */
    TD_CUDNN_ALIGNMENT = 16,   /* bytes, of each tensor; the widest vector load */
};

enum {
    TD_CUDNN_EREQUEST =
        1,              /* the problem or an argument is invalid, or cuDNN is missing or too old */
    TD_CUDNN_EPLAN = 2, /* no engine accepts the problem; see refusals */
};

typedef enum {
    TD_CUDNN_F16,
    TD_CUDNN_BF16,
    TD_CUDNN_F32,
} td_cudnn_dtype;

typedef enum {
    TD_CUDNN_FORWARD,         /* X, W -> Y */
    TD_CUDNN_DATA_GRADIENT,   /* Y (dy), W -> X (dx) */
    TD_CUDNN_FILTER_GRADIENT, /* X, Y (dy) -> W (dw) */
} td_cudnn_direction;

/*
 * What is fused, joined by |.  Forward, in this order:
 *
 *   x' = relu(x * scale + shift)    TD_CUDNN_SCALE_RELU, also for the x of a filter gradient
 *   y  = conv(x', w)
 *   y += z                          TD_CUDNN_ADD
 *   y += bias                       TD_CUDNN_BIAS
 *   y  = relu(y)                    TD_CUDNN_RELU
 *   y  = min(y, 6)                  TD_CUDNN_CLIP_6, with TD_CUDNN_RELU only
 *   sum, squares of y               TD_CUDNN_STATISTICS, without the four above
 *
 * Data gradient:
 *
 *   dx = grad(dy, w) where r > 0, otherwise 0     TD_CUDNN_RELU_BACKWARD
 *
 * where r is the relu's input or output, or r * scale + shift with TD_CUDNN_SCALE_RELU.
 */
enum {
    TD_CUDNN_SCALE_RELU = 1,
    TD_CUDNN_BIAS = 2,
    TD_CUDNN_ADD = 4,
    TD_CUDNN_RELU = 8,
    TD_CUDNN_STATISTICS = 16,
    TD_CUDNN_RELU_BACKWARD = 32,
    TD_CUDNN_CLIP_6 = 64,
};

/* the tensors of a problem; all are channels last, in the storage type unless noted */
typedef enum {
    TD_CUDNN_X,       /* [N,H,W,C] */
    TD_CUDNN_W,       /* [K,R,S,C/G] */
    TD_CUDNN_Y,       /* [N,P,Q,K] */
    TD_CUDNN_SCALE,   /* [C] */
    TD_CUDNN_SHIFT,   /* [C] */
    TD_CUDNN_BIAS_OF, /* [K] */
    TD_CUDNN_Z,       /* [N,P,Q,K] */
    TD_CUDNN_R,       /* [N,H,W,C] */
    TD_CUDNN_SUM,     /* float32 [K], over N, P, Q */
    TD_CUDNN_SQUARES, /* float32 [K], sum of squares */
    TD_CUDNN_TENSORS,
} td_cudnn_tensor;

/* a problem; pairs are height, width */
typedef struct {
    td_cudnn_direction direction;
    td_cudnn_dtype dtype;  /* storage; arithmetic is float32 */
    bool allow_tf32;       /* float32 only: products of TF32, on tensor cores */
    bool wide_filter;      /* filter gradient only: W is float32 */
    bool wide_vectors;     /* SCALE, SHIFT and BIAS_OF are float32 */
    bool is_deterministic; /* refuse engines whose sums depend on the order of threads */
    unsigned fused;        /* TD_CUDNN_SCALE_RELU | ... */
    int64_t n, c, h, w, k, r, s, groups;
    int64_t pad_before[2], pad_after[2], stride[2], dilation[2];
} td_cudnn_conv;

typedef struct {
    void *handle;     /* cudnnHandle_t of the device, or NULL */
    const char *json; /* properties of a device that is not here; used without handle */
    int64_t workspace_limit_bytes; /* engines that need more only if there are no others; 0: none */
    int choice;                    /* accepted plans to pass over, to measure the next best */
    bool without_fallback;         /* only the engines of heuristic mode A */
    bool without_compiled;         /* none whose kernel is compiled at run time */
} td_cudnn_target;

typedef struct {
    int64_t engine;
    char knobs[TD_CUDNN_KNOBS];
    char why[TD_CUDNN_TEXT];
} td_cudnn_refusal;

/* descriptors to destroy, in order of creation */
typedef struct {
    void *at[TD_CUDNN_DESCRIPTORS];
    int n;
} td_cudnn_descriptors;

typedef struct {
    int64_t engine;
    char knobs[TD_CUDNN_KNOBS]; /* "tile_size=5 stages=3" */
    int64_t workspace_bytes;
    bool has_tensor_cores, is_compiled; /* its kernel was compiled at run time */
    bool is_fallback;                   /* by the heuristics' fallback list, not by mode A */
    int n_offered;                      /* configurations that the heuristics offered */
    int n_refused;                      /* of the n_offered */
    int n_refusals;
    td_cudnn_refusal refusals[TD_CUDNN_REFUSALS]; /* one for each engine and reason */

    /* private */
    unsigned tensors; /* bit 1 << td_cudnn_tensor: wants a pointer */
    void *plan;
    td_cudnn_descriptors made;
} td_cudnn_plan;

/**
 * Opens cuDNN, once for the process; later calls return the first call's success.  `path` NULL:
 * the library that the environment variable TANDEM_CUDNN names, else libcudnn.so.9, searched as the
 * loader does.  `version` becomes e.g. 92801 for 9.28.1.  One thread calls it first.
 */
int td_cudnn_open(const char *path, int64_t *version, char *error);

/**
 * Makes a cudnnHandle_t of the current device whose work is ordered on `stream` (a cudaStream_t);
 * after td_cudnn_open.  `out` becomes NULL on failure.
 */
int td_cudnn_handle_create(void *stream, void **out, char *error);

/** NULL is fine. */
void td_cudnn_handle_destroy(void *handle);

/** Are these the properties of a device that cuDNN can plan for?  After td_cudnn_open. */
int td_cudnn_check_device(const char *json, char *error);

/**
 * Writes the properties of the target's device, as td_cudnn_target.json wants them, to json[room],
 * which ends with a NUL byte.  After td_cudnn_open.
 */
int td_cudnn_read_device(const td_cudnn_target *target, char *json, size_t room, char *error);

/**
 * Plans a problem.  On failure the refusals are in `plan`, which needs no release then.  Takes
 * milliseconds, or seconds if an engine compiles its kernel.
 */
int td_cudnn_plan_init(td_cudnn_plan *plan, const td_cudnn_conv *conv,
                       const td_cudnn_target *target, char *error);

/**
 * Starts a plan on the handle's stream.  `tensors` [TD_CUDNN_TENSORS] are device pointers, aligned
 * to TD_CUDNN_ALIGNMENT, NULL for those that the problem has not; `workspace` has workspace_bytes.
 */
int td_cudnn_plan_execute(const td_cudnn_plan *plan, void *handle, void *const *tensors,
                          void *workspace, char *error);

/** All-zero plans are fine. */
void td_cudnn_plan_release(td_cudnn_plan *plan);

#ifdef __cplusplus
}
#endif
#endif
