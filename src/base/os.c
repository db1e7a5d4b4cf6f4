/*
 * os.c -- Linux, behind plain functions
 *
 * Files are opened without blocking and looked at before they are read, so that a fifo or a device
 * named by mistake is an error and not a hang.  Limits of containers count: the processors and the
 * memory of a control group (version 2), not those of the machine around it.
 */
#include "base/os.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/text.h"

#define PROC_BYTES 4096 /* enough of any file of /proc that is read here */

/* --- time ------------------------------------------------------------------------------------ */

static int64_t read_clock(clockid_t clock)
{
    struct timespec t;
    TD_CHECK(clock_gettime(clock, &t) == 0);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int64_t td_now_ns(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

double td_wall_s(void)
{
    return (double)read_clock(CLOCK_REALTIME) * 1e-9;
}

/* the start of a small file of the system; false when there is none */
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
    int64_t since = read_clock(CLOCK_BOOTTIME) - started_ns;
    return since > 0 ? since : 0;
}

/* --- reading and writing files --------------------------------------------------------------- */

static const char *kind_of(mode_t mode)
{
    return S_ISDIR(mode)    ? "folder"
           : S_ISFIFO(mode) ? "pipe"
           : S_ISSOCK(mode) ? "socket"
                            : "device";
}

static td_status open_failed(const char *path)
{
    td_status st = errno == ENOENT || errno == ENOTDIR ? TD_ENOTFOUND : TD_EIO;
    return td_error_errno(st, "cannot open '%s'", path);
}

static td_status open_regular(const char *path, size_t max_bytes, int *fd, size_t *size_bytes)
{
    struct stat s;
    int opened = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (opened < 0)
        return open_failed(path);
    td_status st = TD_OK;
    if (fstat(opened, &s) != 0)
        st = td_error_errno(TD_EIO, "cannot look at '%s'", path);
    else if (!S_ISREG(s.st_mode))
        st = td_error(TD_EIO, "'%s' is a %s, wanted a file", path, kind_of(s.st_mode));
    else if ((uintmax_t)s.st_size > max_bytes)
        st = td_error(TD_ELIMIT, "'%s' has %jd bytes, at most %zu are read", path,
                      (intmax_t)s.st_size, max_bytes);
    if (st != TD_OK) {
        close(opened);
        return st;
    }
    *fd = opened;
    *size_bytes = (size_t)s.st_size;
    return TD_OK;
}

/* a file may grow while it is read, and those of /proc say they are empty: read to the end */
static td_status read_all(int fd, const char *path, size_t max_bytes, char **buf, size_t *cap,
                          size_t *n_bytes)
{
    size_t n = 0;
    for (;;) {
        if (n + 1 >= *cap) /* one byte more than the NUL, so that the end is seen without growing */
            TD_TRY(td_reserve(buf, cap, n + 2, 1));
        ssize_t got = read(fd, *buf + n, *cap - 1 - n);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return td_error_errno(TD_EIO, "cannot read '%s'", path);
        if (got == 0)
            break;
        n += (size_t)got;
        if (n > max_bytes)
            return td_error(TD_ELIMIT, "'%s' has more than %zu bytes", path, max_bytes);
    }
    (*buf)[n] = '\0';
    *n_bytes = n;
    return TD_OK;
}

td_status td_file_read_into(const char *path, size_t max_bytes, char **buf, size_t *cap,
                            size_t *n_bytes)
{
    int fd;
    size_t size_bytes;
    *n_bytes = 0;
    TD_TRY(open_regular(path, max_bytes, &fd, &size_bytes));
    td_status st = td_reserve(buf, cap, size_bytes + 2, 1);
    if (st == TD_OK)
        st = read_all(fd, path, max_bytes, buf, cap, n_bytes);
    close(fd);
    return st;
}

td_status td_file_read(const char *path, size_t max_bytes, char **out, size_t *n_bytes)
{
    int fd;
    size_t size_bytes, cap;
    *out = NULL;
    *n_bytes = 0;
    TD_TRY(open_regular(path, max_bytes, &fd, &size_bytes));
    cap = size_bytes + 2;
    char *buf = td_alloc(cap, 1);
    td_status st = buf ? read_all(fd, path, max_bytes, &buf, &cap, n_bytes) : TD_ENOMEM;
    close(fd);
    if (st == TD_OK)
        *out = buf;
    else
        td_free(buf);
    return st;
}

size_t td_file_head(const char *path, void *out, size_t max)
{
    struct stat s;
    size_t n = 0;
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC); /* a pipe must not hold us up */
    if (fd < 0)
        return 0;
    for (bool is_file = fstat(fd, &s) == 0 && S_ISREG(s.st_mode); is_file && n < max;) {
        ssize_t done = read(fd, (char *)out + n, max - n);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            break;
        n += (size_t)done;
    }
    close(fd);
    return n;
}

