/*
 * host_grid.cpp -- runs grids of host_grid.h: blocks in turn, the threads of a block as fibers
 *
 * A fiber runs one thread of the block after the other until a thread must wait; then the next
 * fiber takes over the threads that have not started.  So a kernel without barriers needs one
 * fiber, and one with __syncthreads() as many as a block has threads.  Fibers are kept for later
 * blocks and launches.
 */
#include "cuda/host_grid.h"

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <random>
#include <sys/mman.h>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#define TD_GRID_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define TD_GRID_ASAN 1
#endif
#endif

#ifdef TD_GRID_ASAN
#include <sanitizer/common_interface_defs.h>
#endif
#ifndef __x86_64__
#define TD_GRID_UCONTEXT 1
#endif
#ifdef TD_GRID_UCONTEXT
#include <ucontext.h>
#endif

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

using td_grid::barrier;
using td_grid::site;

namespace
{
enum class state { unstarted, running, waiting_for_block, waiting_for_warp, released, finished };

struct fiber {
#ifdef TD_GRID_UCONTEXT
    ucontext_t context;
#else
    void *stack_pointer = nullptr;
#endif
    const void *stack = nullptr; /* lowest byte */
    size_t stack_size = 0;
    void *fake_stack = nullptr; /* AddressSanitizer's */
};

/* a thread of the block that runs, and what it waits for */
struct member {
    uint3 index;
    unsigned id; /* in the block; lane id % 32 of warp id / 32 */
    state now = state::unstarted;
    fiber *runs_on = nullptr;
    barrier kind{};
    site where;
    unsigned mask = 0;
    int predicate = 0, source = 0;
    uint64_t bits = 0; /* brought to a shuffle; after it, the result */
};

struct warp {
    unsigned live, waiting; /* a bit for each lane */
};

struct launch_state {
    const char *name;
    site where;
    void (*body)(const void *context);
    const void *context;
    void *shared;
    size_t shared_bytes;

    std::vector<member> members;
    std::vector<unsigned> order; /* in which members start and go on */
    warp warps[32];
    size_t n_started, n_live, n_at_barrier;
    size_t n_passed; /* of `order`, in this pass */
    td_grid::votes votes;
};

constexpr size_t GUARD_BYTES = 64 << 10;
#ifdef TD_GRID_ASAN
constexpr size_t STACK_BYTES = 256 << 10; /* its frames are larger */
#else
constexpr size_t STACK_BYTES = 64 << 10;
#endif
/* Stacks begin at different offsets: otherwise those of all threads of a block, which take turns,
   would share one set of each cache. */
constexpr size_t N_OFFSETS = 51, OFFSET_BYTES = 320;
constexpr size_t MAX_SHARED_BYTES = 48 << 10;
constexpr unsigned MAX_THREADS = 1024;

std::mutex one_launch;
launch_state run_now;
fiber scheduler;
fiber *fiber_now, *fiber_before;
member *member_now;

/* fibers without a thread; they live until the process ends or unloads the library */
struct fiber_pool {
    std::vector<fiber *> idle;

