/*
 * cudnn_library.c -- cuDNN opened at run time, its errors as text, and descriptors
 *
 * Source: cuDNN "Backend API", sections "Backend Descriptor Types" (what each descriptor needs
 * before it is finalized) and "cudnnGetLastErrorString".
 */
#include "backend/cuda/cudnn_parts.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

td_cudnn_calls td_cudnn;

int td_cudnn_error(char *error, int status, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vsnprintf(error, TD_CUDNN_TEXT, format, list);
    va_end(list);
    return status;
}

/* --- opening ---------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    size_t offset;
} functions[] = {
    { "cudnnGetVersion", offsetof(td_cudnn_calls, version) },
    { "cudnnGetLastErrorString", offsetof(td_cudnn_calls, last_error) },
    { "cudnnGetErrorString", offsetof(td_cudnn_calls, status_name) },
    { "cudnnCreate", offsetof(td_cudnn_calls, create_handle) },
    { "cudnnDestroy", offsetof(td_cudnn_calls, destroy_handle) },
    { "cudnnSetStream", offsetof(td_cudnn_calls, set_stream) },
    { "cudnnBackendCreateDescriptor", offsetof(td_cudnn_calls, create) },
    { "cudnnBackendDestroyDescriptor", offsetof(td_cudnn_calls, destroy) },
    { "cudnnBackendSetAttribute", offsetof(td_cudnn_calls, set) },
    { "cudnnBackendGetAttribute", offsetof(td_cudnn_calls, get) },
    { "cudnnBackendFinalize", offsetof(td_cudnn_calls, finalize) },
    { "cudnnBackendExecute", offsetof(td_cudnn_calls, execute) },
};

static int find_functions(void *library, td_cudnn_calls *calls, char *error)
{
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        void *f = dlsym(library, functions[i].name);
        if (!f)
            return td_cudnn_error(error, TD_CUDNN_EREQUEST,
                                  "cuDNN has no function %s: version 9 or newer is needed",
                                  functions[i].name);
        memcpy((char *)calls + functions[i].offset, &f, sizeof f);
    }
    return 0;
}

int td_cudnn_open(const char *path, int64_t *version, char *error)
{
    if (!td_cudnn.version) {
        td_cudnn_calls calls;
        path = path ? path : getenv("TANDEM_CUDNN");
        if (!path) /* cuDNN compiles kernels with it, and would look in the system's path only */
            (void)dlopen("libnvrtc.so.13", RTLD_LAZY | RTLD_LOCAL);
        /* the graph library alone is enough; an installation may lack the first, which loads it */
        void *library = dlopen(path ? path : "libcudnn.so.9", RTLD_NOW | RTLD_LOCAL);
        if (!library && !path)
            library = dlopen("libcudnn_graph.so.9", RTLD_NOW | RTLD_LOCAL);
        if (!library)
            return td_cudnn_error(error, TD_CUDNN_EREQUEST, "cuDNN cannot be loaded: %s",
                                  dlerror());
        int status = find_functions(library, &calls, error);
        if (status) {
            dlclose(library);
            return status;
        }
        td_cudnn = calls;
    }
    *version = (int64_t)td_cudnn.version();
    return 0;
}

/* --- handles ---------------------------------------------------------------------------------- */

int td_cudnn_handle_create(void *stream, void **out, char *error)
{
    cudnnHandle_t handle = NULL;
    *out = NULL;
    if (!td_cudnn.version)
        return td_cudnn_error(error, TD_CUDNN_EREQUEST, "cuDNN is not open");
    int status = td_cudnn_check(td_cudnn.create_handle(&handle), "cudnnCreate", error);
    if (status)
        return status;
    status = td_cudnn_check(td_cudnn.set_stream(handle, stream), "cudnnSetStream", error);
    if (status)
        td_cudnn_handle_destroy(handle);
    else
        *out = handle;
    return status;
}

void td_cudnn_handle_destroy(void *handle)
{
    if (handle)
        (void)td_cudnn.destroy_handle(handle);
}

/* --- errors ----------------------------------------------------------------------------------- */

void td_cudnn_reason(char *text)
{
    static const char mark[] = "Reason: ";
    char stack[4 * TD_CUDNN_TEXT] = "";
    td_cudnn.last_error(stack, sizeof stack - 1);
    const char *from = strstr(stack, mark);
    from = from ? from + strlen(mark) : stack;
    const int n = (int)strcspn(from, "\n");
    snprintf(text, TD_CUDNN_TEXT, "%s%.*s", n ? ": " : "",
             n < TD_CUDNN_TEXT / 2 ? n : TD_CUDNN_TEXT / 2, from);
}

int td_cudnn_check(cudnnStatus_t status, const char *what, char *error)
{
    char reason[TD_CUDNN_TEXT];
    if (status == CUDNN_STATUS_SUCCESS)
        return 0;
    td_cudnn_reason(reason);
    return td_cudnn_error(error, (int)status, "%s: %s%s", what, td_cudnn.status_name(status),
                          reason);
}

/* --- descriptors ------------------------------------------------------------------------------ */

td_descriptor td_cudnn_make(td_cudnn_builder *b, cudnnBackendDescriptorType_t type)
{
    td_cudnn_descriptors *made = b->made;
    td_descriptor d = NULL;
    if (b->status)
        return NULL;
    if (made->n == TD_CUDNN_DESCRIPTORS) {
        b->status = td_cudnn_error(b->error, TD_CUDNN_EREQUEST, "more than %d descriptors",
                                   TD_CUDNN_DESCRIPTORS);
        return NULL;
    }
    b->status = td_cudnn_check(td_cudnn.create(type, &d), "cudnnBackendCreateDescriptor", b->error);
    if (!b->status)
        made->at[made->n++] = d;
    return d;
}

void td_cudnn_set(td_cudnn_builder *b, td_descriptor d, cudnnBackendAttributeName_t name,
                  cudnnBackendAttributeType_t type, int64_t n, const void *values)
{
    char what[64];
    if (b->status)
        return;
    snprintf(what, sizeof what, "cuDNN attribute %d", (int)name);
    b->status = td_cudnn_check(td_cudnn.set(d, name, type, n, values), what, b->error);
}

void td_cudnn_set_descriptor(td_cudnn_builder *b, td_descriptor d, cudnnBackendAttributeName_t name,
                             td_descriptor value)
{
    td_cudnn_set(b, d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

void td_cudnn_finalize(td_cudnn_builder *b, td_descriptor d, const char *what)
{
    if (!b->status)
        b->status = td_cudnn_check(td_cudnn.finalize(d), what, b->error);
}

void td_cudnn_destroy(td_cudnn_descriptors *made, int n)
{
    while (made->n > n)
        (void)td_cudnn.destroy(made->at[--made->n]);
}
