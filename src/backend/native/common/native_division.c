/*
 * native_division.c -- divides elements and planes among threads as evenly as their units allow
 */
#include "backend/native/common/native_division.h"

#include <stdatomic.h>

/* --- elements --------------------------------------------------------------------------------- */

#define UNEVEN_MAX                                                                                 \
    1.05 /* a busiest thread with 5 % more than the mean is no reason to divide again */

static td_native_pieces pieces_of(int64_t count, int64_t each)
{
    return (td_native_pieces){ count, each, divide_up(count, each) };
}

td_native_pieces td_native_divide(int64_t count, int64_t unit, int threads)
{
    const td_native_pieces p = pieces_of(count, TD_NATIVE_PIECE / unit * unit);
    const td_work_share share = td_native_pieces_share(&p, threads);
    if (p.n < 2 || share.largest <= share.mean * UNEVEN_MAX)
        return p;
    const int64_t least = divide_up(TD_NATIVE_PIECE_MIN, unit) * unit;
    const int64_t jobs = divide_up(p.n, threads) * threads; /* as many for each thread */
    const int64_t each = divide_up(divide_up(count, jobs), unit) * unit;
    return pieces_of(count, each > least ? each : least);
}

td_work_share td_native_pieces_share(const td_native_pieces *p, int threads)
{
    const int64_t most = smaller(divide_up(p->n, threads) * p->each, p->count);
    return (td_work_share){ (double)most, (double)p->count / threads };
}

/* --- planes ----------------------------------------------------------------------------------- */

/* where the share of thread t begins, in pixels of all planes: t / threads of them, rounded to the
   nearest multiple of the grain within the plane */
static int64_t begin_of(const td_native_planes *d, int t)
{
    const int64_t total = d->n_planes * d->area;
    const int64_t at = total / d->threads * t + total % d->threads * t / d->threads;
    const int64_t from = d->area ? at % d->area : 0;
    const int64_t lo = from / d->grain * d->grain, hi = smaller(lo + d->grain, d->area);
    return at - from + (2 * from >= lo + hi ? hi : lo);
}

td_native_span td_native_span_first(const td_native_planes *d, int t)
{
    return (td_native_span){ .next = begin_of(d, t), .end = begin_of(d, t + 1) };
}

bool td_native_span_next(const td_native_planes *d, td_native_span *s)
{
    if (s->next >= s->end)
        return false;
    s->plane = s->next / d->area;
    s->from = s->next % d->area;
    s->n = smaller(d->area - s->from, s->end - s->next);
    s->next += s->n;
    return true;
}

td_work_share td_native_planes_share(const td_native_planes *d)
{
    int64_t largest = 0;
    for (int t = 0; t < d->threads; t++) {
        const int64_t n = begin_of(d, t + 1) - begin_of(d, t);
        largest = n > largest ? n : largest;
    }
    return (td_work_share){ (double)largest, (double)(d->n_planes * d->area) / d->threads };
}

/* --- tiles by blocks -------------------------------------------------------------------------- */

td_native_grid td_native_grid_divide(int64_t tiles, int64_t blocks, double tile_bytes,
                                     double block_bytes, int threads)
{
    td_native_grid d = { .tiles = tiles, .blocks = blocks };
    int64_t least = INT64_MAX;
    double traffic = 0;
    for (int a = 1; a <= threads; a++) {
        const int b = threads / a;
        const int64_t work = divide_up(tiles, a) * divide_up(blocks, b);
        const double bytes = a * block_bytes + b * tile_bytes;
        if (work < least || (work == least && bytes < traffic)) {
            least = work;
            traffic = bytes;
            d.tile_parts = a;
            d.block_parts = b;
        }
    }
    return d;
}

/* Cycles for each byte that a thread reads of blocks, which are fetched ahead, and from the cache
   of another core.  Zen 4: a line takes 2 to 70 cycles from another core, several at a time, as
   near or far as it is; a virtual machine's cores are now the one, now the other. */
#define BLOCK_CYCLES  0.1
#define REMOTE_CYCLES 0.3

/* the slowest thread's cycles with a parts of the tiles and b of the blocks */
static double grid_cycles(const td_native_grid *d, double cycles, const td_native_grid_bytes *bytes,
                          int threads)
{
    const double a = d->tile_parts, b = d->block_parts;
    const int64_t work = divide_up(d->tiles, d->tile_parts) * divide_up(d->blocks, d->block_parts);
    const double read = bytes->x * (1 / a - 1.0 / threads);
    const double written = bytes->y / threads * (1 - 1 / b);
    return (double)work * cycles + bytes->w / b * BLOCK_CYCLES + (read + written) * REMOTE_CYCLES;
}

td_native_grid td_native_grid_divide_by_time(int64_t tiles, int64_t blocks, double cycles,
                                             const td_native_grid_bytes *bytes, int threads)
{
    td_native_grid best = { tiles, blocks, 1, 1 };
    double least = grid_cycles(&best, cycles, bytes, threads);
    for (int a = threads; a >= 1; a--) {
        const td_native_grid d = { tiles, blocks, a, threads / a };
        const double time = grid_cycles(&d, cycles, bytes, threads);
        if (time < least) {
            least = time;
            best = d;
        }
    }
    return best;
}

/* where part i of n begins */
static int64_t part_of(int64_t all, int n, int i)
{
    return all * i / n;
}

td_native_cell td_native_grid_cell(const td_native_grid *d, int t)
{
    const int i = t / d->block_parts, j = t % d->block_parts;
    return (td_native_cell){ .from = part_of(d->tiles, d->tile_parts, i),
                             .to = part_of(d->tiles, d->tile_parts, i + 1),
                             .block_from = part_of(d->blocks, d->block_parts, j),
                             .block_to = part_of(d->blocks, d->block_parts, j + 1) };
}

td_work_share td_native_grid_share(const td_native_grid *d, double each, int threads)
{
    const int64_t most = divide_up(d->tiles, d->tile_parts) * divide_up(d->blocks, d->block_parts);
    return (td_work_share){ (double)most * each, (double)(d->tiles * d->blocks) * each / threads };
}

/* --- jobs in turn ----------------------------------------------------------------------------- */

/* the next job of one thread's share, alone in its cache line */
typedef struct {
    _Alignas(64) atomic_int next;
} turn;

size_t td_native_turns_bytes(int threads)
{
    return (size_t)threads * sizeof(turn);
}

void td_native_take_turns(const td_native_turns *t, void *scratch)
{
    turn *turns = scratch;
    for (int i = 0; i < t->threads; i++)
        atomic_init(&turns[i].next, (int)part_of(t->jobs, t->threads, i));
#pragma omp parallel for schedule(static, 1)
    for (int thread = 0; thread < t->threads; thread++)
        for (int k = 0; k < t->threads; k++) {
            const int of = (thread + k) % t->threads;
            const int64_t end = part_of(t->jobs, t->threads, of + 1);
            for (int i; (i = atomic_fetch_add(&turns[of].next, 1)) < end;)
                t->run(t->context, i, thread);
        }
}
