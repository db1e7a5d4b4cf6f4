/*
 * cublaslt.cpp -- cuBLASLt on a machine without a GPU: descriptors, heuristics, and products of
 * matrices with plain loops
 *
 * It checks what cuBLASLt checks or requires: handles, attributes and their sizes, types, sizes and
 * leading dimensions, and, when a product starts, that the algorithm was chosen for this problem,
 * that pointers are device memory as aligned as the preference and the bias pointer promised, the
 * workspace and the stream.  Heuristics offer eight algorithms, so that callers must choose:
 *
 *   0, 1   keep partial sums in the result's type, in place or in the workspace
 *   2      needs 64 MB of workspace       3      needs all tensors aligned to 256 bytes
 *   4      its state is NOT_SUPPORTED     5, 6, 7   run, with 1000, 0 and 5000 bytes of workspace
 *
 * 0 and 1 are offered where their scheme is allowed, 2 and 3 where they fit; 0, 1 and 4 cannot run.
 */
#include <climits>
#include <cstdlib>
#include <set>
#include <vector>

#include "cublasLt.h"
#include "elements.h"
#include "stand_in.h"

struct stand_in_cublaslt {
    int unused;
};

struct stand_in_operation {
    cublasComputeType_t compute;
    int32_t of_a, of_b;
    uint32_t epilogue;
    const void *bias;
};

struct stand_in_layout {
    cudaDataType_t type;
    int64_t rows, columns, step;
    int32_t batch;
    int64_t matrix_step; /* from a matrix of the batch to the next */
};

struct stand_in_preference {
    uint64_t workspace_bytes;
    uint32_t schemes;
    uint32_t alignment[4]; /* of A, B, C, D */
};

