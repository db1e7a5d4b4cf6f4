/*
 * test_cublaslt.cpp -- what cuBLASLt itself says to the plans of linear layers without a GPU
 *
 * linear.cu makes its descriptors, layouts and preferences before the handle, which alone needs a
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

void plan(td_gpu_linear_plan p)
{
    td_gpu_planned made = {};
    p.made = &made;
    const char *m = tandem::linear_plan(&p);
    n_planned++;
    if (m && !strstr(m, "cublasLtCreate")) {
        printf("direction %d, dtype %d, %lld x %lld x %lld: %s\n", static_cast<int>(p.direction),
               static_cast<int>(p.dtype), static_cast<long long>(p.n), static_cast<long long>(p.c),
               static_cast<long long>(p.k), m);
        n_failed++;
    }
    const td_gpu_linear_free plan_of = { made.plan };
    (void)tandem::linear_free(&plan_of);
}

void plan_directions(td_gpu_linear_plan p)
{
    p.direction = TD_GPU_DATA_GRADIENT;
    plan(p);
    p.direction = TD_GPU_FILTER_GRADIENT;
    plan(p);
    p.wide = p.dtype != TD_DT_F32;
    plan(p);
    p.wide = false;
    p.direction = TD_GPU_FORWARD;
    plan(p);
    p.has_bias = true;
    plan(p);
}

} // namespace

int main()
{
    const td_dtype dtypes[] = { TD_DT_F32, TD_DT_F16, TD_DT_BF16 };
    const int64_t sizes[][3] = { { 32, 2048, 1000 }, { 1, 512, 10 }, { 5, 17, 11 }, { 1, 1, 1 } };
    if (const char *m = tandem::open_cublaslt()) {
        printf("%s\n", m);
        return 1;
    }
    for (const auto &size : sizes)
        for (td_dtype dtype : dtypes) {
            td_gpu_linear_plan p = {};
            p.dtype = dtype;
            p.n = size[0];
            p.c = size[1];
            p.k = size[2];
            plan_directions(p);
            p.allow_tf32 = true;
            if (dtype == TD_DT_F32)
                plan_directions(p);
        }
    printf("%d plans, %d failures\n", n_planned, n_failed);
    return n_planned == 0 || n_failed > 0;
}
