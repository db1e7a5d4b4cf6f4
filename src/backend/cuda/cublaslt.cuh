/*
 * backend/cuda/cublaslt.cuh -- the functions of cuBLASLt, and its errors as text
 */
#ifndef TD_BACKEND_CUDA_CUBLASLT_CUH
#define TD_BACKEND_CUDA_CUBLASLT_CUH

#include <cublasLt.h>

#define CUBLASLT_FUNCTIONS(F)                                                                      \
    F(GetVersion)                                                                                  \
    F(GetStatusName)                                                                               \
    F(Create)                                                                                      \
    F(MatmulDescCreate)                                                                            \
    F(MatmulDescDestroy)                                                                           \
    F(MatmulDescSetAttribute)                                                                      \
    F(MatrixLayoutCreate)                                                                          \
    F(MatrixLayoutDestroy)                                                                         \
    F(MatrixLayoutSetAttribute)                                                                    \
    F(MatmulPreferenceCreate)                                                                      \
    F(MatmulPreferenceDestroy)                                                                     \
    F(MatmulPreferenceSetAttribute)                                                                \
    F(MatmulAlgoGetHeuristic)                                                                      \
    F(MatmulAlgoConfigGetAttribute)                                                                \
    F(MatmulAlgoCapGetAttribute)                                                                   \
    F(Matmul)

namespace tandem
{

struct cublaslt_functions {
#define CUBLASLT_MEMBER(name) decltype(&cublasLt##name) name;
    CUBLASLT_FUNCTIONS(CUBLASLT_MEMBER)
#undef CUBLASLT_MEMBER
};

/** Filled by open_cublaslt; all NULL before. */
extern cublaslt_functions cublaslt;

/** NULL, or what failed, as a message: "cublasLtMatmul: CUBLAS_STATUS_NOT_SUPPORTED". */
const char *explain(const char *function, cublasStatus_t status);

} // namespace tandem

#endif