    ~fiber_pool()
    {
        for (fiber *f : idle) {
            munmap(static_cast<char *>(const_cast<void *>(f->stack)) - GUARD_BYTES,
                   GUARD_BYTES + f->stack_size);
            delete f;
        }
    }
} pool;

thread_local bool in_launch;
thread_local bool has_error;
thread_local char error_text[200];

const char *const barrier_names[] = {
    "__syncthreads",   "__syncthreads_or", "__syncthreads_and", "__syncthreads_count",
    "__syncwarp",      "__shfl_sync",      "__shfl_up_sync",    "__shfl_down_sync",
    "__shfl_xor_sync", "__ballot_sync",    "__any_sync",        "__all_sync"
};

const char *name_of(barrier kind)
{
    return barrier_names[static_cast<int>(kind)];
}

/* ends the program with one sentence that begins with the launch and the block */
[[noreturn]] __attribute__((format(printf, 1, 2))) void die(const char *format, ...)
{
    std::fprintf(stderr, "host_grid: kernel %s launched at %s:%d, block (%u,%u,%u): ", run_now.name,
                 run_now.where.file, run_now.where.line, blockIdx.x, blockIdx.y, blockIdx.z);
    va_list args;
    va_start(args, format);
    std::vfprintf(stderr, format, args);
    va_end(args);
    std::fputc('\n', stderr);
    std::abort();
}

/* --- fibers --------------------------------------------------------------------------------- */

[[noreturn]] void run_members();

#ifdef TD_GRID_UCONTEXT
void prepare(fiber *f)
{
    getcontext(&f->context);
    f->context.uc_stack.ss_sp = const_cast<void *>(f->stack);
    f->context.uc_stack.ss_size = f->stack_size;
    makecontext(&f->context, run_members, 0);
}

void jump(fiber *from, fiber *to)
{
    swapcontext(&from->context, &to->context);
}
#else
/* saves the registers that a call preserves and the stack pointer in *SAVE, and continues where
 * LOAD was saved */
extern "C" void td_grid_jump(void **save, void *load);
asm(R"(
.text
.hidden td_grid_jump
.globl td_grid_jump
.type td_grid_jump, @function
td_grid_jump:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
.size td_grid_jump, . - td_grid_jump
)");

void prepare(fiber *f)
{
    static size_t n_prepared;
    char *top = static_cast<char *>(const_cast<void *>(f->stack)) + f->stack_size;
    top -= n_prepared++ % N_OFFSETS * OFFSET_BYTES;
    void **slot =
        reinterpret_cast<void **>(top) - 8; /* six registers, where to return to, alignment */
    for (int i = 0; i < 8; i++)
        slot[i] = nullptr;
    slot[6] = reinterpret_cast<void *>(run_members);
    f->stack_pointer = slot;
}

void jump(fiber *from, fiber *to)
{
    td_grid_jump(&from->stack_pointer, to->stack_pointer);
}
#endif

/* AddressSanitizer learns of the scheduler's stack on arrival from it, since any host thread may
 * launch */
void after_jump(fiber *here)
{
#ifdef TD_GRID_ASAN
    if (fiber_before == &scheduler)
        __sanitizer_finish_switch_fiber(here->fake_stack, &scheduler.stack, &scheduler.stack_size);
    else
        __sanitizer_finish_switch_fiber(here->fake_stack, nullptr, nullptr);
#else
    (void)here;
#endif
}

void change(fiber *from, fiber *to)
{
#ifdef TD_GRID_ASAN
    __sanitizer_start_switch_fiber(&from->fake_stack, to->stack, to->stack_size);
#endif
    fiber_before = from;
    fiber_now = to;
    jump(from, to);
    after_jump(from);
}

fiber *make_fiber()
{
    const size_t size = STACK_BYTES + N_OFFSETS / 16 * (16 * OFFSET_BYTES); /* whole pages */
    void *base = mmap(nullptr, GUARD_BYTES + size, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED || mprotect(base, GUARD_BYTES, PROT_NONE) != 0)
        die("there is no memory for the stack of a thread");
    fiber *f = new fiber;
    f->stack = static_cast<char *>(base) + GUARD_BYTES; /* an overflow is a fault below */
    f->stack_size = size;
    prepare(f);
    return f;
}

fiber *take_idle()
{
    if (pool.idle.empty())
        return make_fiber();
    fiber *f = pool.idle.back();
    pool.idle.pop_back();
    return f;
}

void enter(member *m)
{
    member_now = m;
    threadIdx = m->index;
    m->now = state::running;
}

/* the fiber whose turn it is: threads start first; then in each pass those go on that are released.
 * The scheduler's at the end of a pass.  Fibers change to the next by themselves, which takes half of
 * the jumps, and the processor predicts where calls return to, as all fibers are in the same call. */
fiber *next_fiber()
{
    launch_state &r = run_now;
    if (r.n_started < r.members.size())
        return take_idle();
    while (r.n_passed < r.order.size()) {
        const member &m = r.members[r.order[r.n_passed++]];
        if (m.now == state::released)
            return m.runs_on;
    }
    return &scheduler;
}

/* --- barriers ------------------------------------------------------------------------------- */

bool is_same_place(const site &a, const site &b)
{
    return a.line == b.line && (a.file == b.file || std::strcmp(a.file, b.file) == 0);
}

/* lets the block go on if all of its threads that have not finished wait at the same barrier */
void try_release_block()
{
    launch_state &r = run_now;
    if (r.n_live == 0 || r.n_at_barrier != r.n_live)
        return;
    const member *first = nullptr;
    td_grid::votes votes{ 0, 0 };
    for (const member &m : r.members) {
        if (m.now != state::waiting_for_block)
            continue;
        if (!first)
            first = &m;
        if (m.kind != first->kind || !is_same_place(m.where, first->where))
            return;
        votes.n_true += m.predicate != 0;
        votes.n_threads++;
    }
    r.votes = votes;
    r.n_at_barrier = 0;
    for (member &m : r.members)
        if (m.now == state::waiting_for_block)
            m.now = state::released;
}

bool is_shuffle(barrier kind)
{
    return kind >= barrier::shfl && kind <= barrier::shfl_xor;
}

/* lets the lanes of MASK that have not finished go on if all of them wait in KIND with that mask */
void try_release_lanes(unsigned w, unsigned mask, barrier kind)
{
    warp &own = run_now.warps[w];
    member *lanes = &run_now.members[w * 32];
    unsigned present = mask & own.live, votes = 0;
    if (present == 0 || (own.waiting & present) != present)
        return;
    uint64_t brought[32];
    for (int i = 0; i < 32; i++) {
        brought[i] = UINT64_MAX;
        if (!(present >> i & 1))
            continue;
        if (lanes[i].mask != mask || lanes[i].kind != kind)
            return;
        brought[i] = lanes[i].bits;
        votes |= unsigned(lanes[i].predicate != 0) << i;
    }
    for (int i = 0; i < 32; i++)
        if (present >> i & 1) {
            lanes[i].bits = is_shuffle(kind) ? brought[lanes[i].source] : votes;
            lanes[i].now = state::released;
        }
    own.waiting &= ~present;
}

void finish(member *m)
{
    launch_state &r = run_now;
    warp &own = r.warps[m->id / 32];
    m->now = state::finished;
    own.live &= ~(1u << m->id % 32);
    r.n_live--;
    try_release_block();
    for (unsigned lane = 0; lane < 32 && own.waiting; lane++)
        if (own.waiting >> lane & 1) {
            const member &other = r.members[m->id / 32 * 32 + lane];
            try_release_lanes(m->id / 32, other.mask, other.kind);
        }
}

/* gives the processor to other threads until this one is released; the last to arrive just goes on
 */
void wait_for_release(member *m)
{
    if (m->now != state::released)
        change(fiber_now, next_fiber());
    enter(m);
}

/* what each fiber does */
void run_members()
{
    fiber *self = fiber_now;
    after_jump(self);
    for (;;) {
        while (run_now.n_started < run_now.members.size()) {
            member *m = &run_now.members[run_now.order[run_now.n_started++]];
            m->runs_on = self;
            enter(m);
            run_now.body(run_now.context);
            finish(m);
        }
        pool.idle.push_back(self);
        change(self, next_fiber());
    }
}

/* --- divergence ------------------------------------------------------------------------------- */

bool is_waiting(const member &m)
{
    return m.now == state::waiting_for_block || m.now == state::waiting_for_warp;
}

/* a thread for which A waits and which waits for something else */
const member *find_conflict(const member &a)
{
    for (const member &b : run_now.members) {
        if (!is_waiting(b))
            continue;
        if (a.now == state::waiting_for_warp) {
            bool is_wanted = b.id / 32 == a.id / 32 && (a.mask >> b.id % 32 & 1);
            if (is_wanted && (b.now != a.now || b.kind != a.kind || b.mask != a.mask))
                return &b;
        } else if (b.now != a.now || b.kind != a.kind || !is_same_place(a.where, b.where)) {
            return &b;
        }
    }
    return nullptr;
}

void describe(const member &m, char *out, size_t size)
{
    char mask[32] = "";
    if (m.now == state::waiting_for_warp)
        std::snprintf(mask, sizeof mask, " with mask 0x%08x", m.mask);
    std::snprintf(out, size, "thread (%u,%u,%u) waits in %s()%s at %s:%d", m.index.x, m.index.y,
                  m.index.z, name_of(m.kind), mask, m.where.file, m.where.line);
}

[[noreturn]] void die_of_divergence()
{
    const member *a = nullptr, *b = nullptr;
    for (state kind : { state::waiting_for_warp, state::waiting_for_block })
        for (const member &m : run_now.members)
            if (!b && m.now == kind) {
                a = &m;
                b = find_conflict(m);
            }
    char text_a[500] = "no thread waits", text_b[500] = "";
    if (a)
        describe(*a, text_a, sizeof text_a);
    if (b)
        describe(*b, text_b, sizeof text_b);
    die("%s and %s, so that neither can go on", text_a, text_b);
}

/* --- order ------------------------------------------------------------------------------------ */

/* the order of blocks and threads, from TANDEM_GRID_ORDER */
struct run_order {
    enum { forward, reverse, random } kind = forward;
    std::mt19937_64 numbers;

