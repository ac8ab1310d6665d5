// Compiled pipelines on disk.
#include "base/deadline.h"
#include "base/hash.h"
#include "gpu/cache_file.h"
#include "gpu/vulkan/core.h"

namespace weft::gpu {
namespace {

std::string CachePath(const std::string& folder, const Physical& physical) {
    const Description& gpu = physical.description;
    return fmt::format("{}/vulkan-{:04x}-{:04x}-{:08x}-{}.cache", folder, gpu.vendor_id,
                       gpu.device_id, gpu.driver_version, Hex(physical.cache_uuid));
}

}  // namespace

Status PipelineCache::Open(const std::string& folder) {
    std::vector<std::byte> data;
    if (!folder.empty()) {
        path_ = CachePath(folder, core_->physical);
        data = ReadCacheFile(path_);
    }
    VkPipelineCacheCreateInfo info{};
    info.sType = VK_STRUCTURE_TYPE_PIPELINE_CACHE_CREATE_INFO;
    info.initialDataSize = data.size();
    info.pInitialData = data.data();
    const VkResult result =
        core_->calls.CreatePipelineCache(core_->device, &info, nullptr, &handle_);
    if (result == VK_SUCCESS) return {};
    handle_ = VK_NULL_HANDLE;
    return core_->Fail("vkCreatePipelineCache", result);
}

void PipelineCache::SaveIfDue() {
    constexpr int64_t kTimesItsLength = 20;
    if (!grew_) return;
    const int64_t begin_ns = NowNs();
    if (begin_ns < due_ns_) return;
    Save();
    const int64_t end_ns = NowNs();
    due_ns_ = end_ns + kTimesItsLength * (end_ns - begin_ns);
}

void PipelineCache::Save() {
    if (path_.empty() || !grew_ || core_->lost) return;
    grew_ = false;
    size_t size = 0;
    VkResult result = core_->calls.GetPipelineCacheData(core_->device, handle_, &size, nullptr);
    std::vector<std::byte> data(size);
    if (result == VK_SUCCESS)
        result = core_->calls.GetPipelineCacheData(core_->device, handle_, &size, data.data());
    if (result == VK_SUCCESS) {
        data.resize(size);
        return WarnNotStored(WriteCacheFile(path_, data), told_);
    }
    WarnNotStored(core_->Fail("vkGetPipelineCacheData", result), told_);
}

PipelineCache::~PipelineCache() {
    if (handle_ == VK_NULL_HANDLE) return;
    Save();
    core_->calls.DestroyPipelineCache(core_->device, handle_, nullptr);
}

}  // namespace weft::gpu
