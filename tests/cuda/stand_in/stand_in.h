/*
 * stand_in.h -- what the stand-ins of CUDA's libraries share: device memory and planned failures
 */
#ifndef TD_TESTS_CUDA_STAND_IN_STAND_IN_H
#define TD_TESTS_CUDA_STAND_IN_STAND_IN_H

#include <cstddef>

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

/* counts the calls that can fail; true for the one that TANDEM_STAND_IN_FAIL names */
bool is_due(const char *call = __builtin_FUNCTION());

/* at the end of the process: n things were not freed */
void log_left(const char *what, size_t n);

} // namespace stand_in

#endif
