#include "base/start_thread.h"

#include <pthread.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <system_error>

#include "base/deadline.h"

namespace weft {
namespace {

constexpr std::chrono::milliseconds kPause{20};

// A new thread inherits the mask of the thread that starts it.
class SignalMask {
  public:
    explicit SignalMask(bool signals) {
        sigset_t blocked;
        signals ? ::sigemptyset(&blocked) : ::sigfillset(&blocked);
        ::pthread_sigmask(SIG_BLOCK, &blocked, &before_);
    }
    ~SignalMask() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
    SignalMask(const SignalMask&) = delete;
    SignalMask& operator=(const SignalMask&) = delete;

  private:
    sigset_t before_{};
};

}  // namespace

Status StartThread(std::thread& thread, const std::function<void()>& work,
                   const ThreadOptions& options) {
    const Deadline deadline = Deadline::In(options.wait_ms);
    while (true) {
        try {
            const SignalMask mask(options.signals);
            thread = std::thread(work);
            return {};
        } catch (const std::system_error& error) {
            if (error.code().value() == EPERM) {  // not a limit: no wait changes it
                return MakeError(ErrorCode::kIo, "the system started no thread: {}. {}",
                                 error.code().message(), kForbidsClone3);
            }
            if (!deadline.expired()) {
                std::this_thread::sleep_for(kPause);
                continue;
            }
            return MakeError(ErrorCode::kIo,
                             "the system started no thread within {} ms: {}. Raise the limit of "
                             "processes ('ulimit -u', TasksMax= of systemd, pids.max of a "
                             "container), or end other programs",
                             options.wait_ms, error.code().message());
        }
    }
}

}  // namespace weft