namespace
{

using namespace stand_in;

enum { BIAS = 4, N_TENSORS, N_ALGORITHMS = 8 };

std::set<const void *> handles, operations, layouts, preferences; /* that exist */

struct end {
    ~end()
    {
        log_left("cuBLASLt descriptors", operations.size() + layouts.size() + preferences.size());
    }
} at_end;

#define FAIL_IF(condition, status)                                                                 \
    do {                                                                                           \
        if (condition)                                                                             \
            return status;                                                                         \
    } while (0)
#define TRY(call)                                                                                  \
    do {                                                                                           \
        const cublasStatus_t status_ = (call);                                                     \
        if (status_ != CUBLAS_STATUS_SUCCESS)                                                      \
            return status_;                                                                        \
    } while (0)

template <typename T, typename P>
cublasStatus_t make(T value, P *out, std::set<const void *> *all, bool fails)
{
    *out = nullptr;
    FAIL_IF(fails, CUBLAS_STATUS_ALLOC_FAILED);
    *out = new T(value);
    all->insert(*out);
    return CUBLAS_STATUS_SUCCESS;
}

template <typename T> cublasStatus_t destroy(T *p, std::set<const void *> *all)
{
    FAIL_IF(all->erase(p) == 0, CUBLAS_STATUS_INVALID_VALUE);
    delete p;
    return CUBLAS_STATUS_SUCCESS;
}

template <typename T> cublasStatus_t set(T *to, const void *value, size_t n)
{
    FAIL_IF(!value || n != sizeof *to, CUBLAS_STATUS_INVALID_VALUE);
    memcpy(to, value, n);
    return CUBLAS_STATUS_SUCCESS;
}

template <typename T> cublasStatus_t give(T from, void *value, size_t n, size_t *written)
{
    FAIL_IF(!value || !written || n != sizeof from, CUBLAS_STATUS_INVALID_VALUE);
    memcpy(value, &from, n);
    *written = n;
    return CUBLAS_STATUS_SUCCESS;
}

/* --- the problem ------------------------------------------------------------------------------ */

struct problem {
    stand_in_operation op;
    stand_in_layout a, b, d;
};

int64_t rows_of(const stand_in_layout &l, int32_t of)
{
    return of == CUBLAS_OP_T ? l.columns : l.rows;
}

int64_t columns_of(const stand_in_layout &l, int32_t of)
{
    return of == CUBLAS_OP_T ? l.rows : l.columns;
}

/* cublasLtMatmul(), "Datatypes Supported" */
bool has_types(const problem &p)
{
    if (p.a.type != p.b.type)
        return false;
    if (p.a.type == CUDA_R_32F)
        return p.d.type == CUDA_R_32F;
    return p.op.compute == CUBLAS_COMPUTE_32F && (p.d.type == p.a.type || p.d.type == CUDA_R_32F);
}

/* one number of products, whose results do not overlap */
bool is_one_batch(const problem &p)
{
    const int64_t count = p.d.batch, results = (p.d.columns - 1) * p.d.step + p.d.rows;
    return p.a.batch == count && p.b.batch == count && (count == 1 || p.d.matrix_step >= results);
}

cublasStatus_t read_problem(cublasLtMatmulDesc_t op, const cublasLtMatrixLayout_t l[4],
                            problem *out)
{
    FAIL_IF(!operations.count(op), CUBLAS_STATUS_INVALID_VALUE);
    for (int i = 0; i < 4; i++)
        FAIL_IF(!layouts.count(l[i]), CUBLAS_STATUS_INVALID_VALUE);
    *out = { *op, *l[0], *l[1], *l[3] };
    const problem &p = *out;
    FAIL_IF(l[2] != l[3], CUBLAS_STATUS_NOT_SUPPORTED); /* C elsewhere than D */
    FAIL_IF(rows_of(p.a, op->of_a) != p.d.rows || columns_of(p.b, op->of_b) != p.d.columns ||
                columns_of(p.a, op->of_a) != rows_of(p.b, op->of_b),
            CUBLAS_STATUS_INVALID_VALUE);
    FAIL_IF(!has_types(p), CUBLAS_STATUS_NOT_SUPPORTED);
    FAIL_IF(!is_one_batch(p), CUBLAS_STATUS_INVALID_VALUE);
    FAIL_IF((op->epilogue == CUBLASLT_EPILOGUE_BIAS) != (op->bias != nullptr),
            CUBLAS_STATUS_INVALID_VALUE);
    return CUBLAS_STATUS_SUCCESS;
}

/* of all that an algorithm is chosen for */
uint64_t hash_of(const problem &p)
{
    uint64_t h = 14695981039346656037u;
    const auto add = [&h](int64_t v) { h = (h ^ static_cast<uint64_t>(v)) * 1099511628211u; };
    for (int64_t v :
         { int64_t(p.op.compute), int64_t(p.op.of_a), int64_t(p.op.of_b), int64_t(p.op.epilogue) })
        add(v);
    for (const stand_in_layout *l : { &p.a, &p.b, &p.d })
        for (int64_t v : { int64_t(l->type), l->rows, l->columns, l->step, int64_t(l->batch),
                           l->matrix_step })
            add(v);
    return h;
}

/* --- algorithms ------------------------------------------------------------------------------- */

/* as it lies in cublasLtMatmulAlgo_t */
struct algorithm {
    uint64_t id, hash;
    uint32_t alignment[N_TENSORS]; /* that the caller promised */
};
static_assert(sizeof(algorithm) <= sizeof(cublasLtMatmulAlgo_t), "it fits");

algorithm read_algorithm(const cublasLtMatmulAlgo_t *a)
{
    algorithm found;
    memcpy(&found, a, sizeof found);
    return found;
}

size_t workspace_of(uint64_t id)
{
    static const size_t bytes[N_ALGORITHMS] = { 0, 0, 1u << 26, 0, 0, 1000, 0, 5000 };
    return bytes[id];
}

bool is_offered(uint64_t id, const stand_in_preference &p)
{
    if (id == 0)
        return (p.schemes & CUBLASLT_REDUCTION_SCHEME_INPLACE) != 0;
    if (id == 1)
        return (p.schemes & CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE) != 0;
    for (uint32_t a : p.alignment)
        if (id == 3 && a < 256)
            return false;
    return workspace_of(id) <= p.workspace_bytes;
}

/* the largest power of two that divides an address, at most 256 */
uint32_t alignment_of(const void *p)
{
    const auto at = reinterpret_cast<uintptr_t>(p);
    return static_cast<uint32_t>(at % 256 == 0 ? 256 : at & (~at + 1));
}

algorithm algorithm_of(uint64_t id, const problem &p, const stand_in_preference &preference)
{
    algorithm a = { id, hash_of(p), {} };
    memcpy(a.alignment, preference.alignment, sizeof preference.alignment);
    a.alignment[BIAS] = alignment_of(p.op.bias);
    return a;
}

/* --- products --------------------------------------------------------------------------------- */

element element_of(cudaDataType_t t)
{
    return t == CUDA_R_16F ? element::f16 : t == CUDA_R_16BF ? element::bf16 : element::f32;
}

size_t extent_of(const stand_in_layout &l)
{
    const int64_t last = (l.batch - 1) * l.matrix_step + (l.columns - 1) * l.step + l.rows;
    return static_cast<size_t>(last) * bytes_of(element_of(l.type));
}

/* of matrix `m` of the batch row i of A, or column i of B, one after another: the numbers that are
   multiplied */
std::vector<float> load(const void *p, const stand_in_layout &l, int64_t m, bool by_rows,
                        bool is_tf32)
{
    const int64_t outer = by_rows ? l.rows : l.columns, inner = by_rows ? l.columns : l.rows;
    std::vector<float> v(static_cast<size_t>(l.rows * l.columns));
    for (int64_t i = 0; i < outer; i++)
        for (int64_t j = 0; j < inner; j++) {
            const int64_t at = by_rows ? j * l.step + i : i * l.step + j;
            const float x = read(p, element_of(l.type), m * l.matrix_step + at);
            v[static_cast<size_t>(i * inner + j)] = is_tf32 ? to_tf32(x) : x;
        }
    return v;
}

/* one column of D */
FAST void multiply(const float *rows, const float *column, float *out, int64_t n_rows, int64_t n)
{
    for (int64_t i = 0; i < n_rows; i++)
        out[i] = dot(rows + i * n, column, n);
}

struct product {
    problem p;
    float alpha;
    const void *a, *b;
    void *d;
};

/* product m of the batch */
void run_product(const product &q, int64_t m)
{
    const problem &p = q.p;
    const bool is_tf32 = p.op.compute == CUBLAS_COMPUTE_32F_FAST_TF32;
    const element type = element_of(p.d.type);
    const int64_t n = columns_of(p.a, p.op.of_a);
    const auto a = load(q.a, p.a, m, p.op.of_a == CUBLAS_OP_N, is_tf32);
    const auto b = load(q.b, p.b, m, p.op.of_b == CUBLAS_OP_T, is_tf32);
    std::vector<float> column(static_cast<size_t>(p.d.rows));
    for (int64_t j = 0; j < p.d.columns; j++) {
        multiply(a.data(), b.data() + j * n, column.data(), p.d.rows, n);
        for (int64_t i = 0; i < p.d.rows; i++) {
            float v = q.alpha * column[static_cast<size_t>(i)];
            if (p.op.bias)
                v += read(p.op.bias, type, i);
            write(q.d, type, m * p.d.matrix_step + j * p.d.step + i, v);
        }
    }
}

/* device memory of n bytes, as aligned as was promised */
cublasStatus_t check_pointer(const void *p, size_t n, uint32_t alignment)
{
    FAIL_IF(alignment_of(p) < alignment, CUBLAS_STATUS_INVALID_VALUE);
    FAIL_IF(!is_device(p, n), CUBLAS_STATUS_EXECUTION_FAILED);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t check_pointers(const product &q, const algorithm &a)
{
    TRY(check_pointer(q.a, extent_of(q.p.a), a.alignment[0]));
    TRY(check_pointer(q.b, extent_of(q.p.b), a.alignment[1]));
    TRY(check_pointer(q.d, extent_of(q.p.d), a.alignment[3]));
    FAIL_IF(q.d == q.a || q.d == q.b, CUBLAS_STATUS_INVALID_VALUE);
    if (!q.p.op.bias)
        return CUBLAS_STATUS_SUCCESS;
    const size_t size = bytes_of(element_of(q.p.d.type)), n = static_cast<size_t>(q.p.d.rows);
    return check_pointer(q.p.op.bias, n * size, a.alignment[BIAS]);
}

cublasStatus_t check_algorithm(const algorithm &a, const problem &p, const void *workspace,
                               size_t n)
{
    FAIL_IF(a.id >= N_ALGORITHMS || a.hash != hash_of(p), CUBLAS_STATUS_INVALID_VALUE);
    FAIL_IF(a.id < 2 || a.id == 4, CUBLAS_STATUS_NOT_SUPPORTED);
    FAIL_IF(n < workspace_of(a.id), CUBLAS_STATUS_INVALID_VALUE);
    return n > 0 ? check_pointer(workspace, n, 256) : CUBLAS_STATUS_SUCCESS;
}

bool is_host_number(const void *p)
{
    return p && !is_device(p, sizeof(float));
}

} // namespace

/* --- the interface ---------------------------------------------------------------------------- */

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT size_t cublasLtGetVersion(void)
{
    const char *version = getenv("TANDEM_STAND_IN_CUBLASLT");
    return version ? strtoul(version, nullptr, 10) : 130100;
}

EXPORT const char *cublasLtGetStatusName(cublasStatus_t status)
{
    switch (status) {
    case CUBLAS_STATUS_SUCCESS:
        return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_NOT_INITIALIZED:
        return "CUBLAS_STATUS_NOT_INITIALIZED";
    case CUBLAS_STATUS_ALLOC_FAILED:
        return "CUBLAS_STATUS_ALLOC_FAILED";
    case CUBLAS_STATUS_INVALID_VALUE:
        return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_EXECUTION_FAILED:
        return "CUBLAS_STATUS_EXECUTION_FAILED";
    case CUBLAS_STATUS_NOT_SUPPORTED:
        return "CUBLAS_STATUS_NOT_SUPPORTED";
    default:
        return "CUBLAS_STATUS_INTERNAL_ERROR";
    }
}

EXPORT cublasStatus_t cublasLtCreate(cublasLtHandle_t *out)
{
    *out = nullptr;
    FAIL_IF(is_due(), CUBLAS_STATUS_NOT_INITIALIZED);
    static stand_in_cublaslt handle; /* one for each process, never destroyed */
    handles.insert(&handle);
    *out = &handle;
    return CUBLAS_STATUS_SUCCESS;
}

EXPORT cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *out,
                                               cublasComputeType_t compute, cudaDataType_t scale)
{
    FAIL_IF(compute != CUBLAS_COMPUTE_32F && compute != CUBLAS_COMPUTE_32F_FAST_TF32,
            CUBLAS_STATUS_INVALID_VALUE);
    FAIL_IF(scale != CUDA_R_32F, CUBLAS_STATUS_INVALID_VALUE);
    const stand_in_operation op = { compute, CUBLAS_OP_N, CUBLAS_OP_N, CUBLASLT_EPILOGUE_DEFAULT,
                                    nullptr };
    return make(op, out, &operations, is_due());
}

