// A thread that the kernel has wait where no signal reaches it (state D).
#pragma once

#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include <cstddef>

namespace weft::test {

// Until its child ends, a thread that has called vfork(2) is held up. By clone(2): the thread
// sanitizer makes vfork a fork.
// child: what the child does, in this process's memory, before it ends. Returns once it has.
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