    run_order()
    {
        const char *text = std::getenv("TANDEM_GRID_ORDER");
        unsigned long long seed;
        char rest;
        if (!text || !*text)
            return;
        if (std::strcmp(text, "reverse") == 0) {
            kind = reverse;
        } else if (std::sscanf(text, "random:%llu%c", &seed, &rest) == 1) {
            kind = random;
            numbers.seed(seed);
        } else {
            die("TANDEM_GRID_ORDER is '%s', but should be 'reverse' or 'random:SEED'", text);
        }
    }

    /* fills OUT with a permutation */
    template <typename T> void arrange(std::vector<T> &out)
    {
        for (size_t i = 0; i < out.size(); i++)
            out[i] = T(kind == reverse ? out.size() - 1 - i : i);
        for (size_t i = out.size(); kind == random && i > 1; i--)
            std::swap(out[i - 1], out[numbers() % i]);
    }
};

/* --- launch ----------------------------------------------------------------------------------- */

__attribute__((format(printf, 2, 3))) void refuse(const char *name, const char *format, ...)
{
    if (has_error)
        return;
    has_error = true;
    int n = std::snprintf(error_text, sizeof error_text, "kernel %.80s: ", name);
    va_list args;
    va_start(args, format);
    std::vsnprintf(error_text + n, sizeof error_text - size_t(n), format, args);
    va_end(args);
}

bool is_permitted(const char *name, dim3 grid, dim3 block, size_t shared_bytes)
{
    uint64_t n_threads = uint64_t(block.x) * block.y;
    if (block.x > MAX_THREADS || block.y > MAX_THREADS || block.z > 64 || n_threads == 0 ||
        block.z == 0 || n_threads * block.z > MAX_THREADS)
        refuse(name, "a block of %u x %u x %u threads, but CUDA permits 1 to 1024, at most 64 in z",
               block.x, block.y, block.z);
    else if (grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.x > INT32_MAX || grid.y > 65535 ||
             grid.z > 65535)
        refuse(name,
               "a grid of %u x %u x %u blocks, but CUDA permits 1 to 2147483647 x 65535 x 65535",
               grid.x, grid.y, grid.z);
    else if (shared_bytes > MAX_SHARED_BYTES)
        refuse(name, "%zu bytes of shared memory, but CUDA permits %zu", shared_bytes,
               MAX_SHARED_BYTES);
    else
        return true;
    return false;
}

void set_up_block(uint64_t number)
{
    launch_state &r = run_now;
    blockIdx.x = unsigned(number % gridDim.x);
    blockIdx.y = unsigned(number / gridDim.x % gridDim.y);
    blockIdx.z = unsigned(number / gridDim.x / gridDim.y);
    if (r.shared_bytes > 0)
        std::memset(r.shared, 0xff, r.shared_bytes); /* NaNs: what a kernel reads, it has written */
    r.n_started = r.n_at_barrier = r.n_passed = 0;
    r.n_live = r.members.size();
    for (unsigned i = 0; i < 32; i++)
        r.warps[i] = { 0, 0 };
    for (unsigned i = 0; i < r.members.size(); i++) {
        member &m = r.members[i];
        m.id = i;
        m.now = state::unstarted;
        m.index = { i % blockDim.x, i / blockDim.x % blockDim.y, i / blockDim.x / blockDim.y };
        r.warps[i / 32].live |= 1u << i % 32;
    }
}

void run_block()
{
    launch_state &r = run_now;
    change(&scheduler, next_fiber());
    while (r.n_live > 0) {
        r.n_passed = 0;
        fiber *next = next_fiber();
        if (next == &scheduler)
            die_of_divergence();
        change(&scheduler, next);
    }
}

void run_grid(size_t n_threads)
{
    run_order order;
    run_now.members.resize(n_threads);
    run_now.order.resize(n_threads);
    order.arrange(run_now.order);
    uint64_t n_blocks = uint64_t(gridDim.x) * gridDim.y * gridDim.z;
    if (order.kind != run_order::random) {
        for (uint64_t i = 0; i < n_blocks; i++) {
            set_up_block(order.kind == run_order::reverse ? n_blocks - 1 - i : i);
            run_block();
        }
        return;
    }
    std::vector<uint64_t> blocks(n_blocks);
    order.arrange(blocks);
    for (uint64_t block : blocks) {
        order.arrange(run_now.order);
        set_up_block(block);
        run_block();
    }
}
} // namespace

