/*
 * machine.c -- reads the processor, memory and container limits from the system
 *
 * Container limits are read from control groups (version 2).
 */
#include "base/machine.h"

#include <fcntl.h>
#include <limits.h>
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/isa.h"
#include "base/topology.h"

#define PROC_BYTES 4096 /* enough for every /proc file read here */

/* the start of a small system file; false when it does not exist */
static bool read_proc(const char *path, char text[PROC_BYTES])
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t n = read(fd, text, PROC_BYTES - 1);
    close(fd);
    if (n < 0)
        return false;
    text[n] = '\0';
    return true;
}

int64_t td_since_start_ns(void)
{
    enum { FIELDS_BETWEEN = 20 }; /* after ")": state is field 3, the start time is field 22 */
    char text[PROC_BYTES];
    char *p = read_proc("/proc/self/stat", text) ? strrchr(text, ')') : NULL;
    for (int i = 0; p && i < FIELDS_BETWEEN; i++)
        p = strchr(p + 1, ' ');
    long ticks_s = sysconf(_SC_CLK_TCK);
    if (!p || ticks_s <= 0)
        return 0;
    int64_t started_ns = (int64_t)((double)strtoll(p + 1, NULL, 10) * 1e9 / (double)ticks_s);
    struct timespec t;
    TD_CHECK(clock_gettime(CLOCK_BOOTTIME, &t) == 0);
    int64_t since = (int64_t)t.tv_sec * 1000000000 + t.tv_nsec - started_ns;
    return since > 0 ? since : 0;
}

/* --- limits of containers -------------------------------------------------------------------- */

/*
 * Read `file` in this process's control group and in each enclosing group; call `seen` with each
 * text.  Inside a container the group's path is "/".
 */
static void each_group(const char *file, void (*seen)(const char *text, void *ctx), void *ctx)
{
    char groups[PROC_BYTES], path[PROC_BYTES + 64], text[PROC_BYTES];
    if (!read_proc("/proc/self/cgroup", groups))
        return;
    char *group = strncmp(groups, "0::", 3) == 0 ? groups : strstr(groups, "\n0::");
    if (!group)
        return;
    group = strchr(group, '/');
    if (!group)
        return;
    group[strcspn(group, "\n")] = '\0';
    for (;;) {
        snprintf(path, sizeof path, "/sys/fs/cgroup%s/%s", group, file);
        if (read_proc(path, text))
            seen(text, ctx);
        char *slash = strrchr(group, '/');
        if (!slash)
            return;
        *slash = '\0';
    }
}

/* "200000 100000": processor time in microseconds per period; "max 100000": unlimited */
static void lower_to_quota(const char *text, void *ctx)
{
    int64_t *count = ctx;
    long long quota, period;
    if (sscanf(text, "%lld %lld", &quota, &period) != 2 || quota <= 0 || period <= 0)
        return;
    int64_t allowed = (quota + period - 1) / period;
    if (allowed < *count)
        *count = allowed;
}

static void lower_to_limit(const char *text, void *ctx)
{
    int64_t *bytes = ctx;
    long long limit;
    if (sscanf(text, "%lld", &limit) == 1 && limit > 0 && limit < *bytes)
        *bytes = limit;
}

/* --- the processor --------------------------------------------------------------------------- */

static int64_t affinity_count(void)
{
    int64_t count = 0;
    for (size_t room = 1024; room <= 1 << 20 && count == 0;
         room *= 2) { /* the kernel may require a larger set */
        cpu_set_t *set = CPU_ALLOC(room);
        if (!set)
            break;
        if (sched_getaffinity(0, CPU_ALLOC_SIZE(room), set) == 0)
            count = CPU_COUNT_S(CPU_ALLOC_SIZE(room), set);
        CPU_FREE(set);
    }
    return count > 0 ? count : 1;
}

int td_cpu_count(void)
{
    int64_t count = affinity_count();
    each_group("cpu.max", lower_to_quota, &count);
    return (int)count;
}

/* processors, where the system does not tell which are of one core */
static int64_t affinity_cores(void)
{
    td_topology t;
    int64_t count = 0;
    if (td_topology_here(&t) == TD_OK) {
        count = t.is_here ? td_topology_count(&t, TD_LEVEL_CORE) : 0;
        td_topology_release(&t);
    } else {
        td_error_clear();
    }
    return count > 0 ? count : affinity_count();
}

int td_core_count(void)
{
    int64_t count = affinity_cores();
    each_group("cpu.max", lower_to_quota, &count);
    return (int)count;
}

