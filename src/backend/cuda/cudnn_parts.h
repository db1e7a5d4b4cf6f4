/*
 * backend/cuda/cudnn_parts.h -- calls of cuDNN's backend API, and descriptors that a plan owns
 */
#ifndef TD_BACKEND_CUDA_CUDNN_PARTS_H
#define TD_BACKEND_CUDA_CUDNN_PARTS_H

#include <cudnn_backend.h>

#include "backend/cuda/cudnn_graph.h"

typedef cudnnBackendDescriptor_t td_descriptor; /* a pointer; NULL after a failure */

typedef struct {
    size_t (*version)(void);
    void (*last_error)(char *text, size_t size);
    const char *(*status_name)(cudnnStatus_t status);
    cudnnStatus_t (*create_handle)(cudnnHandle_t *out);
    cudnnStatus_t (*destroy_handle)(cudnnHandle_t handle);
    cudnnStatus_t (*set_stream)(cudnnHandle_t handle, cudaStream_t stream);
    cudnnStatus_t (*create)(cudnnBackendDescriptorType_t type, td_descriptor *out);
    cudnnStatus_t (*destroy)(td_descriptor d);
    cudnnStatus_t (*set)(td_descriptor d, cudnnBackendAttributeName_t name,
                         cudnnBackendAttributeType_t type, int64_t n, const void *values);
    cudnnStatus_t (*get)(td_descriptor d, cudnnBackendAttributeName_t name,
                         cudnnBackendAttributeType_t type, int64_t n_max, int64_t *n, void *values);
    cudnnStatus_t (*finalize)(td_descriptor d);
    cudnnStatus_t (*execute)(cudnnHandle_t handle, td_descriptor plan, td_descriptor pack);
} td_cudnn_calls;

/* filled by td_cudnn_open; all NULL before */
extern td_cudnn_calls td_cudnn;

/*
 * Makes descriptors and appends them to `made`.  It is sticky: the first failure is
 * kept in `status` and `error`, later calls do nothing.
 */
typedef struct {
    td_cudnn_descriptors *made;
    int status;
    char *error; /* [TD_CUDNN_TEXT] */
} td_cudnn_builder;

/* writes into error [TD_CUDNN_TEXT] and returns status */
__attribute__((format(printf, 3, 4))) int td_cudnn_error(char *error, int status,
                                                         const char *format, ...);

/*
 * text [TD_CUDNN_TEXT] becomes ": " and the innermost reason of cuDNN's last error in this thread,
 * which is a stack of lines "Warning: STATUS; Reason: condition"; "" if there is none
 */
void td_cudnn_reason(char *text);

/* "what: status: cuDNN's reason"; returns the status, 0 for success */
int td_cudnn_check(cudnnStatus_t status, const char *what, char *error);

td_descriptor td_cudnn_make(td_cudnn_builder *b, cudnnBackendDescriptorType_t type);
void td_cudnn_set(td_cudnn_builder *b, td_descriptor d, cudnnBackendAttributeName_t name,
                  cudnnBackendAttributeType_t type, int64_t n, const void *values);
void td_cudnn_set_descriptor(td_cudnn_builder *b, td_descriptor d, cudnnBackendAttributeName_t name,
                             td_descriptor value);
/* `what` names the descriptor in an error */
void td_cudnn_finalize(td_cudnn_builder *b, td_descriptor d, const char *what);
/* destroys the descriptors made since there were n */
void td_cudnn_destroy(td_cudnn_descriptors *made, int n);

/* the problem is valid: TD_CUDNN_EREQUEST otherwise */
int td_cudnn_conv_check(const td_cudnn_conv *conv, char *error);
/* the operation graph, finalized; `tensors` becomes td_cudnn_plan.tensors */
td_descriptor td_cudnn_build_graph(td_cudnn_builder *b, const td_cudnn_conv *conv,
                                   const td_cudnn_target *target, unsigned *tensors);

#endif