bool td_grid::permits(const char *name, dim3 grid, dim3 block, size_t shared_bytes)
{
    if (in_launch)
        die("thread (%u,%u,%u) launches kernel %s", threadIdx.x, threadIdx.y, threadIdx.z, name);
    if (launch_fails && launch_fails(name)) {
        refuse(name, "failure of the stand-in");
        return false;
    }
    return is_permitted(name, grid, block, shared_bytes);
}

void td_grid::run(const char *name, site where, dim3 grid, dim3 block, size_t shared_bytes,
                  void (*body)(const void *context), const void *context)
{
    std::lock_guard<std::mutex> lock(one_launch);
    /* exactly as large as asked for, so that AddressSanitizer sees what is outside */
    std::vector<unsigned char> shared(shared_bytes);
    in_launch = true;
    gridDim = grid;
    blockDim = block;
    blockIdx = { 0, 0, 0 };
    run_now.name = name;
    run_now.where = where;
    run_now.body = body;
    run_now.context = context;
    run_now.shared = shared.data();
    run_now.shared_bytes = shared_bytes;
    run_grid(size_t(block.x) * block.y * block.z);
    in_launch = false;
}

void *td_grid::dynamic_shared()
{
    return run_now.shared;
}

td_grid::votes td_grid::sync_block(barrier kind, int predicate, site where)
{
    member *m = member_now;
    m->kind = kind;
    m->where = where;
    m->predicate = predicate;
    m->now = state::waiting_for_block;
    run_now.n_at_barrier++;
    try_release_block();
    wait_for_release(m);
    return run_now.votes;
}