EXPORT cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t d)
{
    return destroy(d, &operations);
}

EXPORT cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t d,
                                                     cublasLtMatmulDescAttributes_t name,
                                                     const void *value, size_t n)
{
    FAIL_IF(!operations.count(d), CUBLAS_STATUS_INVALID_VALUE);
    FAIL_IF(is_due(), CUBLAS_STATUS_INTERNAL_ERROR);
    switch (name) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
        TRY(set(&d->of_a, value, n));
        break;
    case CUBLASLT_MATMUL_DESC_TRANSB:
        TRY(set(&d->of_b, value, n));
        break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
        TRY(set(&d->epilogue, value, n));
        break;
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
        return set(&d->bias, value, n);
    default:
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    for (int32_t of : { d->of_a, d->of_b })
        FAIL_IF(of != CUBLAS_OP_N && of != CUBLAS_OP_T, CUBLAS_STATUS_INVALID_VALUE);
    FAIL_IF(d->epilogue != CUBLASLT_EPILOGUE_DEFAULT && d->epilogue != CUBLASLT_EPILOGUE_BIAS,
            CUBLAS_STATUS_INVALID_VALUE);
    return CUBLAS_STATUS_SUCCESS;
}

EXPORT cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *out, cudaDataType_t type,
                                                 uint64_t rows, uint64_t columns, int64_t step)
{
    FAIL_IF(rows < 1 || rows > INT_MAX || columns < 1 || columns > INT_MAX,
            CUBLAS_STATUS_INVALID_VALUE);
    FAIL_IF(step < static_cast<int64_t>(rows), CUBLAS_STATUS_INVALID_VALUE);
    const stand_in_layout l = { type, static_cast<int64_t>(rows), static_cast<int64_t>(columns),
                                step, 1,    0 };
    return make(l, out, &layouts, is_due());
}

