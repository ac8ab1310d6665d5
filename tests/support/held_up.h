// A thread in an uninterruptible wait in the kernel (state D).
#pragma once

#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include <cstddef>

namespace weft::test {

// A thread that called vfork(2) waits until its child ends. Uses clone(2), because the thread
// sanitizer replaces vfork by fork. child: runs in the child, in this process's memory, before it
// ends. Returns when the child has ended.
template <typename Child>
void HoldUpWhile(const Child& child) {
    constexpr size_t kStackBytes = 256 << 10;
    alignas(16) static char stack[kStackBytes];
    const auto run = [](void* way) {
        (*static_cast<const Child*>(way))();
        ::_exit(0);
        return 0;
    };
    ::clone(run, stack + kStackBytes, CLONE_VM | CLONE_VFORK | SIGCHLD, const_cast<Child*>(&child));
}

}  // namespace weft::test
