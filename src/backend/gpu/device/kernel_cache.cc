#include "backend/gpu/device/kernel_cache.h"

#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <span>

#include "base/hash.h"
#include "base/home_folder.h"
#include "base/log.h"
#include "base/own_folder.h"
#include "shaders/shaders.h"

namespace weft::backend::on_gpu {

std::string KernelFolder() {
    static std::atomic<bool> told = false;
    const std::string cache = CacheFolder(), folder = cache + "/vulkan";
    if (cache.empty()) return "";
    // (Earlier versions made it with the user's mask, which may let the user's group write.)
    struct stat info {};
    const bool own = ::stat(folder.c_str(), &info) == 0 && info.st_uid == ::geteuid();
    if (own) ::chmod(folder.c_str(), 0700);
    const Status made = MakeOwnFolder("compiled kernels in", folder);
    if (made.ok()) return folder;
    if (made.error().code == ErrorCode::kDenied && !told.exchange(true)) {
        Log(LogLevel::kWarning, "{}. Until then, kernels are compiled at each start",
            made.error().message);
    }
    return "";
}

uint64_t ShaderBuild() {
    uint64_t sum = 0;
    for (const std::string_view name : shaders::Names()) {
        sum = Checksum64(std::as_bytes(std::span(name)), sum);
        sum = Checksum64(std::as_bytes(shaders::Find(name)), sum);
    }
    return sum;
}

Result<const gpu::Kernel*> KernelCache::Get(std::string_view shader,
                                            std::vector<uint32_t> constants, uint32_t args_bytes,
                                            uint32_t subgroup, Guard guard) {
    Key key{std::string(shader), std::move(constants), args_bytes, subgroup, guard};
    if (const auto found = kernels_.find(key); found != kernels_.end()) return found->second.get();
    const std::span<const uint32_t> spirv = shaders::Find(shader);
    if (spirv.empty()) {
        return MakeError(ErrorCode::kUnsupported,
                         "this weft has no shader '{}'; build it where glslc is, or use --device "
                         "cpu",
                         shader);
    }
    if (stopped_ && stopped_()) return MakeError(ErrorCode::kCancelled, "stopped by the user");
    const Compiling compiling(*this);
    WEFT_ASSIGN(std::unique_ptr<gpu::Kernel> kernel,
                device_.MakeKernel({shader, spirv, args_bytes, key.constants, subgroup,
                                    guard == Guard::kStopWord}));
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

}  // namespace weft::backend::on_gpu
