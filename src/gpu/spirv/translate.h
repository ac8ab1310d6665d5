// Translates the SPIR-V of a kernel (shaders/shaders.h) to C++ text that hiprtc and nvrtc compile.
// Test programs compile the same text with the host's compiler, -DWEFT_EMULATED and
// tests/gpu/standin/emulated.h.
//
// The text needs no other file. Its kernel is
//
//     extern "C" __global__ void ENTRY(const Args args, const uint3 first, const u32* stop_word)
//
// with the push constants by value, WorkgroupCounts::first, and the address of the word that
// guarded kernels check (gpu/device.h). Workgroups have local_size[0] invocations in x.
//
// Subgroup operations assume that all invocations of a subgroup execute them, as in shaders.h.
//
// Specification: SPIR-V 1.6 with SPV_KHR_physical_storage_buffer, SPV_KHR_integer_dot_product and
// SPV_KHR_cooperative_matrix.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace weft::gpu::spirv {

enum class Language { kHip, kCuda };

// Specialization constant `id` of a module; it is ignored if the module has none.
struct Specialization {
    uint32_t id = 0, value = 0;
};

struct Request {
    std::string_view name;            // of the kernel, for errors and the entry point
    std::span<const uint32_t> spirv;  // entry point "main"
    std::span<const Specialization> constants;
    uint32_t subgroup = 32;  // 32 or 64; the compiler's target must have this size
    Language language = Language::kCuda;
};

struct Text {
    std::string source;
    std::string entry;  // name of the kernel
    std::array<uint32_t, 3> local_size{1, 1, 1};
    uint32_t shared_bytes = 0;  // static shared memory
    uint32_t args_bytes = 0;    // sizeof(Args), a multiple of its alignment
};

// Errors: kUnsupported, with the instruction, capability, or control flow that has no translation.
Result<Text> Translate(const Request& request);

// Options of the compilers that the text needs: float32 arithmetic is neither contracted nor
// reassociated, and memory is accessed through several types. The caller adds the architecture
// (--offload-arch=gfx90a, --gpu-architecture=sm_90).
inline constexpr std::array kHipOptions{"-std=c++17", "-O3", "-ffp-contract=off",
                                        "-fno-strict-aliasing", "-w"};
inline constexpr std::array kCudaOptions{"-std=c++17", "--fmad=false", "-w"};
// nvrtc spills registers of some kernels, so that more workgroups run at once. If a kernel has
// local memory (CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES), compile it again with this option as well.
inline constexpr const char* kCudaRoomyOption = "-DWEFT_ROOMY";

}  // namespace weft::gpu::spirv