EXPORT cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t l)
{
    return destroy(l, &layouts);
}

EXPORT cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t l,
                                                       cublasLtMatrixLayoutAttribute_t name,
                                                       const void *value, size_t n)
{
    FAIL_IF(!layouts.count(l), CUBLAS_STATUS_INVALID_VALUE);
    FAIL_IF(is_due(), CUBLAS_STATUS_INTERNAL_ERROR);
    switch (name) {
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
        TRY(set(&l->batch, value, n));
        break;
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
        TRY(set(&l->matrix_step, value, n));
        break;
    default:
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    FAIL_IF(l->batch < 1 || l->matrix_step < 0, CUBLAS_STATUS_INVALID_VALUE);
    return CUBLAS_STATUS_SUCCESS;
}

EXPORT cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *out)
{
    const stand_in_preference p = { 0, CUBLASLT_REDUCTION_SCHEME_MASK, { 256, 256, 256, 256 } };
    return make(p, out, &preferences, is_due());
}

EXPORT cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t p)
{
    return destroy(p, &preferences);
}

EXPORT cublasStatus_t cublasLtMatmulPreferenceSetAttribute(
    cublasLtMatmulPreference_t p, cublasLtMatmulPreferenceAttributes_t name, const void *value,
    size_t n)
{
    FAIL_IF(!preferences.count(p), CUBLAS_STATUS_INVALID_VALUE);
    FAIL_IF(is_due(), CUBLAS_STATUS_INTERNAL_ERROR);
    switch (name) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
        return set(&p->workspace_bytes, value, n);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
        return set(&p->schemes, value, n);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
        return set(&p->alignment[name - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES], value, n);
    default:
        return CUBLAS_STATUS_INVALID_VALUE;
    }
}

