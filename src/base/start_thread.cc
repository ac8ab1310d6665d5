#include "base/start_thread.h"

#include <chrono>
#include <system_error>

#include "base/deadline.h"

namespace weft {
namespace {

constexpr std::chrono::milliseconds kPause{20};

}  // namespace

Status StartThread(std::thread& thread, const std::function<void()>& work) {
    const Deadline deadline = Deadline::In(kThreadMs);
    while (true) {
        try {
            thread = std::thread(work);
            return {};
        } catch (const std::system_error& error) {
            if (!deadline.expired()) {
                std::this_thread::sleep_for(kPause);
                continue;
            }
            return MakeError(ErrorCode::kIo,
                             "the system started no thread within {} ms: {}. Raise the limit of "
                             "processes ('ulimit -u', TasksMax= of systemd, pids.max of a "
                             "container), or end other programs",
                             kThreadMs, error.code().message());
        }
    }
}

}  // namespace weft