uint64_t td_grid::shuffle_warp(barrier kind, unsigned mask, uint64_t bits, int source, site where)
{
    member *m = member_now;
    unsigned bit = 1u << m->id % 32;
    m->kind = kind;
    m->where = where;
    m->mask = mask;
    m->bits = bits;
    m->source = source;
    m->now = state::waiting_for_warp;
    if (!(mask & bit)) {
        char text[500];
        describe(*m, text, sizeof text);
        die("%s, which does not contain its lane %u", text, m->id % 32);
    }
    run_now.warps[m->id / 32].waiting |= bit;
    try_release_lanes(m->id / 32, mask, kind);
    wait_for_release(m);
    return m->bits;
}

unsigned td_grid::vote_warp(barrier kind, unsigned mask, int predicate, site where)
{
    member_now->predicate = predicate;
    return unsigned(shuffle_warp(kind, mask, 0, 0, where));
}

int td_grid::shuffle_source(barrier kind, unsigned arg, int width, site where)
{
    if (width < 1 || width > 32 || (width & (width - 1)))
        die("thread (%u,%u,%u) gives %s() at %s:%d the width %d, which is none of 1, 2, 4, 8, 16, "
            "32",
            threadIdx.x, threadIdx.y, threadIdx.z, name_of(kind), where.file, where.line, width);
    unsigned lane = member_now->id % 32, n = unsigned(width), first = lane & ~(n - 1), from = lane;
    if (kind == barrier::shfl)
        from = first + (arg & (n - 1));
    else if (kind == barrier::shfl_up && arg <= lane - first)
        from = lane - arg;
    else if (kind == barrier::shfl_down && arg < first + n - lane)
        from = lane + arg;
    else if (kind == barrier::shfl_xor && (lane ^ arg) < first + n)
        from = lane ^ arg;
    return int(from);
}

unsigned __activemask()
{
    return 1u << member_now->id % 32;
}

const char *host_grid_error()
{
    bool had = has_error;
    has_error = false;
    return had ? error_text : nullptr;
}

void (*td_grid::around_launch)(bool begins);
bool (*td_grid::launch_fails)(const char *name);
void (*td_grid::on_stream)(const void *stream, std::function<void()> launch);