td_status td_file_write(const char *path, const void *bytes, size_t n_bytes)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0)
        return td_error_errno(TD_EIO, "cannot create '%s'", path);
    td_status st = TD_OK;
    for (const char *p = bytes; n_bytes > 0;) {
        ssize_t done = write(fd, p, n_bytes);
        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0) {
            st = td_error_errno(TD_EIO, "cannot write '%s'", path);
            break;
        }
        p += done;
        n_bytes -= (size_t)done;
    }
    if (close(fd) != 0 && st == TD_OK)
        st = td_error_errno(TD_EIO, "cannot write '%s'", path);
    return st;
}

int td_terminal_columns(void)
{
    struct winsize w;
    return isatty(STDOUT_FILENO) && ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) == 0 ? w.ws_col : 0;
}

/* --- paths and folders ----------------------------------------------------------------------- */

bool td_path_exists(const char *path)
{
    struct stat s;
    return stat(path, &s) == 0;
}

/* the folder of `path`, as the system knows it */
static bool folder_of(const char *path, struct stat *out)
{
    char folder[PATH_MAX];
    const char *slash = strrchr(path, '/');
    size_t n = slash ? (size_t)(slash - path) + 1 : 0;
    if (n >= sizeof folder)
        return false;
    memcpy(folder, path, n);
    folder[n] = '\0';
    return stat(n ? folder : ".", out) == 0;
}

