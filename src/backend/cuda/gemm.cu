/*
 * gemm.cu -- products of matrices by cuBLASLt: plans, and running them on the plug-in's queue
 *
 * cuBLASLt's matrices are stored by columns, and D = op(A) op(B).  A tensor [rows, columns] in row
 * order is the matrix [columns, rows] without gaps, so y = a b is its y^T = b^T a^T:
 *
 *     A = b      [n,k], or [k,n] and op(A) = A^T if b is transposed
 *     B = a      [k,m], or [m,k] and op(B) = B^T if a is transposed
 *     D = y      [n,m], and the bias is a number for each row of D
 *
 * A batch of products is one call: each layout has a step from a matrix to the next, 0 where all
 * products read the same.
 *
 * The heuristics rank algorithms by estimated time; the plan keeps one, so that a run only starts
 * it.  Partial sums are kept in float32: schemes that store them in the result's type are excluded.
 * For one algorithm, GPU model and shape the library gives the same bits in every run.
 *
 * Source: cuBLAS 13.1, "Using the cuBLASLt API":
 *
 *     cublasComputeType_t                    CUBLAS_COMPUTE_32F never rounds float32 to TF32
 *     cublasLtMatmul(), "Datatypes Supported"    the bias has D's type; half A, B with float32 D
 *     cublasLtMatmul()                       C may be D; a workspace is aligned to 256 bytes
 *     cublasLtMatmulDescAttributes_t         types of the attributes; what a bias pointer's value
 *                                            means to the heuristics: its alignment
 *     cublasLtMatrixLayoutAttribute_t        order, leading dimension, batch; types
 *     cublasLtMatmulPreferenceAttributes_t   types, and the default alignment, 256 bytes
 *     cublasLtReductionScheme_t, cublasLtEpilogue_t, cublasLtMatmulAlgoGetHeuristic()
 *     cublasLtMatmulAlgoConfigAttributes_t, cublasLtMatmulAlgoCapAttributes_t
 *     cublasSetWorkspace()                   recommended size
 *     "Results Reproducibility"
 */
#include <cstdio>
#include <initializer_list>
#include <new>

#include "backend/cuda/cublaslt.cuh"
#include "backend/cuda/plugin.cuh"

namespace tandem
{
namespace
{

enum {
    ALIGNMENT = 16,            /* bytes, of each tensor; the widest vector load */
    WORKSPACE_LIMIT = 1 << 25, /* recommended for Hopper; others recommend less */
    CHOICES = 8                /* algorithms to ask for */
};

cublasLtHandle_t handle;

#define TRY(call)                                                                                  \
    do {                                                                                           \
        if (const char *m_ = (call))                                                               \
            return m_;                                                                             \
    } while (0)

/* --- the problem ------------------------------------------------------------------------------ */

/* stored by columns, without gaps */
struct matrix {
    cudaDataType_t type;
    int64_t rows, columns, step; /* step: from a matrix of the batch to the next */
};

struct product {
    matrix a, b, d;
    cublasOperation_t of_a, of_b;
};

cudaDataType_t type_of(td_dtype d)
{
    return d == TD_DT_F16 ? CUDA_R_16F : d == TD_DT_BF16 ? CUDA_R_16BF : CUDA_R_32F;
}

/* a tensor [rows, columns], or its transpose */
matrix matrix_of(cudaDataType_t type, int64_t rows, int64_t columns, bool is_transposed,
                 int64_t step)
{
    return is_transposed ? matrix{ type, rows, columns, step }
                         : matrix{ type, columns, rows, step };
}

product product_of(const td_gpu_gemm_plan &p)
{
    const cudaDataType_t t = type_of(p.dtype);
    return { matrix_of(t, p.k, p.n, p.transpose_b, p.b_step),
             matrix_of(t, p.m, p.k, p.transpose_a, p.a_step),
             matrix_of(p.wide ? CUDA_R_32F : t, p.m, p.n, false, p.y_step),
             p.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N, p.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N };
}

/* --- descriptors ------------------------------------------------------------------------------ */

struct gemm {
    bool has_bias;
    cublasLtMatmulDesc_t operation;
    cublasLtMatrixLayout_t a, b, d;
    cublasLtMatmulAlgo_t algorithm;
    size_t workspace_bytes;

