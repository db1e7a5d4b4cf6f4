/*
 * nccl.cu -- sums over ranks by NCCL, which is opened at run time, on a queue of their own
 *
 *     compute   ... copies to the bucket, ready ...  other kernels  ... wait for done, copies ...
 *     sums                                  wait for ready, add, done
 *
 * In order, every rank gets its slice of everybody's numbers, adds, and all gather the sums: as
 * many bytes as a ring moves.  Otherwise NCCL adds, in an order of its own.
 *
 * The communicator does not block: after each call `settle` polls until it has been accepted.  So
 * while this rank waits it also sees that another one was lost, which NCCL itself may not; then it
 * aborts the communicator, whose kernels would wait for ever.
 *
 * TANDEM_NCCL names the library, instead of libnccl.so.2.
 *
 * Source: NCCL User Guide, "Asynchronous errors and error handling", "Fault Tolerance" and
 * "Group Calls"; Li et al. 2020, PyTorch Distributed (sums beside the backward pass).
 */
#include <nccl.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

#include <dlfcn.h>
#include <sched.h>
#include <unistd.h>

#include "backend/cuda/plugin.cuh"
#include "backend/cuda/tensor.cuh"

namespace tandem
{
namespace
{

enum {
    JOIN_S = 120,   /* how long ranks that are alive may need to find each other */
    LEAVE_S = 2,    /* and to leave */
    NAME_MS = 2000, /* how long the cause of NCCL's error may need to become known */
    SPINS = 2000,   /* polls before the first sleep */
    SLEEP_US = 50
};

char message[768];

/* --- the library ------------------------------------------------------------------------------ */

#define NCCL_FUNCTIONS(F)                                                                          \
    F(GetUniqueId)                                                                                 \
    F(GetErrorString)                                                                              \
    F(GetLastError)                                                                                \
    F(CommInitRankConfig)                                                                          \
    F(CommGetAsyncError)                                                                           \
    F(CommFinalize)                                                                                \
    F(CommDestroy)                                                                                 \
    F(CommAbort)                                                                                   \
    F(GroupStart)                                                                                  \
    F(GroupEnd)                                                                                    \
    F(Send)                                                                                        \
    F(Recv)                                                                                        \
    F(AllGather)                                                                                   \
    F(AllReduce)

struct functions {
#define MEMBER(name) decltype(&nccl##name) name;
    NCCL_FUNCTIONS(MEMBER)
#undef MEMBER
};

functions nccl; /* filled by load_library */
bool is_loaded;

template <typename F> bool find(void *library, const char *name, F *out)
{
    void *f = dlsym(library, name);
    memcpy(out, &f, sizeof f);
    if (!f)
        (void)snprintf(message, sizeof message,
                       "NCCL has no function %s: version 2.14 or newer is needed", name);
    return f != nullptr;
}

void *open_library()
{
    const char *path = getenv("TANDEM_NCCL");
    return dlopen(path ? path : "libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
}

const char *load_library()
{
    functions f = {};
    if (is_loaded)
        return nullptr;
    void *library = open_library();
    if (!library) {
        (void)snprintf(message, sizeof message,
                       "NCCL cannot be loaded (%s): install it, or set TANDEM_NCCL to libnccl.so.2",
                       dlerror());
        return message;
    }
#define FIND(name)                                                                                 \
    if (!find(library, "nccl" #name, &f.name)) {                                                   \
        (void)dlclose(library);                                                                    \
        return message;                                                                            \
    }
    NCCL_FUNCTIONS(FIND)
#undef FIND
    nccl = f;
    is_loaded = true;
    return nullptr;
}

/* --- the group -------------------------------------------------------------------------------- */

struct {
    ncclComm_t comm; /* NULL: no group, or it was broken off */
    cudaStream_t stream;
    int rank, size;
    const char *(*check)(void *ctx);
    void *ctx;
    char lost[sizeof message]; /* why it was broken off */
} group;

struct sum {
    cudaEvent_t ready, done;
    bool is_begun;
};

bool is_accepted(ncclResult_t r)
{
    return r == ncclSuccess || r == ncclInProgress;
}

const char *nccl_error(const char *what, ncclResult_t r)
{
    if (is_accepted(r))
        return nullptr;
    const char *why = nccl.GetLastError(group.comm);
    (void)snprintf(message, sizeof message, "%s: %s%s%.400s", what, nccl.GetErrorString(r),
                   why && *why ? ": " : "", why ? why : "");
    return message;
}

#define TRY(call)                                                                                  \
    do {                                                                                           \
        if (const char *m_ = (call))                                                               \
            return m_;                                                                             \
    } while (0)
#define NCCL_TRY(name, ...)                                                                        \
    do {                                                                                           \
        if (const char *m_ = nccl_error("nccl" #name, nccl.name(__VA_ARGS__)))                     \
            return break_off(m_);                                                                  \
    } while (0)
#define CUDA_TRY(name, ...) TRY(explain(#name, name(__VA_ARGS__)))

/* ends what this rank's GPU waits for; later calls fail for the same reason */
const char *break_off(const char *why)
{
    (void)snprintf(group.lost, sizeof group.lost, "%s", why);
    if (group.comm)
        (void)nccl.CommAbort(group.comm);
    group.comm = nullptr;
    return group.lost;
}

/* NULL, or why no rank must wait any longer */
const char *check_ranks()
{
    const char *why = group.check ? group.check(group.ctx) : nullptr;
    return why ? break_off(why) : nullptr;
}

/* NCCL has failed, perhaps since a rank was lost: then the message names that */
const char *fail(const char *why)
{
    char text[sizeof message];
    (void)snprintf(text, sizeof text, "%s", why);
    for (int ms = 0; ms < NAME_MS; ms += 10) {
        TRY(check_ranks());
        (void)usleep(10 * 1000);
    }
    return break_off(text);
}

const char *async_error(ncclResult_t *state)
{
    *state = ncclSuccess;
    NCCL_TRY(CommGetAsyncError, group.comm, state);
    const char *why = nccl_error("NCCL", *state);
    return why ? fail(why) : nullptr;
}

/* what a loop that polls does between two polls */
const char *rest(int *n_polls)
{
    if (++*n_polls < SPINS) {
        (void)sched_yield();
        return nullptr;
    }
    (void)usleep(SLEEP_US);
    return check_ranks();
}

/* waits until NCCL has accepted the last call, at most `limit_s`; 0: as long as all ranks live */
const char *settle(const char *what, int limit_s)
{
    using clock = std::chrono::steady_clock;
    const auto end = clock::now() + std::chrono::seconds(limit_s);
    ncclResult_t state = ncclInProgress;
    for (int n_polls = 0; state == ncclInProgress;) {
        TRY(async_error(&state));
        if (state == ncclInProgress)
            TRY(rest(&n_polls));
        if (state == ncclInProgress && limit_s && clock::now() > end) {
            (void)snprintf(message, sizeof message,
                           "%s: the ranks did not reach each other through NCCL in %d s; "
                           "NCCL_DEBUG=INFO shows what it tries",
                           what, limit_s);
            return break_off(message);
        }
    }
    return nullptr;
}

const char *require_group()
{
    if (group.comm)
        return nullptr;
    return *group.lost ? group.lost : "there is no group of ranks";
}

/* --- adding ----------------------------------------------------------------------------------- */

struct ordered {
    float *own;                  /* [slice] this rank's part, then the sum */
    const float *start, *others; /* others: [size][slice] */
    int64_t slice;
    int rank, size;
};

__global__ void add_in_order_kernel(ordered o)
{
    for (int64_t i = thread_index(); i < o.slice; i += thread_count()) {
        float y = o.start ? o.start[i] : 0;
        for (int r = 0; r < o.size; r++)
            y += r == o.rank ? o.own[i] : o.others[r * o.slice + i];
        o.own[i] = y;
    }
}

/* slice r of this rank goes to rank r; from rank r comes its slice for this rank */
const char *exchange_slices(const td_gpu_sum_begin &a, int64_t slice)
{
    const auto n = static_cast<size_t>(slice);
    const char *what = "";
    ncclResult_t r = ncclSuccess;
    NCCL_TRY(GroupStart);
    for (int k = 0; k < group.size && is_accepted(r); k++) {
        if (k == group.rank)
            continue;
        what = "ncclSend";
        r = nccl.Send(static_cast<const float *>(a.data) + k * slice, n, ncclFloat32, k, group.comm,
                      group.stream);
        if (!is_accepted(r))
            break;
        what = "ncclRecv";
        r = nccl.Recv(a.others + k * slice, n, ncclFloat32, k, group.comm, group.stream);
    }
    const ncclResult_t ended = nccl.GroupEnd(); /* the group does not stay open after a failure */
    if (const char *m = nccl_error(what, r))
        return break_off(m);
    if (const char *m = nccl_error("ncclGroupEnd", ended))
        return break_off(m);
    return settle("ncclGroupEnd", 0);
}

const char *add_in_order(const td_gpu_sum_begin &a)
{
    const int64_t slice = a.count / group.size;
    float *own = static_cast<float *>(a.data) + group.rank * slice;
    TRY(exchange_slices(a, slice));
    const ordered o = { own,        a.start ? a.start + group.rank * slice : nullptr,
                        a.others,   slice,
                        group.rank, group.size };
    TD_LAUNCH(add_in_order_kernel, blocks_for(slice), THREADS, 0, group.stream, o);
    TRY(started());
    NCCL_TRY(AllGather, own, a.data, static_cast<size_t>(slice), ncclFloat32, group.comm,
             group.stream);
    return settle("ncclAllGather", 0);
}

const char *add_in_any_order(const td_gpu_sum_begin &a)
{
    const ncclDataType_t type = a.dtype == TD_DT_F16    ? ncclFloat16
                                : a.dtype == TD_DT_BF16 ? ncclBfloat16
                                                        : ncclFloat32;
    NCCL_TRY(AllReduce, a.data, a.data, static_cast<size_t>(a.count), type, ncclSum, group.comm,
             group.stream);
    return settle("ncclAllReduce", 0);
}

void release_sum(sum *s)
{
    if (s->ready)
        (void)cudaEventDestroy(s->ready);
    if (s->done)
        (void)cudaEventDestroy(s->done);
    delete s;
}

} // namespace

/* --- waiting ---------------------------------------------------------------------------------- */

const char *wait_for(cudaStream_t stream)
{
    ncclResult_t state;
    if (*group.lost)
        return group.lost;
    if (!group.comm)
        return explain("cudaStreamSynchronize", cudaStreamSynchronize(stream));
    for (int n_polls = 0;;) {
        const cudaError_t e = cudaStreamQuery(stream);
        if (e != cudaErrorNotReady)
            return explain("cudaStreamQuery", e);
        (void)cudaGetLastError(); /* it has noted that, and a launch would seem to have failed */
        TRY(async_error(&state));
        TRY(rest(&n_polls));
    }
}

/* --- the plug-in's functions ------------------------------------------------------------------ */

void survey_nccl(char *text, size_t n)
{
    int version = 0;
    void *library = open_library();
    if (!library) {
        (void)snprintf(text, n, "%s", dlerror());
        return;
    }
    const auto get = reinterpret_cast<int (*)(int *)>(dlsym(library, "ncclGetVersion"));
    if (!get || get(&version) != 0)
        (void)snprintf(text, n, "no ncclGetVersion");
    else
        (void)snprintf(text, n, "%d.%d.%d", version / 10000, version / 100 % 100, version % 100);
}

const char *ranks_id(const td_gpu_ranks_id *a)
{
    static_assert(static_cast<int>(TD_GPU_RANKS_ID) == NCCL_UNIQUE_ID_BYTES, "the size of an id");
    ncclUniqueId id;
    TRY(load_library());
    if (!a->id)
        return nullptr;
    TRY(nccl_error("ncclGetUniqueId", nccl.GetUniqueId(&id)));
    memcpy(a->id, id.internal, sizeof id.internal);
    return nullptr;
}

const char *ranks_join(const td_gpu_ranks_join *a)
{
    ncclUniqueId id;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    TRY(load_library());
    group = {};
    group.rank = a->rank;
    group.size = a->size;
    group.check = a->check;
    group.ctx = a->ctx;
    memcpy(id.internal, a->id, sizeof id.internal);
    config.blocking = 0;
    CUDA_TRY(cudaStreamCreateWithFlags, &group.stream, cudaStreamNonBlocking);
    NCCL_TRY(CommInitRankConfig, &group.comm, a->size, id, a->rank, &config);
    return settle("ncclCommInitRankConfig", JOIN_S);
}

const char *ranks_leave(const td_gpu_ranks_leave *a)
{
    const char *m = nullptr;
    if (group.comm && a->with_others) {
        m = nccl_error("ncclCommFinalize", nccl.CommFinalize(group.comm));
        m = m ? break_off(m) : settle("ncclCommFinalize", LEAVE_S);
        if (m)
            (void)snprintf(message, sizeof message, "%s", m);
    }
    if (group.comm && a->with_others)
        (void)nccl.CommDestroy(group.comm);
    else if (group.comm)
        (void)nccl.CommAbort(group.comm);
    if (group.stream)
        (void)cudaStreamDestroy(group.stream);
    group = {};
    return m ? message : nullptr;
}

const char *sum_new(const td_gpu_sum_new *a)
{
    auto *s = new (std::nothrow) sum();
    *a->made = nullptr;
    if (!s)
        return "out of memory";
    const char *m = explain("cudaEventCreateWithFlags",
                            cudaEventCreateWithFlags(&s->ready, cudaEventDisableTiming));
    if (!m)
        m = explain("cudaEventCreateWithFlags",
                    cudaEventCreateWithFlags(&s->done, cudaEventDisableTiming));
    if (m)
        release_sum(s);
    else
        *a->made = s;
    return m;
}

const char *sum_begin(const td_gpu_sum_begin *a)
{
    auto *s = static_cast<sum *>(a->sum);
    TRY(require_group());
    CUDA_TRY(cudaEventRecord, s->ready, queue());
    CUDA_TRY(cudaStreamWaitEvent, group.stream, s->ready, 0);
    TRY(a->in_order ? add_in_order(*a) : add_in_any_order(*a));
    CUDA_TRY(cudaEventRecord, s->done, group.stream);
    s->is_begun = true;
    return nullptr;
}

const char *sum_wait(const td_gpu_sum_wait *a)
{
    auto *s = static_cast<sum *>(a->sum);
    TRY(require_group());
    if (!s->is_begun)
        return "the sum over ranks was not begun";
    return explain("cudaStreamWaitEvent", cudaStreamWaitEvent(queue(), s->done, 0));
}

const char *sum_free(const td_gpu_sum_free *a)
{
    if (a->sum)
        release_sum(static_cast<sum *>(a->sum));
    return nullptr;
}

} // namespace tandem