bool td_path_is_same(const char *a, const char *b)
{
    struct stat x, y;
    bool has_a = stat(a, &x) == 0, has_b = stat(b, &y) == 0;
    if (strcmp(a, b) == 0)
        return true;
    if (has_a != has_b)
        return false;
    if (!has_a &&
        (strcmp(td_path_base(a), td_path_base(b)) != 0 || !folder_of(a, &x) || !folder_of(b, &y)))
        return false;
    return x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

bool td_path_is_folder(const char *path)
{
    struct stat s;
    return stat(path, &s) == 0 && S_ISDIR(s.st_mode);
}

bool td_path_is_file(const char *path)
{
    struct stat s;
    return stat(path, &s) == 0 && S_ISREG(s.st_mode);
}

static td_status make_one(const char *path)
{
    if (mkdir(path, 0777) == 0)
        return TD_OK;
    const int reason = errno; /* looking at the path has reasons of its own */
    if (td_path_is_folder(path))
        return TD_OK;
    if (reason == EEXIST)
        return td_error(TD_EIO, "'%s' is a file, wanted a folder", path);
    errno = reason;
    return td_error_errno(TD_EIO, "cannot create folder '%s'", path);
}

td_status td_make_new_folder(const char *path, bool *is_new)
{
    *is_new = mkdir(path, 0777) == 0;
    return *is_new || errno == EEXIST ? TD_OK
                                      : td_error_errno(TD_EIO, "cannot create folder '%s'", path);
}

td_status td_make_folder(const char *path)
{
    if (*path == '\0')
        return td_error(TD_EARG, "the name of a folder is empty");
    char *part = td_copy_text(path);
    if (!part)
        return TD_ENOMEM;
    td_status st = TD_OK;
    for (char *p = part + 1; st == TD_OK; p++) {
        char kept = *p;
        if (kept != '/' && kept != '\0')
            continue;
        *p = '\0';
        st = make_one(part);
        *p = kept;
        if (kept == '\0')
            break;
    }
    td_free(part);
    return st;
}

char *td_path_join(const char *a, const char *b)
{
    if (*a == '\0' || *b == '/')
        return td_copy_text(b);
    size_t n = strlen(a), m = strlen(b);
    bool has_slash = a[n - 1] == '/';
    char *path = td_alloc(n + m + 2, 1);
    if (!path)
        return NULL;
    memcpy(path, a, n);
    path[n] = '/';
    memcpy(path + n + !has_slash, b, m + 1);
    return path;
}

char *td_path_append(td_arena *a, const char *folder, const char *name)
{
    size_t n = strlen(folder), m = strlen(name);
    char *path = td_arena_alloc(a, n + m + 2, 1);
    if (!path)
        return NULL;
    memcpy(path, folder, n);
    path[n] = '/';
    memcpy(path + n + 1, name, m + 1);
    return path;
}

const char *td_path_base(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* A folder while it is read: all names in one text, told apart by their offsets. */
typedef struct {
    size_t offset;
    bool is_folder;
} found;

typedef struct {
    td_text names;
    found *items;
    size_t n, cap;
} finds;

static int by_name(const void *a, const void *b, void *names)
{
    const char *text = names;
    return strcmp(text + ((const found *)a)->offset, text + ((const found *)b)->offset);
}

static td_status read_entries(DIR *dir, const char *path, finds *f)
{
    for (;;) {
        errno = 0;
        const struct dirent *d = readdir(dir);
        if (!d && errno)
            return td_error_errno(TD_EIO, "cannot read folder '%s'", path);
        if (!d)
            return td_text_status(&f->names);
        if (strcmp(d->d_name, ".") == 0 || strcmp(d->d_name, "..") == 0)
            continue;
        bool is_folder = d->d_type == DT_DIR;
        struct stat s;
        if (d->d_type == DT_LNK || d->d_type == DT_UNKNOWN)
            is_folder = fstatat(dirfd(dir), d->d_name, &s, 0) == 0 && S_ISDIR(s.st_mode);
        TD_TRY(td_reserve(&f->items, &f->cap, f->n + 1, sizeof *f->items));
        f->items[f->n++] = (found){ .offset = f->names.len, .is_folder = is_folder };
        td_text_add_bytes(&f->names, d->d_name, strlen(d->d_name) + 1);
    }
}

/* one block for the pointers and the letters behind them */
static td_status make_listing(finds *f, td_listing *out)
{
    if (f->n == 0)
        return TD_OK;
    char **names = td_alloc(1, f->n * sizeof *names + f->names.len);
    bool *is_folder = names ? td_alloc(f->n, sizeof *is_folder) : NULL;
    if (!is_folder) {
        td_free(names);
        return TD_ENOMEM;
    }
    char *letters = (char *)(names + f->n);
    memcpy(letters, f->names.data, f->names.len);
    qsort_r(f->items, f->n, sizeof *f->items, by_name, letters);
    for (size_t i = 0; i < f->n; i++) {
        names[i] = letters + f->items[i].offset;
        is_folder[i] = f->items[i].is_folder;
    }
    *out = (td_listing){ .names = names, .is_folder = is_folder, .n = f->n };
    return TD_OK;
}

td_status td_list_folder(const char *path, td_listing *out)
{
    *out = (td_listing){ 0 };
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 && errno == ENOTDIR && td_path_exists(path))
        return td_error(TD_EIO, "'%s' is no folder", path);
    if (fd < 0)
        return open_failed(path);
    DIR *dir = fdopendir(fd);
    if (!dir) {
        td_status failed = td_error_errno(TD_EIO, "cannot open folder '%s'", path);
        close(fd);
        return failed;
    }
    finds f = { 0 };
    td_status st = read_entries(dir, path, &f);
    closedir(dir);
    if (st == TD_OK)
        st = make_listing(&f, out);
    td_text_release(&f.names);
    td_free(f.items);
    return st;
}

void td_listing_release(td_listing *l)
{
    td_free(l->names);
    td_free(l->is_folder);
    *l = (td_listing){ 0 };
}

/* --- the machine ----------------------------------------------------------------------------- */

/*
 * Read `file` in this process's control group and in every group around it; `seen` is called with
 * each text.  Within a container's own view the group's path is "/".
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

/* "200000 100000": so many microseconds of processor time in each period; "max 100000": any */
static void see_cpu_quota(const char *text, void *ctx)
{
    int64_t *count = ctx;
    long long quota, period;
    if (sscanf(text, "%lld %lld", &quota, &period) != 2 || quota <= 0 || period <= 0)
        return;
    int64_t allowed = (quota + period - 1) / period;
    if (allowed < *count)
        *count = allowed;
}

static void see_memory_limit(const char *text, void *ctx)
{
    int64_t *bytes = ctx;
    long long limit;
    if (sscanf(text, "%lld", &limit) == 1 && limit > 0 && limit < *bytes)
        *bytes = limit;
}

static int64_t affinity_count(void)
{
    int64_t count = 0;
    for (size_t room = 1024; room <= 1 << 20 && count == 0;
         room *= 2) { /* the kernel may want more */
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
    each_group("cpu.max", see_cpu_quota, &count);
    return (int)count;
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

const char *td_cpu_isa(void)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    bool has_avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    if (has_avx512)
        return __builtin_cpu_supports("avx512bf16") ? "avx512_bf16" : "avx512";
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return "avx2";
#endif
    return "generic";
}

int64_t td_memory_total_bytes(void)
{
    int64_t bytes = (int64_t)sysconf(_SC_PHYS_PAGES) * (int64_t)sysconf(_SC_PAGESIZE);
    each_group("memory.max", see_memory_limit, &bytes);
    return bytes;
}

/* "VmHWM:     1234 kB" of /proc/self/status; 0 when it is not there */
static int64_t status_bytes(const char *name)
{
    char text[PROC_BYTES];
    const char *p = read_proc("/proc/self/status", text) ? strstr(text, name) : NULL;
    return p ? (int64_t)strtoll(p + strlen(name), NULL, 10) * 1024 : 0;
}

int64_t td_memory_peak_bytes(void)
{
    int64_t bytes = status_bytes("\nVmHWM:");
    if (bytes > 0)
        return bytes;
    struct rusage usage; /* as high as an earlier program of this process was: only when need be */
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

/* what a block of `bytes` takes, in whole pages; false on overflow */
static bool page_room(size_t bytes, size_t *room)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), padded;
    if (!td_add_size(bytes ? bytes : 1, page - 1, &padded))
        return false;
    *room = padded & ~(page - 1);
    return true;
}

/*
 * Huge pages are not asked for: in a ResNet-50 training step of 2.9 GB they gained 0 to 3 % and
 * made the first step 2 s longer (docs/results.md, first step).
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

void td_standard_files_open(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        if (fcntl(fd, F_GETFD) >= 0 || errno != EBADF)
            continue;
        /* the lowest free number is `fd`; the root folder where there is no /dev */
        const int mode = fd == STDERR_FILENO ? O_WRONLY : O_RDONLY;
        if (open("/dev/null", mode) < 0 && open("/", O_RDONLY | O_DIRECTORY) < 0)
            return;
    }
}

