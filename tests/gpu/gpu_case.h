// Kernels of tests/gpu/shaders and functions that run them.
#pragma once

#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "gpu/device.h"

namespace weft::test {

struct ScaleArgs {
    uint64_t x, y;
    uint32_t count, factor;
};
struct SpinArgs {
    uint64_t y;
    uint32_t rounds, steps;
};

template <typename T>
std::span<const std::byte> Args(const T& args) {
    return std::as_bytes(std::span(&args, 1));
}

inline Result<std::unique_ptr<gpu::Kernel>> MakeScale(gpu::Device& device, uint32_t group,
                                                      uint32_t add, uint32_t subgroup = 0,
                                                      uint32_t args_bytes = sizeof(ScaleArgs)) {
    static constexpr uint32_t kScale[] = {
#include "test_scale.inc"
    };
    const uint32_t constants[] = {group, add};
    return device.MakeKernel({.name = "scale",
                              .spirv = kScale,
                              .args_bytes = args_bytes,
                              .constants = constants,
                              .subgroup = subgroup});
}

inline Result<std::unique_ptr<gpu::Kernel>> MakeSpin(gpu::Device& device) {
    static constexpr uint32_t kSpin[] = {
#include "test_spin.inc"
    };
    static constexpr uint32_t kOne[] = {1};
    return device.MakeKernel(
        {.name = "spin", .spirv = kSpin, .args_bytes = sizeof(SpinArgs), .constants = kOne});
}

// Runs the kernel on data copied from host memory through a buffer at `place` and back, and checks
// the values.
inline Status RunScale(gpu::Device& device, gpu::Place place, uint32_t count, uint32_t group,
                       uint32_t factor, uint32_t add) {
    const uint64_t bytes = uint64_t{count} * sizeof(uint32_t);
    WEFT_ASSIGN(const auto kernel, MakeScale(device, group, add));
    WEFT_ASSIGN(const gpu::Buffer in, device.Allocate(bytes, gpu::Place::kHost));
    WEFT_ASSIGN(const gpu::Buffer x, device.Allocate(bytes, place));
    WEFT_ASSIGN(const gpu::Buffer y, device.Allocate(bytes, place));
    WEFT_ASSIGN(const gpu::Buffer out, device.Allocate(bytes, gpu::Place::kHost));
    for (uint32_t i = 0; i < count; ++i) std::memcpy(in.host() + 4 * size_t{i}, &i, 4);
    WEFT_ASSIGN(const auto commands, device.Record());
    commands->Copy(in, 0, x, 0, bytes);
    commands->Barrier();
    commands->Run(*kernel, Args(ScaleArgs{x.address(), y.address(), count, factor}),
                  (count + group - 1) / group);
    commands->Barrier();
    commands->Copy(y, 0, out, 0, bytes);
    WEFT_TRY(commands->End());
    WEFT_ASSIGN(const uint64_t submission, device.Submit(*commands));
    WEFT_TRY(device.Wait(submission, Deadline::In(60'000)));
    for (uint32_t i = 0; i < count; ++i) {
        uint32_t word = 0;
        std::memcpy(&word, out.host() + 4 * size_t{i}, 4);
        if (word != i * factor + add)
            return MakeError(ErrorCode::kCorrupt, "word {} of {} is {}", i, count, word);
    }
    return {};
}

}  // namespace weft::test
