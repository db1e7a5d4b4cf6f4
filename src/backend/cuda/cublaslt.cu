/*
 * cublaslt.cu -- cuBLASLt, opened at run time
 *
 * TANDEM_CUBLASLT names the library, instead of libcublasLt.so.13 or .12.  What is used of it is
 * the same in both: descriptors are made by the library, and the values of their attributes and
 * cublasLtMatmulHeuristicResult_t have not changed since version 11.
 *
 * Source: cuBLAS 13.1, "cublasLtGetVersion()" and "cublasStatus_t".
 */
#include "backend/cuda/cublaslt.cuh"

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <dlfcn.h>

#include "backend/cuda/plugin.cuh"

namespace tandem
{

cublaslt_functions cublaslt;

namespace
{

char message[512];

#define INSTALL                                                                                    \
    "install the package nvidia-cublas (pip) and set TANDEM_CUBLASLT to its file "                 \
    "libcublasLt.so.13"

/* NULL: the reason is in `why`, of the first library that was tried */
void *open_library(char *why, size_t n)
{
    const char *path = getenv("TANDEM_CUBLASLT");
    void *library = dlopen(path ? path : "libcublasLt.so.13", RTLD_NOW | RTLD_LOCAL);
    if (!library)
        (void)snprintf(why, n, "%s", dlerror());
    if (!library && !path)
        library = dlopen("libcublasLt.so.12", RTLD_NOW | RTLD_LOCAL);
    return library;
}

template <typename F> bool find(void *library, const char *name, F *out)
{
    void *f = dlsym(library, name);
    memcpy(out, &f, sizeof f);
    if (!f)
        (void)snprintf(message, sizeof message, "cuBLASLt has no function %s; " INSTALL, name);
    return f != nullptr;
}

bool find_functions(void *library, cublaslt_functions *out)
{
#define FIND(name)                                                                                 \
    if (!find(library, "cublasLt" #name, &out->name))                                              \
        return false;
    CUBLASLT_FUNCTIONS(FIND)
#undef FIND
    return true;
}

/* 13.1.0 is 130100 */
void print_version(char *text, size_t n, size_t version)
{
    (void)snprintf(text, n, "%d.%d.%d", static_cast<int>(version / 10000),
                   static_cast<int>(version / 100 % 100), static_cast<int>(version % 100));
}

bool is_new_enough(const cublaslt_functions &f)
{
    const size_t oldest = 120000;
    char found[32];
    if (f.GetVersion() >= oldest)
        return true;
    print_version(found, sizeof found, f.GetVersion());
    (void)snprintf(message, sizeof message,
                   "cuBLASLt %s is too old, wanted 12.0 or above; " INSTALL, found);
    return false;
}

} // namespace

const char *open_cublaslt()
{
    cublaslt_functions f = {};
    char why[256];
    if (cublaslt.Matmul)
        return nullptr;
    void *library = open_library(why, sizeof why);
    if (!library) {
        (void)snprintf(message, sizeof message, "cuBLASLt cannot be loaded: %s; " INSTALL, why);
        return message;
    }
    if (!find_functions(library, &f) || !is_new_enough(f)) {
        (void)dlclose(library);
        return message;
    }
    cublaslt = f;
    return nullptr;
}

void survey_cublaslt(char *text, size_t n)
{
    if (const char *m = open_cublaslt())
        (void)snprintf(text, n, "%s", m);
    else
        print_version(text, n, cublaslt.GetVersion());
}

const char *explain(const char *function, cublasStatus_t status)
{
    if (status == CUBLAS_STATUS_SUCCESS)
        return nullptr;
    (void)snprintf(message, sizeof message, "%s: %s", function, cublaslt.GetStatusName(status));
    return message;
}

} // namespace tandem