EXPORT cublasStatus_t cublasLtMatmulAlgoGetHeuristic(
    cublasLtHandle_t handle, cublasLtMatmulDesc_t op, cublasLtMatrixLayout_t a,
    cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
    cublasLtMatmulPreference_t preference, int n_max, cublasLtMatmulHeuristicResult_t *out, int *n)
{
    problem p;
    const cublasLtMatrixLayout_t all[4] = { a, b, c, d };
    FAIL_IF(!handles.count(handle), CUBLAS_STATUS_NOT_INITIALIZED);
    FAIL_IF(!preferences.count(preference) || n_max < 1 || !out || !n, CUBLAS_STATUS_INVALID_VALUE);
    FAIL_IF(is_due(), CUBLAS_STATUS_INTERNAL_ERROR);
    TRY(read_problem(op, all, &p));
    *n = 0;
    for (uint64_t id = 0; id < N_ALGORITHMS && *n < n_max; id++) {
        if (!is_offered(id, *preference))
            continue;
        const algorithm chosen = algorithm_of(id, p, *preference);
        cublasLtMatmulHeuristicResult_t *r = &out[(*n)++];
        memset(r, 0xff, sizeof *r);
        memcpy(&r->algo, &chosen, sizeof chosen);
        r->workspaceSize = workspace_of(id);
        r->state = id == 4 ? CUBLAS_STATUS_NOT_SUPPORTED : CUBLAS_STATUS_SUCCESS;
    }
    return CUBLAS_STATUS_SUCCESS;
}