/* --- signals --------------------------------------------------------------------------------- */

static atomic_int caught; /* lock-free, so a handler may touch it */

static void on_signal(int sig)
{
    int none = 0;
    if (!atomic_compare_exchange_strong(&caught, &none, sig) && sig != SIGHUP)
        _exit(128 + sig);
}

static void ignore(int sig)
{
    struct sigaction action = { .sa_handler = SIG_IGN };
    sigemptyset(&action.sa_mask);
    sigaction(sig, &action, NULL);
}

void td_signals_catch(void)
{
    struct sigaction catch = { .sa_handler = on_signal, .sa_flags = SA_RESTART };
    sigemptyset(&catch.sa_mask);
    sigaction(SIGINT, &catch, NULL);
    sigaction(SIGTERM, &catch, NULL);
    sigaction(SIGUSR1, &catch, NULL);
    struct sigaction hangup;
    if (sigaction(SIGHUP, NULL, &hangup) == 0 && hangup.sa_handler != SIG_IGN) /* nohup */
        sigaction(SIGHUP, &catch, NULL);
    ignore(SIGPIPE);
    td_signals_ignore_file_limit();
}

void td_signals_ignore_file_limit(void)
{
    ignore(SIGXFSZ);
}

int td_signal_caught(void)
{
    return atomic_load(&caught);
}
