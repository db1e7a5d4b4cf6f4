/*
 * stand_in.h -- what the stand-ins of CUDA's libraries share: device memory and planned failures
 */
#ifndef TD_TESTS_CUDA_STAND_IN_STAND_IN_H
#define TD_TESTS_CUDA_STAND_IN_STAND_IN_H

#include <cstddef>
#include <functional>

struct stand_in_stream;

namespace stand_in
{

/* device memory is accessible while one exists */
struct opening {
    opening();
    ~opening();
    opening(const opening &) = delete;
    opening &operator=(const opening &) = delete;
};

/* are n bytes from p in one allocation of device memory? */
bool is_device(const void *p, size_t n);

bool is_stream(const stand_in_stream *s);

/*
 * Copies, kernels and what cuDNN and cuBLASLt execute: done at once, or as TANDEM_STAND_IN_ORDER
 * says (cuda_runtime.h); while the stream is captured, when the graph is launched, each time.
 */
void do_work(stand_in_stream *s, std::function<bool()> work);

/*
 * Queue work on a stream.  It runs when something waits for it, and returns false if it will never
 * be done: then the stream, and those that wait for it, hang until release_streams.
 */
void queue_work(stand_in_stream *s, std::function<bool()> work);
void release_streams();

/* counts the calls that can fail; true for the one that TANDEM_STAND_IN_FAIL names */
bool is_due(const char *call = __builtin_FUNCTION());

/* at the end of the process: n things were not freed */
void log_left(const char *what, size_t n);

} // namespace stand_in

#endif