EXPORT cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(
    const cublasLtMatmulAlgo_t *algorithm, cublasLtMatmulAlgoConfigAttributes_t name, void *value,
    size_t n, size_t *written)
{
    FAIL_IF(name != CUBLASLT_ALGO_CONFIG_ID, CUBLAS_STATUS_INVALID_VALUE);
    FAIL_IF(is_due(), CUBLAS_STATUS_INTERNAL_ERROR);
    return give(static_cast<int32_t>(read_algorithm(algorithm).id), value, n, written);
}

EXPORT cublasStatus_t cublasLtMatmulAlgoCapGetAttribute(const cublasLtMatmulAlgo_t *algorithm,
                                                        cublasLtMatmulAlgoCapAttributes_t name,
                                                        void *value, size_t n, size_t *written)
{
    FAIL_IF(name != CUBLASLT_ALGO_CAP_NUMERICAL_IMPL_FLAGS, CUBLAS_STATUS_INVALID_VALUE);
    FAIL_IF(is_due(), CUBLAS_STATUS_INTERNAL_ERROR);
    const bool is_even = read_algorithm(algorithm).id % 2 == 0;
    const uint64_t flags =
        is_even ? CUBLASLT_NUMERICAL_IMPL_FLAGS_FMA : CUBLASLT_NUMERICAL_IMPL_FLAGS_HMMA;
    return give(flags, value, n, written);
}

EXPORT cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t op,
                                     const void *alpha, const void *a,
                                     cublasLtMatrixLayout_t a_layout, const void *b,
                                     cublasLtMatrixLayout_t b_layout, const void *beta,
                                     const void *c, cublasLtMatrixLayout_t c_layout, void *d,
                                     cublasLtMatrixLayout_t d_layout,
                                     const cublasLtMatmulAlgo_t *chosen, void *workspace, size_t n,
                                     cudaStream_t stream)
{
    const cublasLtMatrixLayout_t all[4] = { a_layout, b_layout, c_layout, d_layout };
    product q = { {}, 0, a, b, d };
    FAIL_IF(!handles.count(handle), CUBLAS_STATUS_NOT_INITIALIZED);
    FAIL_IF(!is_host_number(alpha) || !is_host_number(beta), CUBLAS_STATUS_INVALID_VALUE);
    FAIL_IF(!chosen || !is_stream(stream), CUBLAS_STATUS_INVALID_VALUE);
    FAIL_IF(c != d || *static_cast<const float *>(beta) != 0, CUBLAS_STATUS_NOT_SUPPORTED);
    TRY(read_problem(op, all, &q.p));
    q.alpha = *static_cast<const float *>(alpha);
    TRY(check_algorithm(read_algorithm(chosen), q.p, workspace, n));
    TRY(check_pointers(q, read_algorithm(chosen)));
    FAIL_IF(is_due(), CUBLAS_STATUS_EXECUTION_FAILED);
    do_work(stream, [=] {
        const opening is_open;
        spoil(workspace, n);
        for (int64_t m = 0; m < q.p.d.batch; m++)
            run_product(q, m);
        return true;
    });
    return CUBLAS_STATUS_SUCCESS;
}
