/*
 * cuda_runtime.cpp -- the CUDA runtime on a machine without a GPU: see cuda_runtime.h
 */
#include "cuda_runtime.h"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <set>

#include <sys/mman.h>
#include <unistd.h>

#include "cuda/host_grid.h"
#include "stand_in.h"

using stand_in::is_device;
using stand_in::is_due;
using stand_in::opening;

struct stand_in_stream {
    std::deque<std::function<bool()>> queued;
    size_t n_begun; /* that have left the queue */
    int device;
    bool hangs, was_queried;
};

struct stand_in_event {
    cudaStream_t stream; /* that it was last recorded on; NULL: none */
    size_t position;     /* how many were queued there before */
};

namespace
{

std::map<uintptr_t, size_t> &regions =
    *new std::map<uintptr_t, size_t>; /* device memory; outlives exit */
size_t n_bytes;                       /* their sum */
int n_users;                          /* copies and kernels in progress */
cudaError_t last_error = cudaSuccess;
template <typename T> using set_of = std::set<T *, std::less<>>;
set_of<stand_in_stream> &streams = *new set_of<stand_in_stream>;
set_of<stand_in_event> &events = *new set_of<stand_in_event>;

thread_local int device; /* of this thread's calls */

double setting(const char *name, double missing)
{
    const char *text = getenv(name);
    return text ? atof(text) : missing;
}

/* NULL without TANDEM_STAND_IN_LOG */
FILE *call_log()
{
    static const char *path = getenv("TANDEM_STAND_IN_LOG");
    static FILE *log = path ? fopen(path, "a") : nullptr;
    return log;
}

struct end {
    ~end()
    {
        stand_in::log_left("allocations", regions.size());
        stand_in::log_left("events", events.size());
    }
} at_end;

cudaError_t failed(cudaError_t e)
{
    last_error = e;
    return e;
}

#define FAIL_IF(condition, error)                                                                  \
    do {                                                                                           \
        if (condition)                                                                             \
            return failed(error);                                                                  \
    } while (0)

constexpr size_t HUGE_PAGE = size_t(1) << 21;

size_t whole_pages(size_t n)
{
    const size_t page = n < HUGE_PAGE ? static_cast<size_t>(sysconf(_SC_PAGESIZE)) : HUGE_PAGE;
    return (n + page - 1) / page * page;
}

/* n bytes of whole pages; huge ones where they fit: each launch changes the access to all twice */
void *map_pages(size_t n)
{
    const size_t spare = n < HUGE_PAGE ? 0 : HUGE_PAGE;
    char *p = static_cast<char *>(mmap(nullptr, n + spare, PROT_READ | PROT_WRITE,
                                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    if (p == MAP_FAILED || spare == 0)
        return p;
    const size_t before = (HUGE_PAGE - reinterpret_cast<uintptr_t>(p) % HUGE_PAGE) % HUGE_PAGE;
    if (before > 0)
        (void)munmap(p, before);
    if (before < spare)
        (void)munmap(p + before + n, spare - before);
    (void)madvise(p + before, n, MADV_HUGEPAGE);
    return p + before;
}

void protect_all(int how)
{
    for (const auto &r : regions)
        if (mprotect(reinterpret_cast<void *>(r.first), whole_pages(r.second), how) != 0)
            abort();
}

void use_memory(bool begins)
{
    n_users += begins ? 1 : -1;
    if (n_users == (begins ? 1 : 0))
        protect_all(begins ? PROT_READ | PROT_WRITE : PROT_NONE);
}

/* does any of n bytes from p belong to a region? */
bool touches_device(const void *p, size_t n)
{
    const auto at = reinterpret_cast<uintptr_t>(p);
    for (const auto &r : regions)
        if (at < r.first + r.second && r.first < at + n)
            return true;
    return false;
}

bool is_right(const void *p, size_t n, bool on_device)
{
    return n == 0 || (on_device ? is_device(p, n) : p && !touches_device(p, n));
}

bool is_open(const stand_in_stream *s)
{
    return streams.count(s) > 0;
}

/* runs the first of what is queued; nothing follows what hangs */
void run_until(stand_in_stream *s, size_t position)
{
    while (s->n_begun < position && !s->queued.empty()) {
        const std::function<bool()> work = s->queued.front();
        s->queued.pop_front();
        s->n_begun++;
        s->hangs = s->hangs || !work();
    }
}

void run_queued(stand_in_stream *s)
{
    run_until(s, s->n_begun + s->queued.size());
}

/* does a call on stream s follow what is queued there?  false: there is no such stream */
bool follows(stand_in_stream *s)
{
    if (!is_open(s))
        return false;
    run_queued(s);
    return true;
}

void before_launch(const void *stream)
{
    const auto s = streams.find(static_cast<const stand_in_stream *>(stream));
    if (s == streams.end())
        return;
    if ((*s)->device != device) {
        (void)fprintf(stderr, "stand-in: GPU %d launches a kernel on a stream of GPU %d\n", device,
                      (*s)->device);
        abort();
    }
    run_queued(*s);
}

} // namespace

namespace stand_in
{

opening::opening()
{
    use_memory(true);
}

opening::~opening()
{
    use_memory(false);
}

bool is_device(const void *p, size_t n)
{
    const auto at = reinterpret_cast<uintptr_t>(p);
    auto r = regions.upper_bound(at);
    if (r == regions.begin())
        return false;
    --r;
    return at - r->first <= r->second && n <= r->second - (at - r->first);
}

bool is_stream(const stand_in_stream *s)
{
    return is_open(s);
}

void queue_work(stand_in_stream *s, std::function<bool()> work)
{
    s->queued.push_back(std::move(work));
}

void release_streams()
{
    for (stand_in_stream *s : streams) {
        s->n_begun += s->queued.size();
        s->queued.clear();
        s->hangs = false;
    }
}

bool is_due(const char *call)
{
    static const bool is_meant = setting("TANDEM_STAND_IN_RANK", 0) == setting("RANK", 0);
    static const double due = setting("TANDEM_STAND_IN_FAIL", 0);
    static const char *only = getenv("TANDEM_STAND_IN_CALL");
    static double n_calls;
    if (!is_meant)
        return false;
    if (FILE *log = call_log())
        (void)fprintf(log, "%s\n", call);
    if (only && strcmp(only, call) != 0)
        return false;
    return ++n_calls == due;
}

void log_left(const char *what, size_t n)
{
    FILE *log = call_log();
    if (log && n > 0)
        (void)fprintf(log, "left: %zu %s\n", n, what);
}

} // namespace stand_in

const char *cudaGetErrorName(cudaError_t e)
{
    switch (e) {
    case cudaSuccess:
        return "cudaSuccess";
    case cudaErrorInvalidValue:
        return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation:
        return "cudaErrorMemoryAllocation";
    case cudaErrorInsufficientDriver:
        return "cudaErrorInsufficientDriver";
    case cudaErrorNoDevice:
        return "cudaErrorNoDevice";
    case cudaErrorInvalidDevice:
        return "cudaErrorInvalidDevice";
    case cudaErrorNotReady:
        return "cudaErrorNotReady";
    case cudaErrorIllegalAddress:
        return "cudaErrorIllegalAddress";
    default:
        return "cudaErrorLaunchFailure";
    }
}

const char *cudaGetErrorString(cudaError_t e)
{
    return e == cudaErrorInvalidValue ? "invalid argument" : "failure of the stand-in";
}

cudaError_t cudaGetLastError()
{
    const cudaError_t e = last_error;
    last_error = cudaSuccess;
    return is_due() ? cudaErrorLaunchFailure : e;
}

cudaError_t cudaDriverGetVersion(int *out)
{
    *out = setting("TANDEM_STAND_IN_DEVICES", 1) < 0 ? 0 : 13000;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *out)
{
    *out = 13000;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *n)
{
    const int wanted = static_cast<int>(setting("TANDEM_STAND_IN_DEVICES", 1));
    *n = 0;
    FAIL_IF(is_due() || wanted < 0, cudaErrorInsufficientDriver);
    FAIL_IF(wanted == 0, cudaErrorNoDevice);
    *n = wanted;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int index)
{
    int n = 0;
    FAIL_IF(cudaGetDeviceCount(&n) != cudaSuccess || index < 0 || index >= n,
            cudaErrorInvalidDevice);
    device = index;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp *p, int index)
{
    FAIL_IF(is_due() || index < 0, cudaErrorInvalidDevice);
    *p = {};
    (void)snprintf(p->name, sizeof p->name, "stand-in %d", index);
    p->uuid.bytes[0] = static_cast<char>(index + 1);
    const double capability = setting("TANDEM_STAND_IN_CAPABILITY", 9.0);
    p->major = static_cast<int>(capability);
    p->minor = static_cast<int>(capability * 10 + 0.5) % 10;
    p->totalGlobalMem = static_cast<size_t>(setting("TANDEM_STAND_IN_BYTES", 1e9));
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned)
{
    FAIL_IF(is_due(), cudaErrorMemoryAllocation);
    td_grid::around_launch = use_memory;
    td_grid::launch_fails = [](const char *) { return is_due("launch"); };
    td_grid::on_stream = before_launch;
    *out = new stand_in_stream();
    (*out)->device = device;
    streams.insert(*out);
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t s)
{
    FAIL_IF(!follows(s), cudaErrorInvalidValue);
    streams.erase(s);
    for (stand_in_event *e : events)
        if (e->stream == s)
            e->stream = nullptr;
    delete s;
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t s)
{
    FAIL_IF(!follows(s), cudaErrorInvalidValue);
    FAIL_IF(is_due(), cudaErrorLaunchFailure);
    if (s->hangs) {
        (void)fprintf(stderr,
                      "stand-in: cudaStreamSynchronize would wait for a lost rank for ever\n");
        abort();
    }
    return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t s)
{
    FAIL_IF(!follows(s), cudaErrorInvalidValue);
    FAIL_IF(is_due(), cudaErrorLaunchFailure);
    s->was_queried = !s->was_queried; /* the GPU is still busy the first time */
    return s->hangs || s->was_queried ? failed(cudaErrorNotReady) : cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned flags)
{
    FAIL_IF(!follows(s) || !events.count(e) || flags != 0, cudaErrorInvalidValue);
    FAIL_IF(is_due(), cudaErrorLaunchFailure);
    if (!e->stream)
        return cudaSuccess; /* an event that was never recorded does not wait */
    run_until(e->stream, e->position);
    s->hangs = s->hangs || e->stream->hangs;
    return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned)
{
    *out = nullptr;
    FAIL_IF(is_due(), cudaErrorMemoryAllocation);
    *out = new stand_in_event();
    events.insert(*out);
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s)
{
    FAIL_IF(!is_open(s) || !events.count(e), cudaErrorInvalidValue);
    FAIL_IF(is_due(), cudaErrorLaunchFailure);
    e->stream = s;
    e->position = s->n_begun + s->queued.size();
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t e)
{
    FAIL_IF(events.erase(e) == 0, cudaErrorInvalidValue);
    delete e;
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *n_free, size_t *n_total)
{
    FAIL_IF(is_due(), cudaErrorInvalidValue);
    *n_total = static_cast<size_t>(setting("TANDEM_STAND_IN_BYTES", 1e9));
    *n_free = *n_total - n_bytes;
    return cudaSuccess;
}

cudaError_t cudaMalloc(void **out, size_t n)
{
    *out = nullptr;
    FAIL_IF(n == 0, cudaErrorInvalidValue);
    const auto room = static_cast<size_t>(setting("TANDEM_STAND_IN_BYTES", 1e9));
    FAIL_IF(is_due() || n > room - n_bytes, cudaErrorMemoryAllocation);
    void *p = map_pages(whole_pages(n));
    FAIL_IF(p == MAP_FAILED, cudaErrorMemoryAllocation);
    memset(p, 0xff, n); /* memory of a GPU is not cleared */
    if (n_users == 0)
        (void)mprotect(p, whole_pages(n), PROT_NONE);
    regions[reinterpret_cast<uintptr_t>(p)] = n;
    n_bytes += n;
    *out = p;
    return cudaSuccess;
}

cudaError_t cudaFree(void *p)
{
    if (!p)
        return cudaSuccess;
    const auto r = regions.find(reinterpret_cast<uintptr_t>(p));
    FAIL_IF(r == regions.end(), cudaErrorInvalidValue);
    (void)munmap(p, whole_pages(r->second));
    n_bytes -= r->second;
    regions.erase(r);
    return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t n, cudaMemcpyKind kind,
                            cudaStream_t s)
{
    FAIL_IF(!follows(s), cudaErrorInvalidValue);
    FAIL_IF(!is_right(to, n, kind != cudaMemcpyDeviceToHost) ||
                !is_right(from, n, kind != cudaMemcpyHostToDevice),
            cudaErrorInvalidValue);
    FAIL_IF(is_due(), cudaErrorIllegalAddress);
    const opening is_open;
    if (n > 0)
        memcpy(to, from, n);
    return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *p, int value, size_t n, cudaStream_t s)
{
    FAIL_IF(!follows(s) || !is_right(p, n, true), cudaErrorInvalidValue);
    FAIL_IF(is_due(), cudaErrorIllegalAddress);
    const opening is_open;
    if (n > 0)
        memset(p, value, n);
    return cudaSuccess;
}
