/*
 * test_cublaslt.cpp -- what cuBLASLt itself says to the plans of products without a GPU
 *
 * gemm.cu makes its descriptors, layouts and preferences before the handle, which alone needs a
 * driver.  The library checks the names and sizes of attributes; so every plan must end at
 * cublasLtCreate, or be made where a GPU is.  What the heuristics would answer stays unknown.
 */
#include <cstdio>
#include <cstring>

#include "backend/cuda/plugin.cuh"

namespace tandem
{

cudaStream_t queue()
{
    return nullptr;
}

const char *described()
{
    return nullptr;
}

} // namespace tandem

namespace
{

int n_planned, n_failed;

void plan(td_gpu_gemm_plan p)
{
    td_gpu_planned made = {};
    p.made = &made;
    const char *m = tandem::gemm_plan(&p);
    n_planned++;
    if (m && !strstr(m, "cublasLtCreate")) {
        printf("transposed %d %d, dtype %d, %lld times %lld x %lld x %lld: %s\n",
               static_cast<int>(p.transpose_a), static_cast<int>(p.transpose_b),
               static_cast<int>(p.dtype), static_cast<long long>(p.batch),
               static_cast<long long>(p.m), static_cast<long long>(p.n),
               static_cast<long long>(p.k), m);
        n_failed++;
    }
    const td_gpu_gemm_free plan_of = { made.plan };
    (void)tandem::gemm_free(&plan_of);
}

/* as linear layers, their gradients and attention have them */
void plan_forms(td_gpu_gemm_plan p)
{
    for (int form = 0; form < 4; form++) {
        p.transpose_a = form & 1;
        p.transpose_b = form & 2;
        plan(p);
    }
    p.wide = p.dtype != TD_DT_F32;
    plan(p);
    p.wide = false;
    p.has_bias = true;
    plan(p);
}

void plan_batches(td_gpu_gemm_plan p)
{
    p.batch = 1;
    plan_forms(p);
    p.batch = 24;
    p.a_step = p.m * p.k;
    p.b_step = p.k * p.n;
    p.y_step = p.m * p.n;
    plan_forms(p);
    p.b_step = 0;
    plan_forms(p);
}

} // namespace

int main()
{
    const td_dtype dtypes[] = { TD_DT_F32, TD_DT_F16, TD_DT_BF16 };
    const int64_t sizes[][3] = {
        { 32, 1000, 2048 }, { 1, 10, 512 }, { 5, 11, 17 }, { 197, 197, 64 }, { 1, 1, 1 }
    };
    if (const char *m = tandem::open_cublaslt()) {
        printf("%s\n", m);
        return 1;
    }
    for (const auto &size : sizes)
        for (td_dtype dtype : dtypes) {
            td_gpu_gemm_plan p = {};
            p.dtype = dtype;
            p.m = size[0];
            p.n = size[1];
            p.k = size[2];
            plan_batches(p);
            p.allow_tf32 = true;
            if (dtype == TD_DT_F32)
                plan_batches(p);
        }
    printf("%d plans, %d failures\n", n_planned, n_failed);
    return n_planned == 0 || n_failed > 0;
}
