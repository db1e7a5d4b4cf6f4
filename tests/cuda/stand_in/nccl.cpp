/*
 * nccl.cpp -- NCCL on a machine without a GPU: ranks are processes of one machine
 *
 * A communicator is a file that the unique id names, in the memory of all ranks, unlinked when all
 * have joined: for each pair of ranks a mailbox, through which numbers pass piece by piece.
 *
 *     all_gather, send, receive     transfers with other ranks, all at the same time
 *     all_reduce                    all ranks' numbers arrive; then they are added, in float32, in
 *                                   an order that is not that of the ranks: the last one first
 *
 * It checks arguments: device memory, counts, streams, communicators that exist, groups.  A transfer
 * with a rank whose process has ended or was stopped never finishes, as it may be with NCCL.
 */
#include "nccl.h"

#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cuda/host_grid.h"
#include "stand_in.h"

namespace
{

using stand_in::is_due;

constexpr int RANKS = 8, WAIT_S = 120;
constexpr size_t PIECE = 1 << 16;

/* from one rank to another; full: n bytes are in it */
struct mailbox {
    std::atomic<bool> full;
    size_t n;
    char bytes[PIECE];
};

struct segment {
    std::atomic<int> n_joined, n_left;
    std::atomic<int> process[RANKS];
    mailbox box[RANKS][RANKS]; /* [from][to] */
};

static_assert(std::atomic<int>::is_always_lock_free && std::atomic<bool>::is_always_lock_free,
              "they are in memory that processes share");

} // namespace

struct stand_in_comm {
    segment *shared;
    int rank, size;
    char name[NCCL_UNIQUE_ID_BYTES];
    bool is_finalized;
};

