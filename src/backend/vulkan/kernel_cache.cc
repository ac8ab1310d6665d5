#include "backend/vulkan/context.h"

#include "shaders/shaders.h"

namespace weft::backend::vulkan {

Result<const gpu::Kernel*> KernelCache::Get(std::string_view shader,
                                            std::vector<uint32_t> constants, uint32_t args_bytes,
                                            uint32_t subgroup, bool guarded) {
    Key key{std::string(shader), std::move(constants), args_bytes, subgroup, guarded};
    if (const auto found = kernels_.find(key); found != kernels_.end()) return found->second.get();
    const std::span<const uint32_t> spirv = shaders::Find(shader);
    if (spirv.empty()) {
        return MakeError(ErrorCode::kUnsupported,
                         "this weft has no shader '{}'; build it where glslc is, or use --device "
                         "cpu",
                         shader);
    }
    const Compiling compiling(*this);
    WEFT_ASSIGN(std::unique_ptr<gpu::Kernel> kernel,
                device_.MakeKernel({shader, spirv, args_bytes, key.constants, subgroup, guarded}));
    const gpu::Kernel* made = kernel.get();
    kernels_.emplace(std::move(key), std::move(kernel));
    progress_.fetch_add(1, std::memory_order_relaxed);
    return made;
}

int64_t KernelCache::progress(int64_t now_ns) const {
    const int64_t since_ns = compiles_since_ns_.load(std::memory_order_relaxed);
    if (since_ns != 0 && now_ns - since_ns < kMostCompileNs) {
        progress_.fetch_add(1, std::memory_order_relaxed);
    }
    return progress_.load(std::memory_order_relaxed);
}

}  // namespace weft::backend::vulkan
