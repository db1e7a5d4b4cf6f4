/*
 * base/threads.h -- threads, and a bounded queue to exchange items
 *
 *     td_queue *q;  TD_TRY(td_queue_new(8, &q));
 *     producer:  if (!td_queue_push(q, item)) break;       blocks while full; false once closed
 *     consumer:  while ((item = td_queue_pop(q))) ...      blocks while empty; NULL: closed, empty
 *     end:       td_queue_close(q);  td_thread_join(&t);  td_queue_free(q);
 */
#ifndef TD_BASE_THREADS_H
#define TD_BASE_THREADS_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct {
    pthread_t id;
    bool is_running;
} td_thread;

/** td_signals_block applies to the new thread.  `name` (at most 15 bytes) is shown in top and
    gdb. */
TD_CHECKED td_status td_thread_start(td_thread *t, const char *name, void (*run)(void *),
                                     void *ctx);

/** Wait for the thread to end; does nothing when it was never started.  May be called twice. */
void td_thread_join(td_thread *t);

/** Lower the calling thread's priority by `steps` nice levels; failure is ignored. */
void td_thread_be_nice(int steps);

typedef struct td_queue td_queue;

TD_CHECKED td_status td_queue_new(size_t capacity, td_queue **out);
bool td_queue_push(td_queue *q, void *item);
void *td_queue_pop(td_queue *q);

/** Give back an item just popped: it is the next to be popped.  Only if the queue is never full. */
void td_queue_return(td_queue *q, void *item);

/** Like td_queue_pop, but returns NULL at once if it is empty. */
void *td_queue_try_pop(td_queue *q);

/** Like td_queue_pop, but also returns NULL when td_now_ns() reaches `until_ns`. */
void *td_queue_pop_until(td_queue *q, int64_t until_ns);

/** Make further pushes fail and wake waiting threads. */
void td_queue_close(td_queue *q);
size_t td_queue_length(td_queue *q);

/** Call only after every user has been joined.  `q` may be NULL. */
void td_queue_free(td_queue *q);

#endif