namespace
{

std::set<stand_in_comm *> &comms = *new std::set<stand_in_comm *>; /* that exist */
std::string &last_error = *new std::string;

struct end {
    ~end()
    {
        stand_in::log_left("communicators", comms.size());
    }
} at_end;

ncclResult_t failed(ncclResult_t r, const char *why)
{
    last_error = why;
    return r;
}

#define FAIL_IF(condition, result, why)                                                            \
    do {                                                                                           \
        if (condition)                                                                             \
            return failed(result, why);                                                            \
    } while (0)

/* --- transfers -------------------------------------------------------------------------------- */

struct transfer {
    int peer;
    bool sends;
    char *data;
    size_t n, at;
};

struct operation {
    stand_in_comm *comm;
    cudaStream_t stream;
    std::vector<transfer> transfers;
};

bool is_alive(int process)
{
    char path[64], state = 'Z';
    (void)snprintf(path, sizeof path, "/proc/%d/stat", process);
    FILE *f = fopen(path, "r");
    if (!f)
        return false;
    (void)!fscanf(f, "%*d (%*[^)]) %c", &state);
    (void)fclose(f);
    return state != 'Z' && state != 'T'; /* stopped */
}

/* moves a piece if the mailbox is ready for it */
bool move_piece(stand_in_comm *c, transfer &t)
{
    mailbox &m = t.sends ? c->shared->box[c->rank][t.peer] : c->shared->box[t.peer][c->rank];
    if (m.full == t.sends)
        return false;
    if (t.sends) {
        m.n = t.n - t.at < PIECE ? t.n - t.at : PIECE;
        memcpy(m.bytes, t.data + t.at, m.n);
    } else {
        if (m.n > t.n - t.at) {
            (void)fprintf(stderr, "stand-in: rank %d sends more than rank %d expects\n", t.peer,
                          c->rank);
            abort();
        }
        memcpy(t.data + t.at, m.bytes, m.n);
    }
    t.at += m.n;
    m.full = t.sends;
    return true;
}

/* false: a rank is lost */
bool run_transfers(stand_in_comm *c, std::vector<transfer> &all)
{
    using clock = std::chrono::steady_clock;
    const auto end = clock::now() + std::chrono::seconds(WAIT_S);
    const stand_in::opening is_open;
    for (;;) {
        bool is_done = true, has_moved = false;
        for (transfer &t : all) {
            has_moved = (t.at < t.n && move_piece(c, t)) || has_moved;
            is_done = is_done && t.at == t.n;
        }
        if (is_done)
            return true;
        if (has_moved)
            continue;
        for (const transfer &t : all)
            if (t.at < t.n && !is_alive(c->shared->process[t.peer]))
                return false;
        if (clock::now() > end)
            return false;
        (void)usleep(50);
    }
}

/* --- checks ----------------------------------------------------------------------------------- */

size_t bytes_of(ncclDataType_t type)
{
    return type == ncclFloat32 ? 4 : 2;
}

ncclResult_t check(ncclComm_t comm, cudaStream_t stream, const void *data, size_t n_bytes,
                   const char *call = __builtin_FUNCTION())
{
    FAIL_IF(!comms.count(comm), ncclInvalidArgument, "no such communicator");
    FAIL_IF(comm->is_finalized, ncclInvalidUsage, "the communicator was finalized");
    FAIL_IF(comm->shared->n_joined < comm->size, ncclInvalidUsage, "ranks are missing");
    FAIL_IF(!stand_in::is_stream(stream), ncclInvalidArgument, "no such stream");
    FAIL_IF(n_bytes == 0 || !stand_in::is_device(data, n_bytes), ncclInvalidArgument,
            "not memory of the device");
    FAIL_IF(is_due(call), ncclUnhandledCudaError, "failure of the stand-in");
    return ncclSuccess;
}

/* --- groups ----------------------------------------------------------------------------------- */

bool is_group;
std::shared_ptr<operation> group; /* what has been called in it */

/* with another rank: later, with the other transfers of the group */
ncclResult_t add_transfer(ncclComm_t comm, cudaStream_t stream, transfer t)
{
    if (const ncclResult_t r = check(comm, stream, t.data, t.n, t.sends ? "ncclSend" : "ncclRecv"))
        return r;
    FAIL_IF(!is_group, ncclInvalidUsage, "send and receive outside of a group may wait for ever");
    FAIL_IF(t.peer < 0 || t.peer >= comm->size || t.peer == comm->rank, ncclInvalidArgument,
            "no such rank");
    if (!group)
        group = std::make_shared<operation>(operation{ comm, stream, {} });
    FAIL_IF(group->comm != comm || group->stream != stream, ncclInvalidUsage,
            "a group of several streams");
    group->transfers.push_back(t);
    return ncclSuccess;
}

/* --- all ranks -------------------------------------------------------------------------------- */

/* every rank's n bytes to place r of `to`, which is memory of the device or of the host */
std::vector<transfer> gathering(const stand_in_comm *c, const void *from, char *to, size_t n)
{
    std::vector<transfer> all;
    for (int r = 0; r < c->size; r++) {
        if (r == c->rank)
            continue;
        all.push_back({ r, true, static_cast<char *>(const_cast<void *>(from)), n, 0 });
        all.push_back({ r, false, to + static_cast<size_t>(r) * n, n, 0 });
    }
    return all;
}

float to_float(const char *p, ncclDataType_t type)
{
    float x;
    if (type == ncclFloat16)
        return __half2float(*reinterpret_cast<const __half *>(p));
    if (type == ncclBfloat16)
        return __bfloat162float(*reinterpret_cast<const __nv_bfloat16 *>(p));
    memcpy(&x, p, sizeof x);
    return x;
}

void from_float(float x, char *p, ncclDataType_t type)
{
    if (type == ncclFloat16)
        *reinterpret_cast<__half *>(p) = __float2half_rn(x);
    else if (type == ncclBfloat16)
        *reinterpret_cast<__nv_bfloat16 *>(p) = __float2bfloat16_rn(x);
    else
        memcpy(p, &x, sizeof x);
}

/* to = the sum of all ranks' numbers, the last rank's first */
void add_all(const stand_in_comm *c, const std::vector<char> &all, char *to, size_t count,
             ncclDataType_t type)
{
    const size_t width = bytes_of(type);
    const stand_in::opening is_open;
    for (size_t i = 0; i < count; i++) {
        float sum = 0;
        for (int r = c->size - 1; r >= 0; r--)
            sum += to_float(&all[(static_cast<size_t>(r) * count + i) * width], type);
        from_float(sum, to + i * width, type);
    }
}

bool reduce(stand_in_comm *c, const void *from, char *to, size_t count, ncclDataType_t type)
{
    const size_t n = count * bytes_of(type);
    std::vector<char> all(n * static_cast<size_t>(c->size));
    std::vector<transfer> transfers = gathering(c, from, all.data(), n);
    if (!run_transfers(c, transfers))
        return false;
    {
        const stand_in::opening is_open;
        memcpy(&all[static_cast<size_t>(c->rank) * n], from, n);
    }
    add_all(c, all, to, count, type);
    return true;
}

/* --- communicators ---------------------------------------------------------------------------- */

segment *map_segment(const char *name)
{
    const int fd = open(name, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    if (fd < 0)
        return nullptr;
    void *p = MAP_FAILED;
    if (ftruncate(fd, sizeof(segment)) == 0)
        p = mmap(nullptr, sizeof(segment), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    (void)close(fd);
    return p == MAP_FAILED ? nullptr : static_cast<segment *>(p);
}

void release(stand_in_comm *c)
{
    comms.erase(c);
    if (c->shared->n_joined < c->size)
        (void)unlink(c->name);
    (void)munmap(c->shared, sizeof(segment));
    delete c;
}

} // namespace

/* --- the interface ---------------------------------------------------------------------------- */

#define EXPORT __attribute__((visibility("default")))

EXPORT ncclResult_t ncclGetVersion(int *version)
{
    *version = 22000;
    return ncclSuccess;
}

EXPORT const char *ncclGetErrorString(ncclResult_t result)
{
    switch (result) {
    case ncclUnhandledCudaError:
        return "unhandled cuda error";
    case ncclSystemError:
        return "unhandled system error";
    case ncclInvalidArgument:
        return "invalid argument";
    case ncclInvalidUsage:
        return "invalid usage";
    case ncclRemoteError:
        return "remote process exited or there was a network error";
    default:
        return "internal error";
    }
}

EXPORT const char *ncclGetLastError(ncclComm_t)
{
    return last_error.c_str();
}

EXPORT ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    static int n;
    FAIL_IF(is_due(), ncclSystemError, "failure of the stand-in");
    *id = {};
    const char *folder = getenv("TMPDIR");
    (void)snprintf(id->internal, sizeof id->internal, "%.90s/nccl-stand-in-%d-%d",
                   folder && strlen(folder) <= 90 ? folder : "/tmp", getpid(), ++n);
    return ncclSuccess;
}

EXPORT ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int n_ranks, ncclUniqueId id, int rank,
                                           ncclConfig_t *config)
{
    *comm = nullptr;
    FAIL_IF(is_due(), ncclSystemError, "failure of the stand-in");
    FAIL_IF(n_ranks < 1 || n_ranks > RANKS || rank < 0 || rank >= n_ranks, ncclInvalidArgument,
            "no such rank");
    FAIL_IF(!config || config->magic != 0xcafebeef || config->blocking != 0, ncclInvalidArgument,
            "the stand-in's communicators do not block");
    FAIL_IF(!memchr(id.internal, 0, sizeof id.internal) || !strstr(id.internal, "/nccl-stand-in-"),
            ncclInvalidArgument, "not an id");
    segment *shared = map_segment(id.internal);
    FAIL_IF(!shared, ncclSystemError, "no shared memory");
    *comm = new stand_in_comm{ shared, rank, n_ranks, {}, false };
    memcpy((*comm)->name, id.internal, sizeof id.internal);
    comms.insert(*comm);
    shared->process[rank] = getpid();
    if (++shared->n_joined == n_ranks)
        (void)unlink(id.internal);
    return ncclInProgress;
}