    ~gemm()
    {
        if (operation)
            (void)cublaslt.MatmulDescDestroy(operation);
        for (cublasLtMatrixLayout_t layout : { a, b, d })
            if (layout)
                (void)cublaslt.MatrixLayoutDestroy(layout);
    }
};

template <typename T>
const char *set(cublasLtMatmulDesc_t d, cublasLtMatmulDescAttributes_t attribute, T value)
{
    return explain("cublasLtMatmulDescSetAttribute",
                   cublaslt.MatmulDescSetAttribute(d, attribute, &value, sizeof value));
}

template <typename T>
const char *set(cublasLtMatmulPreference_t p, cublasLtMatmulPreferenceAttributes_t attribute,
                T value)
{
    return explain("cublasLtMatmulPreferenceSetAttribute",
                   cublaslt.MatmulPreferenceSetAttribute(p, attribute, &value, sizeof value));
}

template <typename T>
const char *set(cublasLtMatrixLayout_t l, cublasLtMatrixLayoutAttribute_t attribute, T value)
{
    return explain("cublasLtMatrixLayoutSetAttribute",
                   cublaslt.MatrixLayoutSetAttribute(l, attribute, &value, sizeof value));
}

const char *make_layout(const matrix &m, int64_t batch, cublasLtMatrixLayout_t *out)
{
    TRY(explain("cublasLtMatrixLayoutCreate",
                cublaslt.MatrixLayoutCreate(out, m.type, static_cast<uint64_t>(m.rows),
                                            static_cast<uint64_t>(m.columns), m.rows)));
    if (batch == 1)
        return nullptr;
    TRY(set(*out, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, static_cast<int32_t>(batch)));
    return set(*out, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, m.step);
}

/* the heuristics read a pointer's alignment only; the run sets the true one */
const char *set_bias(cublasLtMatmulDesc_t operation)
{
    static const char promised[2 * ALIGNMENT] __attribute__((aligned(2 * ALIGNMENT))) = "";
    TRY(set(operation, CUBLASLT_MATMUL_DESC_EPILOGUE,
            static_cast<uint32_t>(CUBLASLT_EPILOGUE_BIAS)));
    return set<const void *>(operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, promised + ALIGNMENT);
}

const char *make_descriptors(const td_gpu_gemm_plan &p, gemm *out)
{
    const product q = product_of(p);
    TRY(explain("cublasLtMatmulDescCreate",
                cublaslt.MatmulDescCreate(
                    &out->operation,
                    p.allow_tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F, CUDA_R_32F)));
    TRY(set(out->operation, CUBLASLT_MATMUL_DESC_TRANSA, static_cast<int32_t>(q.of_a)));
    TRY(set(out->operation, CUBLASLT_MATMUL_DESC_TRANSB, static_cast<int32_t>(q.of_b)));
    if (p.has_bias)
        TRY(set_bias(out->operation));
    TRY(make_layout(q.a, p.batch, &out->a));
    TRY(make_layout(q.b, p.batch, &out->b));
    return make_layout(q.d, p.batch, &out->d);
}

/* --- the algorithm ---------------------------------------------------------------------------- */

const char *set_preference(cublasLtMatmulPreference_t p)
{
    const cublasLtMatmulPreferenceAttributes_t alignments[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES
    };
    TRY(set(p, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(WORKSPACE_LIMIT)));
    TRY(set(p, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
            static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE)));
    for (const auto attribute : alignments)
        TRY(set(p, attribute, static_cast<uint32_t>(ALIGNMENT)));
    return nullptr;
}

/* after queue(): the handle is that of the current GPU */
const char *open_handle()
{
    return handle ? nullptr : explain("cublasLtCreate", cublaslt.Create(&handle));
}

/* the choice-th result that can run */
const char *ask(const gemm &g, cublasLtMatmulPreference_t preference, int choice,
                cublasLtMatmulHeuristicResult_t *out)
{
    cublasLtMatmulHeuristicResult_t results[CHOICES];
    int n = 0;
    TRY(set_preference(preference));
    TRY(open_handle()); /* last: it alone needs a driver */
    TRY(explain("cublasLtMatmulAlgoGetHeuristic",
                cublaslt.MatmulAlgoGetHeuristic(handle, g.operation, g.a, g.b, g.d, g.d, preference,
                                                CHOICES, results, &n)));
    for (int i = 0; i < n; i++)
        if (results[i].state == CUBLAS_STATUS_SUCCESS && choice-- == 0) {
            *out = results[i];
            return nullptr;
        }
    return explain("cublasLtMatmulAlgoGetHeuristic, no algorithm", CUBLAS_STATUS_NOT_SUPPORTED);
}

const char *choose_algorithm(gemm *g, int choice)
{
    cublasLtMatmulHeuristicResult_t result = {};
    cublasLtMatmulPreference_t preference = nullptr;
    TRY(explain("cublasLtMatmulPreferenceCreate", cublaslt.MatmulPreferenceCreate(&preference)));
    const char *m = ask(*g, preference, choice, &result);
    (void)cublaslt.MatmulPreferenceDestroy(preference);
    g->algorithm = result.algo;
    g->workspace_bytes = result.workspaceSize;
    return m;
}

/* as far as the library describes its algorithm */
void describe_algorithm(const cublasLtMatmulAlgo_t &a, char *text, size_t n)
{
    int32_t id = -1;
    uint64_t arithmetic = 0;
    size_t written = 0;
    (void)cublaslt.MatmulAlgoConfigGetAttribute(&a, CUBLASLT_ALGO_CONFIG_ID, &id, sizeof id,
                                                &written);
    (void)cublaslt.MatmulAlgoCapGetAttribute(&a, CUBLASLT_ALGO_CAP_NUMERICAL_IMPL_FLAGS,
                                             &arithmetic, sizeof arithmetic, &written);
    (void)snprintf(text, n, "cublaslt algorithm %d%s", static_cast<int>(id),
                   arithmetic & CUBLASLT_NUMERICAL_IMPL_FLAGS_TENSOR_OP_MASK ? ", tensor cores"
                                                                             : "");
}

const char *make(const td_gpu_gemm_plan &p, gemm *out)
{
    out->has_bias = p.has_bias;
    (void)queue();
    TRY(open_cublaslt());
    TRY(make_descriptors(p, out));
    return choose_algorithm(out, p.choice);
}

} // namespace

/* the heuristics ask the GPU that is here, so nothing is planned for one that is described */
const char *gemm_plan(const td_gpu_gemm_plan *a)
{
    if (described())
        return nullptr;
    auto *g = new (std::nothrow) gemm();
    if (!g)
        return "out of memory";
    if (const char *m = make(*a, g)) {
        delete g;
        return m;
    }
    a->made->plan = g;
    a->made->scratch_bytes = g->workspace_bytes;
    describe_algorithm(g->algorithm, a->made->impl, sizeof a->made->impl);
    return nullptr;
}

const char *gemm_run(const td_gpu_gemm_run *a)
{
    static const float one = 1, zero = 0;
    const auto *g = static_cast<const gemm *>(a->plan);
    if (g->has_bias)
        TRY(set<const void *>(g->operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, a->bias));
    return explain("cublasLtMatmul",
                   cublaslt.Matmul(handle, g->operation, &one, a->b, g->a, a->a, g->b, &zero, a->y,
                                   g->d, a->y, g->d, &g->algorithm, a->scratch, g->workspace_bytes,
                                   queue()));
}

const char *gemm_free(const td_gpu_gemm_free *a)
{
    delete static_cast<gemm *>(a->plan);
    return nullptr;
}

} // namespace tandem
