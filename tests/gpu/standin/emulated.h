// The intrinsics of HIP and CUDA for the host's compiler, so that the text of gpu/spirv runs
// without a GPU:
//
//     c++ -std=c++20 -O1 -w -shared -fPIC -fno-strict-aliasing -ffp-contract=off -DWEFT_EMULATED
//         -include emulated.h kernel.cc
//
// The library has `extern "C" void ENTRY_launch(void** params, const unsigned* grid, const
// unsigned* block)`, which runs all workgroups, one after another. params: the addresses of the
// kernel's arguments, as for cuLaunchKernel; grid, block: three numbers each.
//
// Each invocation of a workgroup is a fiber, which runs until it meets a barrier or an operation of
// its subgroup. WEFT_EMULATED_REVERSED in the environment lets the last invocation run first: a
// kernel whose results change has a race.
//
// Thread: one call at a time for each library.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>
#ifndef __x86_64__
#include <ucontext.h>
#endif

#define __device__
#define __global__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __shared__ static

struct uint3 {
    unsigned x, y, z;
};
static uint3 threadIdx, blockIdx, blockDim, gridDim;

namespace weft_emulated {

// A fiber switches to another one: on x86-64 without the system calls of swapcontext.
#ifdef __x86_64__
using Context = void*;
extern "C" __attribute__((visibility("hidden"))) void weft_emulated_switch(Context* from,
                                                                           Context to);
__asm__(R"(
    .text
weft_emulated_switch:
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
)");
inline void Switch(Context& from, Context& to) {
    weft_emulated_switch(&from, to);
}
inline void Prepare(Context& context, char* stack, size_t bytes, void (*begin)()) {
    auto* top =
        reinterpret_cast<void**>(reinterpret_cast<uintptr_t>(stack + bytes) & ~uintptr_t(63));
    *--top = nullptr;  // where `begin` would return to: it never does
    *--top = reinterpret_cast<void*>(begin);
    top -= 6;
    context = top;
}
#else
using Context = ucontext_t;
inline void Switch(Context& from, Context& to) {
    swapcontext(&from, &to);
}
inline void Prepare(Context& context, char* stack, size_t bytes, void (*begin)()) {
    getcontext(&context);
    context.uc_stack.ss_sp = stack;
    context.uc_stack.ss_size = bytes;
    makecontext(&context, begin, 0);
}
#endif

enum class State { kRuns, kAtBarrier, kInSubgroup, kDone };
struct Invocation {
    Context context;
    State state;
    uint64_t value[2];  // given to the subgroup, in turns
    unsigned turn;
};
constexpr size_t kStackBytes = 128 << 10;
constexpr unsigned kMost = 1024;

struct Workgroup {
    std::vector<Invocation> invocations{kMost};
    std::vector<std::unique_ptr<char[]>> stacks;
    Context main;
    unsigned count = 0, subgroup = 32;
    void (*body)(void** params) = nullptr;
    void** params = nullptr;
};
static Workgroup work;

inline Invocation& Own() {
    return work.invocations[threadIdx.x];
}
inline void Wait(State state) {
    Invocation& own = Own();
    own.state = state;
    Switch(own.context, work.main);
}
static void Begin() {
    work.body(work.params);
    Wait(State::kDone);
}

// Invocation `lane` of the subgroup of the running one.
inline Invocation& Peer(unsigned lane) {
    return work.invocations[threadIdx.x / work.subgroup * work.subgroup + lane];
}
// Gives `value` to the subgroup. Given(Peer(lane)) is what a peer gave, until the next Meet.
inline void Meet(uint64_t value) {
    Invocation& own = Own();
    own.value[++own.turn % 2] = value;
    Wait(State::kInSubgroup);
}
inline uint64_t Given(const Invocation& peer) {
    return peer.value[Own().turn % 2];
}

// Runs invocations [first, end) until all are at a barrier or done.
inline void RunSubgroup(unsigned first, unsigned end, bool reversed) {
    for (bool again = true; again;) {
        for (unsigned k = first; k < end; ++k) {
            const unsigned i = reversed ? end - 1 - (k - first) : k;
            if (work.invocations[i].state != State::kRuns) continue;
            threadIdx.x = i;
            Switch(work.main, work.invocations[i].context);
        }
        again = false;
        for (unsigned i = first; i < end; ++i) {
            if (work.invocations[i].state != State::kInSubgroup) continue;
            work.invocations[i].state = State::kRuns;
            again = true;
        }
    }
}

inline void RunWorkgroup(bool reversed) {
    for (unsigned i = 0; i < work.count; ++i) {
        if (i == work.stacks.size()) work.stacks.emplace_back(new char[kStackBytes]);
        work.invocations[i].state = State::kRuns;
        work.invocations[i].turn = 0;
        Prepare(work.invocations[i].context, work.stacks[i].get(), kStackBytes, Begin);
    }
    for (unsigned done = 0; done < work.count;) {
        const unsigned subgroups = (work.count + work.subgroup - 1) / work.subgroup;
        for (unsigned k = 0; k < subgroups; ++k) {
            const unsigned first = (reversed ? subgroups - 1 - k : k) * work.subgroup;
            RunSubgroup(first, std::min(first + work.subgroup, work.count), reversed);
        }
        done = 0;
        for (unsigned i = 0; i < work.count; ++i) {
            if (work.invocations[i].state == State::kDone) ++done;
            if (work.invocations[i].state == State::kAtBarrier)
                work.invocations[i].state = State::kRuns;
        }
        if (done != 0 && done != work.count) {
            std::fprintf(stderr, "emulated: some invocations ended before a barrier of others\n");
            std::abort();
        }
    }
}

inline void Run(void (*body)(void**), void** params, const unsigned* grid, unsigned block,
                unsigned subgroup) {
    const bool reversed = std::getenv("WEFT_EMULATED_REVERSED") != nullptr;
    work.body = body;
    work.params = params;
    work.count = block;
    work.subgroup = subgroup;
    blockDim = {block, 1, 1};
    gridDim = {grid[0], grid[1], grid[2]};
    for (blockIdx.z = 0; blockIdx.z < grid[2]; ++blockIdx.z) {
        for (blockIdx.y = 0; blockIdx.y < grid[1]; ++blockIdx.y) {
            for (blockIdx.x = 0; blockIdx.x < grid[0]; ++blockIdx.x) RunWorkgroup(reversed);
        }
    }
}

}  // namespace weft_emulated

