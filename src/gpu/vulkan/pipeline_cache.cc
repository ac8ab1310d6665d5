// Compiled pipelines on disk: the driver's data after a header that detects damage (some drivers
// trust their input).
#include <array>
#include <cstring>
#include <filesystem>

#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/output_file.h"
#include "gpu/vulkan/core.h"

namespace weft::gpu {
namespace {

constexpr uint64_t kMagic = 0x3163706774666577;  // "weftgpc1"
constexpr uint64_t kMostCacheBytes = 1ull << 28;

struct CacheHead {
    uint64_t magic = kMagic;
    uint64_t data_bytes = 0;
    Sha256Digest digest{};
};

std::string CachePath(const std::string& folder, const Physical& physical) {
    const Description& gpu = physical.description;
    return fmt::format("{}/vulkan-{:04x}-{:04x}-{:08x}-{}.cache", folder, gpu.vendor_id,
                       gpu.device_id, gpu.driver_version, Hex(physical.cache_uuid));
}

// Empty if the file is missing or damaged.
std::vector<std::byte> ReadCache(const std::string& path) {
    const Result<File> file = File::Open(path);
    CacheHead head;
    if (!file.ok() || file->size_bytes() < sizeof head || file->size_bytes() > kMostCacheBytes)
        return {};
    if (!file->ReadAt(0, std::as_writable_bytes(std::span(&head, 1))).ok()) return {};
    if (head.magic != kMagic || head.data_bytes != file->size_bytes() - sizeof head) return {};
    std::vector<std::byte> data(head.data_bytes);
    if (!file->ReadAt(sizeof head, data).ok() || !DigestsEqual(Sha256(data), head.digest))
        return {};
    return data;
}

Status WriteCache(const std::string& path, std::span<const std::byte> data) {
    const CacheHead head{.data_bytes = data.size(), .digest = Sha256(data)};
    WEFT_ASSIGN(OutputFile file, OutputFile::Create(path, sizeof head + data.size(), true));
    WEFT_TRY(file.WriteAt(0, std::as_bytes(std::span(&head, 1))));
    WEFT_TRY(file.WriteAt(sizeof head, data));
    return file.Finish();
}

}  // namespace

Status PipelineCache::Open(const std::string& folder) {
    std::vector<std::byte> data;
    if (!folder.empty()) {
        path_ = CachePath(folder, core_->physical);
        data = ReadCache(path_);
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

void PipelineCache::Save() {
    if (path_.empty() || !grew_ || core_->lost) return;
    grew_ = false;
    size_t size = 0;
    VkResult result = core_->calls.GetPipelineCacheData(core_->device, handle_, &size, nullptr);
    std::vector<std::byte> data(size);
    if (result == VK_SUCCESS)
        result = core_->calls.GetPipelineCacheData(core_->device, handle_, &size, data.data());
    Status written;
    if (result != VK_SUCCESS) {
        written = core_->Fail("vkGetPipelineCacheData", result);
    } else {
        data.resize(size);
        std::error_code ignored;
        std::filesystem::create_directories(std::filesystem::path(path_).parent_path(), ignored);
        written = WriteCache(path_, data);
    }
    // kDenied: another process is writing it at the moment.
    if (!written.ok() && written.error().code != ErrorCode::kDenied)
        Log(LogLevel::kWarning, "cannot store compiled kernels: {}", written.error().message);
}

PipelineCache::~PipelineCache() {
    if (handle_ == VK_NULL_HANDLE) return;
    Save();
    core_->calls.DestroyPipelineCache(core_->device, handle_, nullptr);
}

}  // namespace weft::gpu