EXPORT ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *state)
{
    FAIL_IF(!comms.count(comm), ncclInvalidArgument, "no such communicator");
    FAIL_IF(is_due(), ncclSystemError, "failure of the stand-in");
    const int n = comm->is_finalized ? comm->shared->n_left.load() : comm->shared->n_joined.load();
    *state = n < comm->size ? ncclInProgress : ncclSuccess;
    return ncclSuccess;
}

EXPORT ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
    FAIL_IF(!comms.count(comm) || comm->is_finalized, ncclInvalidArgument, "no such communicator");
    FAIL_IF(is_due(), ncclSystemError, "failure of the stand-in");
    comm->is_finalized = true;
    comm->shared->n_left++;
    return ncclInProgress;
}

EXPORT ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    FAIL_IF(!comms.count(comm), ncclInvalidArgument, "no such communicator");
    FAIL_IF(!comm->is_finalized, ncclInvalidUsage, "the communicator was not finalized");
    release(comm);
    return ncclSuccess;
}

EXPORT ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    FAIL_IF(!comms.count(comm), ncclInvalidArgument, "no such communicator");
    stand_in::release_streams();
    release(comm);
    return ncclSuccess;
}

EXPORT ncclResult_t ncclGroupStart(void)
{
    FAIL_IF(is_group, ncclInvalidUsage, "a group in a group");
    FAIL_IF(is_due(), ncclSystemError, "failure of the stand-in");
    is_group = true;
    return ncclSuccess;
}