#define WEFT_EMULATED_ENTRY(name, subgroup)                                                     \
    static void name##_body(void** params) {                                                    \
        name(*(const Args*)params[0], *(const uint3*)params[1], *(const u32* const*)params[2]); \
    }                                                                                           \
    extern "C" void name##_launch(void** params, const unsigned* grid, const unsigned* block) { \
        weft_emulated::Run(name##_body, params, grid, block[0], subgroup);                      \
    }

inline void __syncthreads() {
    weft_emulated::Wait(weft_emulated::State::kAtBarrier);
}
inline void __syncwarp() {
    weft_emulated::Meet(0);
}
inline void __threadfence() {
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
inline void __threadfence_block() {
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
inline void __threadfence_system() {
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
inline unsigned __shfl_xor_sync(unsigned, unsigned value, unsigned distance) {
    using namespace weft_emulated;
    Meet(value);
    return unsigned(Given(Peer((threadIdx.x % work.subgroup) ^ distance)));
}
inline int __popc(unsigned x) {
    return __builtin_popcount(x);
}
inline int __dp4a(int a, int b, int sum) {
    for (int i = 0; i < 32; i += 8) sum += int(int8_t(a >> i)) * int(int8_t(b >> i));
    return sum;
}
inline unsigned atomicAdd(unsigned* p, unsigned x) {
    return __atomic_fetch_add(p, x, __ATOMIC_RELAXED);
}
inline unsigned atomicMax(unsigned* p, unsigned x) {
    const unsigned before = *p;
    *p = before > x ? before : x;
    return before;
}
inline unsigned atomicMin(unsigned* p, unsigned x) {
    const unsigned before = *p;
    *p = before < x ? before : x;
    return before;
}
