/*
 * cuda_runtime.cpp -- the CUDA runtime on a machine without a GPU: see cuda_runtime.h
 */
#include "cuda_runtime.h"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <iterator>
#include <map>
#include <set>
#include <vector>

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
    bool hangs, was_queried, is_first;
    stand_in_graph *graph; /* that captures it, or NULL */
};

struct stand_in_graph {
    std::vector<std::function<bool()>> works;
    bool is_invalid;
};

struct stand_in_event {
    cudaStream_t stream; /* that it was last recorded on; NULL: none */
    size_t position;     /* how many were queued there before */
    bool is_lasting;     /* made before any memory: as long as the process */
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
set_of<stand_in_graph> &graphs = *new set_of<stand_in_graph>;
std::map<uintptr_t, size_t> &pinned = *new std::map<uintptr_t, size_t>; /* memory of the host */

enum class order { AT_ONCE, LATE, EARLY };

order order_wanted()
{
    static const char *text = getenv("TANDEM_STAND_IN_ORDER");
    return !text ? order::AT_ONCE : strcmp(text, "late") == 0 ? order::LATE : order::EARLY;
}

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

/* appends the size of a copy to the device to the file TANDEM_STAND_IN_COPIES */
void note_copy(size_t n, cudaMemcpyKind kind)
{
    static const char *path = getenv("TANDEM_STAND_IN_COPIES");
    static FILE *list = path ? fopen(path, "a") : nullptr;
    if (list && kind == cudaMemcpyHostToDevice) {
        fprintf(list, "%zu\n", n);
        fflush(list);
    }
}

/* appends the name of a kernel that is launched to the file TANDEM_STAND_IN_KERNELS */
void note_kernel(const char *name)
{
    static const char *path = getenv("TANDEM_STAND_IN_KERNELS");
    static FILE *list = path ? fopen(path, "a") : nullptr;
    if (list) {
        fprintf(list, "%s\n", name);
        fflush(list);
    }
}

struct end {
    ~end()
    {
        stand_in::log_left("allocations", regions.size());
        size_t n_events = 0;
        for (const stand_in_event *e : events)
            n_events += !e->is_lasting;
        stand_in::log_left("events", n_events);
        stand_in::log_left("graphs", graphs.size());
        stand_in::log_left("allocations of the host's memory", pinned.size());
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

void on_stream(const void *stream, std::function<void()> launch)
{
    const auto s = streams.find(static_cast<const stand_in_stream *>(stream));
    if (s == streams.end())
        return launch();
    if ((*s)->device != device) {
        (void)fprintf(stderr, "stand-in: GPU %d launches a kernel on a stream of GPU %d\n", device,
                      (*s)->device);
        abort();
    }
    stand_in::do_work(*s, [launch] {
        launch();
        return true;
    });
}

/* a call that a stream that is captured does not permit ends the capture */
bool spoils_capture()
{
    bool is_captured = false;
    for (stand_in_stream *s : streams)
        if (s->graph)
            s->graph->is_invalid = is_captured = true;
    return is_captured;
}

/* memory is freed when everything has run */
void run_all()
{
    if (order_wanted() == order::AT_ONCE)
        return;
    for (stand_in_stream *s : streams)
        run_queued(s);
}

bool is_pinned(const void *p, size_t n)
{
    const auto at = reinterpret_cast<uintptr_t>(p);
    const auto r = pinned.upper_bound(at);
    return r != pinned.begin() && at + n <= std::prev(r)->first + std::prev(r)->second;
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

void do_work(stand_in_stream *s, std::function<bool()> work)
{
    if (s->graph) {
        s->graph->works.push_back(std::move(work));
        return;
    }
    s->queued.push_back(std::move(work));
    if (order_wanted() == order::AT_ONCE || (order_wanted() == order::EARLY && !s->is_first))
        run_queued(s);
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
    case cudaErrorStreamCaptureUnsupported:
        return "cudaErrorStreamCaptureUnsupported";
    case cudaErrorStreamCaptureInvalidated:
        return "cudaErrorStreamCaptureInvalidated";
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
    td_grid::launch_fails = [](const char *name) {
        note_kernel(name);
        return is_due("launch");
    };
    td_grid::on_stream = on_stream;
    *out = new stand_in_stream();
    (*out)->device = device;
    (*out)->is_first = streams.empty();
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
    FAIL_IF(spoils_capture(), cudaErrorStreamCaptureUnsupported);
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
    FAIL_IF(spoils_capture(), cudaErrorStreamCaptureUnsupported);
    FAIL_IF(!follows(s), cudaErrorInvalidValue);
    FAIL_IF(is_due(), cudaErrorLaunchFailure);
    s->was_queried = !s->was_queried; /* the GPU is still busy the first time */
    return s->hangs || s->was_queried ? failed(cudaErrorNotReady) : cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned flags)
{
    FAIL_IF(!is_open(s) || !events.count(e) || flags != 0, cudaErrorInvalidValue);
    FAIL_IF(spoils_capture(), cudaErrorStreamCaptureUnsupported); /* CUDA may permit it */
    FAIL_IF(is_due(), cudaErrorLaunchFailure);
    if (!e->stream)
        return cudaSuccess; /* an event that was never recorded does not wait */
    stand_in_stream *other = e->stream;
    const size_t position = e->position;
    stand_in::do_work(s, [other, position] {
        if (!is_open(other))
            return true;
        run_until(other, position);
        return !other->hangs;
    });
    return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned)
{
    *out = nullptr;
    FAIL_IF(is_due(), cudaErrorMemoryAllocation);
    *out = new stand_in_event();
    (*out)->is_lasting = regions.empty() && n_bytes == 0;
    events.insert(*out);
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s)
{
    FAIL_IF(!is_open(s) || !events.count(e), cudaErrorInvalidValue);
    FAIL_IF(spoils_capture(), cudaErrorStreamCaptureUnsupported); /* CUDA may permit it */
    FAIL_IF(is_due(), cudaErrorLaunchFailure);
    e->stream = s;
    e->position = s->n_begun + s->queued.size();
    return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t e)
{
    FAIL_IF(!events.count(e), cudaErrorInvalidValue);
    FAIL_IF(spoils_capture(), cudaErrorStreamCaptureUnsupported);
    FAIL_IF(is_due(), cudaErrorLaunchFailure);
    if (e->stream)
        run_until(e->stream, e->position);
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t e)
{
    FAIL_IF(events.erase(e) == 0, cudaErrorInvalidValue);
    delete e;
    return cudaSuccess;
}

/* by this process and by others */
static size_t used()
{
    return n_bytes + static_cast<size_t>(setting("TANDEM_STAND_IN_OTHERS", 0));
}

cudaError_t cudaMemGetInfo(size_t *n_free, size_t *n_total)
{
    FAIL_IF(is_due(), cudaErrorInvalidValue);
    *n_total = static_cast<size_t>(setting("TANDEM_STAND_IN_BYTES", 1e9));
    *n_free = *n_total - used();
    return cudaSuccess;
}

cudaError_t cudaMalloc(void **out, size_t n)
{
    *out = nullptr;
    FAIL_IF(n == 0, cudaErrorInvalidValue);
    FAIL_IF(spoils_capture(), cudaErrorStreamCaptureUnsupported);
    const auto room = static_cast<size_t>(setting("TANDEM_STAND_IN_BYTES", 1e9));
    FAIL_IF(is_due() || n > room - used(), cudaErrorMemoryAllocation);
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
    FAIL_IF(spoils_capture(), cudaErrorStreamCaptureUnsupported);
    run_all();
    (void)munmap(p, whole_pages(r->second));
    n_bytes -= r->second;
    regions.erase(r);
    return cudaSuccess;
}

cudaError_t cudaHostAlloc(void **out, size_t n, unsigned flags)
{
    *out = nullptr;
    FAIL_IF(n == 0 || flags != cudaHostAllocDefault, cudaErrorInvalidValue);
    FAIL_IF(spoils_capture(), cudaErrorStreamCaptureUnsupported);
    FAIL_IF(is_due(), cudaErrorMemoryAllocation);
    void *p = map_pages(whole_pages(n));
    FAIL_IF(p == MAP_FAILED, cudaErrorMemoryAllocation);
    memset(p, 0xff, n);
    pinned[reinterpret_cast<uintptr_t>(p)] = n;
    *out = p;
    return cudaSuccess;
}

cudaError_t cudaFreeHost(void *p)
{
    const auto r = pinned.find(reinterpret_cast<uintptr_t>(p));
    FAIL_IF(r == pinned.end(), cudaErrorInvalidValue);
    FAIL_IF(spoils_capture(), cudaErrorStreamCaptureUnsupported);
    run_all();
    (void)munmap(p, whole_pages(r->second));
    pinned.erase(r);
    return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t n, cudaMemcpyKind kind,
                            cudaStream_t s)
{
    note_copy(n, kind);
    FAIL_IF(!is_open(s), cudaErrorInvalidValue);
    FAIL_IF(!is_right(to, n, kind != cudaMemcpyDeviceToHost) ||
                !is_right(from, n, kind != cudaMemcpyHostToDevice),
            cudaErrorInvalidValue);
    const bool waits = (kind == cudaMemcpyHostToDevice && !is_pinned(from, n)) ||
                       (kind == cudaMemcpyDeviceToHost && !is_pinned(to, n));
    FAIL_IF(waits && spoils_capture(), cudaErrorStreamCaptureUnsupported);
    FAIL_IF(is_due(), cudaErrorIllegalAddress);
    stand_in::do_work(s, [=] {
        const opening is_open;
        if (n > 0)
            memcpy(to, from, n);
        return true;
    });
    if (waits) /* a copy from or to memory that is not page-locked */
        run_queued(s);
    return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *p, int value, size_t n, cudaStream_t s)
{
    FAIL_IF(!is_open(s) || !is_right(p, n, true), cudaErrorInvalidValue);
    FAIL_IF(is_due(), cudaErrorIllegalAddress);
    stand_in::do_work(s, [=] {
        const opening is_open;
        if (n > 0)
            memset(p, value, n);
        return true;
    });
    return cudaSuccess;
}

/* --- graphs ----------------------------------------------------------------------------------- */

cudaError_t cudaStreamBeginCapture(cudaStream_t s, cudaStreamCaptureMode)
{
    FAIL_IF(!is_open(s) || s->graph, cudaErrorInvalidValue);
    FAIL_IF(is_due(), cudaErrorStreamCaptureUnsupported);
    s->graph = new stand_in_graph();
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *out)
{
    *out = nullptr;
    FAIL_IF(!is_open(s) || !s->graph, cudaErrorInvalidValue);
    stand_in_graph *g = s->graph;
    s->graph = nullptr;
    g->is_invalid = is_due() || g->is_invalid;
    if (g->is_invalid) {
        delete g;
        return failed(cudaErrorStreamCaptureInvalidated);
    }
    graphs.insert(g);
    *out = g;
    return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t g, unsigned long long flags)
{
    *out = nullptr;
    FAIL_IF(!graphs.count(g) || flags != 0, cudaErrorInvalidValue);
    FAIL_IF(is_due(), cudaErrorMemoryAllocation);
    *out = new stand_in_graph(*g);
    graphs.insert(*out);
    return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t g, cudaStream_t s)
{
    FAIL_IF(!is_open(s) || !graphs.count(g), cudaErrorInvalidValue);
    FAIL_IF(is_due(), cudaErrorLaunchFailure);
    for (const auto &work : g->works)
        stand_in::do_work(s, work);
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t g)
{
    FAIL_IF(graphs.erase(g) == 0, cudaErrorInvalidValue);
    delete g;
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t g)
{
    return cudaGraphDestroy(g);
}