EXPORT ncclResult_t ncclGroupEnd(void)
{
    const std::shared_ptr<operation> o = std::move(group);
    FAIL_IF(!is_group, ncclInvalidUsage, "no group");
    is_group = false;
    group = nullptr;
    FAIL_IF(is_due(), ncclSystemError, "failure of the stand-in");
    if (o)
        stand_in::queue_work(o->stream, [o] { return run_transfers(o->comm, o->transfers); });
    return ncclSuccess;
}

EXPORT ncclResult_t ncclSend(const void *data, size_t count, ncclDataType_t type, int peer,
                             ncclComm_t comm, cudaStream_t stream)
{
    auto *bytes = static_cast<char *>(const_cast<void *>(data));
    return add_transfer(comm, stream, { peer, true, bytes, count * bytes_of(type), 0 });
}

EXPORT ncclResult_t ncclRecv(void *data, size_t count, ncclDataType_t type, int peer,
                             ncclComm_t comm, cudaStream_t stream)
{
    return add_transfer(comm, stream,
                        { peer, false, static_cast<char *>(data), count * bytes_of(type), 0 });
}

EXPORT ncclResult_t ncclAllGather(const void *send, void *receive, size_t count,
                                  ncclDataType_t type, ncclComm_t comm, cudaStream_t stream)
{
    const size_t n = count * bytes_of(type);
    auto *to = static_cast<char *>(receive);
    if (const ncclResult_t r = check(comm, stream, send, n))
        return r;
    FAIL_IF(!stand_in::is_device(receive, n * static_cast<size_t>(comm->size)), ncclInvalidArgument,
            "not memory of the device");
    FAIL_IF(send != to + static_cast<size_t>(comm->rank) * n, ncclInvalidArgument,
            "the stand-in gathers in place");
    FAIL_IF(is_group, ncclInvalidUsage, "in a group");
    stand_in::queue_work(stream, [=] {
        std::vector<transfer> all = gathering(comm, send, to, n);
        return run_transfers(comm, all);
    });
    return ncclSuccess;
}

EXPORT ncclResult_t ncclAllReduce(const void *send, void *receive, size_t count,
                                  ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                                  cudaStream_t stream)
{
    auto *to = static_cast<char *>(receive);
    if (const ncclResult_t r = check(comm, stream, send, count * bytes_of(type)))
        return r;
    FAIL_IF(!stand_in::is_device(receive, count * bytes_of(type)) || op != ncclSum,
            ncclInvalidArgument, "not memory of the device, or not a sum");
    FAIL_IF(is_group, ncclInvalidUsage, "in a group");
    stand_in::queue_work(stream, [=] { return reduce(comm, send, to, count, type); });
    return ncclSuccess;
}
