/*
 * dnnl_guard.cpp -- the one C++ file: catches what oneDNN throws
 *
 * Each guarded function is called in a try block, which costs nothing to enter.  When an allocation
 * fails and no exception can be caught, the process ends here instead of in an abort or a fault:
 *
 *   std::terminate   an exception leaves a noexcept function, or one of oneDNN's threads
 *   SIGSEGV          oneDNN's own operator new returned NULL, and the constructor ran on it
 *
 * Both handlers act only while a guarded call is under way and after a failed allocation (a
 * std::bad_alloc in flight; errno ENOMEM, which is cleared before each call); otherwise the
 * handlers that were installed before them run.  They use only async-signal-safe functions.
 */
#include "backend/dnnl/dnnl_guard.h"

#include <atomic>
#include <cerrno>
#include <csignal>
#include <exception>
#include <mutex>
#include <new>
#include <unistd.h>

/* declared in io/atomic.h and base/arena.h, which are C11 */
extern "C" void td_atomic_remove_all(void);
extern "C" void td_alloc_note_failed(void);

namespace {

std::atomic<int> n_inside{ 0 }; /* guarded calls in progress in all threads */
std::terminate_handler old_terminate;
struct sigaction old_fault;
std::once_flag once;

[[noreturn]] void end_process()
{
    static const char text[] = "tandem: error: out of memory inside oneDNN\n";
    td_atomic_remove_all();
    if (write(STDERR_FILENO, text, sizeof text - 1) < 0)
        _exit(1); /* stderr is not writable */
    _exit(1);
}

[[noreturn]] void on_terminate()
{
    if (n_inside > 0 && std::current_exception()) {
        try {
            throw;
        } catch (const std::bad_alloc &) {
            end_process();
        } catch (...) {
        }
    }
    if (old_terminate)
        old_terminate();
    _exit(134); /* a terminate handler must not return; abort() ends in 128 + SIGABRT too */
}

/* for other faults it restores the old action and returns; the fault then occurs again */
void on_fault(int)
{
    if (n_inside > 0 && errno == ENOMEM)
        end_process();
    sigaction(SIGSEGV, &old_fault, nullptr);
}

void set_handlers()
{
    struct sigaction action = {};
    action.sa_handler = on_fault;
    sigemptyset(&action.sa_mask);
    old_terminate = std::set_terminate(on_terminate);
    sigaction(SIGSEGV, &action, &old_fault);
}

struct inside {
    inside()
    {
        n_inside++;
    }
    ~inside()
    {
        n_inside--;
    }
};

template <typename F, F function> struct guarded;

template <typename... A, dnnl_status_t (*function)(A...)>
struct guarded<dnnl_status_t (*)(A...), function> {
    static dnnl_status_t call(A... a) noexcept
    {
        const int saved = errno;
        dnnl_status_t status = dnnl_runtime_error;
        try {
            std::call_once(once, set_handlers);
            inside here;
            errno = 0;
            status = function(a...);
        } catch (const std::bad_alloc &) {
            status = dnnl_out_of_memory;
        } catch (...) {
            status = errno == ENOMEM ? dnnl_out_of_memory : dnnl_runtime_error;
        }
        if (status == dnnl_out_of_memory)
            td_alloc_note_failed();
        errno = saved;
        return status;
    }
};

} // namespace

#define DEFINE(name) __typeof__(name) *const td_guarded_##name = guarded<decltype(&name), &name>::call;
TD_DNNL_GUARDED(DEFINE)