int td_core_share(int n_sharing, int n_all)
{
    int64_t quota = INT_MAX;
    each_group("cpu.max", lower_to_quota, &quota);
    const int64_t own = affinity_cores() / n_sharing, of_quota = quota / n_all;
    const int64_t share = own < of_quota ? own : of_quota;
    return share > 0 ? (int)share : 1;
}

/* the answer of the topology; 0 if there is none */
static int64_t bytes_of(size_t (*bytes)(const td_topology *t))
{
    td_topology t;
    if (td_topology_here(&t) != TD_OK) {
        td_error_clear();
        return 0;
    }
    const int64_t all = t.is_here ? (int64_t)bytes(&t) : 0;
    td_topology_release(&t);
    return all;
}

int64_t td_cache_bytes(void)
{
    return bytes_of(td_topology_cache_bytes);
}

int64_t td_core_cache_bytes(void)
{
    return bytes_of(td_topology_core_cache_bytes);
}

static char cpu_name[128] = "unknown"; /* written once, by find_cpu_name */

static void find_cpu_name(void)
{
    char text[PROC_BYTES];
    const char *p = read_proc("/proc/cpuinfo", text) ? strstr(text, "model name") : NULL;
    p = p ? strchr(p, ':') : NULL;
    if (!p)
        return;
    p += 1 + strspn(p + 1, " \t");
    size_t n = strcspn(p, "\n");
    if (n > 0)
        snprintf(cpu_name, sizeof cpu_name, "%.*s", (int)n, p);
}

const char *td_cpu_name(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, find_cpu_name);
    return cpu_name;
}

int td_cpu_bf16_rate(void)
{
    const td_isa best = td_isa_best();
    return best >= TD_ISA_AMX_BF16      ? TD_BF16_RATE_MATRICES
           : best >= TD_ISA_AVX512_BF16 ? TD_BF16_RATE_PAIRS
                                        : 1;
}

/* --- memory ---------------------------------------------------------------------------------- */

int64_t td_memory_total_bytes(void)
{
    int64_t bytes = (int64_t)sysconf(_SC_PHYS_PAGES) * (int64_t)sysconf(_SC_PAGESIZE);
    each_group("memory.max", lower_to_limit, &bytes);
    return bytes;
}

/* "VmHWM:     1234 kB" in a file of /proc; 0 when it is not there */
static int64_t proc_bytes(const char *path, const char *name)
{
    char text[PROC_BYTES];
    const char *p = read_proc(path, text) ? strstr(text, name) : NULL;
    return p ? (int64_t)strtoll(p + strlen(name), NULL, 10) * 1024 : 0;
}

static int64_t status_bytes(const char *name)
{
    return proc_bytes("/proc/self/status", name);
}

int64_t td_memory_available_bytes(void)
{
    const int64_t total = td_memory_total_bytes();
    const int64_t unused = proc_bytes("/proc/meminfo", "\nMemAvailable:");
    const int64_t available = unused + td_memory_now_bytes();
    return unused > 0 && available < total ? available : total;
}

int64_t td_memory_peak_bytes(void)
{
    int64_t bytes = status_bytes("\nVmHWM:");
    if (bytes > 0)
        return bytes;
    struct rusage usage; /* fallback: includes the peak before exec */
    return getrusage(RUSAGE_SELF, &usage) == 0 ? (int64_t)usage.ru_maxrss * 1024 : 0;
}

int64_t td_memory_now_bytes(void)
{
    return status_bytes("\nVmRSS:");
}

void td_memory_trim(void)
{
#ifdef __GLIBC__
    malloc_trim(0);
#endif
}

/* --- pages ----------------------------------------------------------------------------------- */

/* the size of a block of `bytes` rounded up to pages; false on overflow */
static bool page_room(size_t bytes, size_t *room)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), padded;
    if (!td_add_size(bytes ? bytes : 1, page - 1, &padded))
        return false;
    *room = padded & ~(page - 1);
    return true;
}

/*
 * Huge pages are not requested: in a ResNet-50 training step of 2.9 GB they gained 0 to 3 % and
 * made the first step 2 s longer (docs/results/training.md).
 */
void *td_pages_alloc(size_t bytes)
{
    size_t room;
    char *p = MAP_FAILED;
    if (!td_alloc_refused() && page_room(bytes, &room))
        p = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) {
        (void)td_error(TD_ENOMEM, "cannot allocate %zu bytes of pages", bytes);
        return NULL;
    }
    td_alloc_note(1, (int64_t)room);
    return p;
}

void td_pages_free(void *p, size_t bytes)
{
    size_t room;
    if (!p)
        return;
    TD_CHECK(page_room(bytes, &room));
    TD_CHECK(munmap(p, room) == 0);
    td_alloc_note(-1, -(int64_t)room);
}
