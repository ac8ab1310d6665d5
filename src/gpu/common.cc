// Names, and handles of buffers: what all builds have.
#include <cstdlib>
#include <iterator>
#include <utility>

#include "gpu/device.h"
#include "gpu/visible.h"

namespace weft::gpu {

const char* ApiName(Api api) {
    switch (api) {
        case Api::kVulkan: return "vulkan";
        case Api::kCuda: return "cuda";
        case Api::kHip: return "hip";
    }
    return "?";
}

const char* ApiTitle(Api api) {
    switch (api) {
        case Api::kVulkan: return "Vulkan";
        case Api::kCuda: return "CUDA";
        case Api::kHip: return "HIP";
    }
    return "?";
}

bool IsFor(Api api, uint32_t vendor_id) {
    constexpr uint32_t kNvidia = 0x10de, kAmd = 0x1002;
    switch (api) {
        case Api::kVulkan: return true;
        case Api::kCuda: return vendor_id == kNvidia;
        case Api::kHip: return vendor_id == kAmd;
    }
    return false;
}

std::string VisibleText(Api api) {
    struct Variable {
        Api api;
        const char* name;
        bool may_be_empty;  // which hides all devices
    };
    constexpr Variable kVariables[] = {{Api::kCuda, "CUDA_VISIBLE_DEVICES", true},
                                       {Api::kHip, "ROCR_VISIBLE_DEVICES", true},
                                       {Api::kHip, "HIP_VISIBLE_DEVICES", false},
                                       {Api::kHip, "CUDA_VISIBLE_DEVICES", false}};
    std::string text;
    for (const Variable& variable : kVariables) {
        const char* const value = variable.api == api ? std::getenv(variable.name) : nullptr;
        if (value == nullptr || (*value == '\0' && !variable.may_be_empty)) continue;
        // HIP reads CUDA's variable only without its own one.
        const bool second = &variable == std::end(kVariables) - 1;
        if (second && text.find("HIP_VISIBLE_DEVICES=") != text.npos) continue;
        text += fmt::format("{}{}={}", text.empty() ? "" : " ", variable.name, value);
    }
    return text;
}

std::string DriverAdvice(Api api) {
    const std::string visible = VisibleText(api);
    const std::string hides = visible.empty() ? "" : fmt::format("Does {} hide it? ", visible);
    switch (api) {
        case Api::kVulkan:
            return "Is a driver installed (mesa-vulkan-drivers), and may this user open "
                   "/dev/dri/renderD*?";
        case Api::kCuda: return hides + "Is the kernel module loaded (nvidia-smi lists GPUs)?";
        case Api::kHip:
            return hides +
                   "Is the kernel module amdgpu loaded, and may this user open /dev/kfd "
                   "(group render)?";
    }
    return "";
}

const char* KindName(Kind kind) {
    switch (kind) {
        case Kind::kDiscrete: return "discrete";
        case Kind::kIntegrated: return "integrated";
        case Kind::kVirtual: return "virtual";
        case Kind::kCpu: return "cpu";
    }
    return "?";
}

Status CheckGroups(const Description& device, const std::string& who,
                   const WorkgroupCounts& groups) {
    const auto &count = groups.count, &first = groups.first, &most = device.most_groups;
    for (size_t i = 0; i < most.size(); ++i) {
        if (uint64_t{first[i]} + count[i] <= most[i]) continue;
        return MakeError(ErrorCode::kUnsupported,
                         "{}: {} x {} x {} workgroups; the device supports at most {} x {} x {}",
                         who, first[0] + count[0], first[1] + count[1], first[2] + count[2],
                         most[0], most[1], most[2]);
    }
    return {};
}

Result<Buffer> Device::AllocateShared(uint64_t, SharedHandle&) {
    return MakeError(ErrorCode::kUnsupported, "{} shares no memory between processes here",
                     ApiTitle(description().api));
}

Result<Buffer> Device::OpenShared(const SharedHandle& handle, const std::string&, uint64_t bytes) {
    SharedHandle own = handle;
    return AllocateShared(bytes, own);  // the error
}

Buffer::Buffer() = default;
Buffer::Buffer(std::unique_ptr<Held> held, uint64_t address, uint64_t size, std::byte* host)
    : held_(std::move(held)), address_(address), size_(size), host_(host) {}
Buffer::Buffer(Buffer&& other) noexcept
    : held_(std::move(other.held_)),
      address_(std::exchange(other.address_, 0)),
      size_(std::exchange(other.size_, 0)),
      host_(std::exchange(other.host_, nullptr)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
    held_ = std::move(other.held_);
    address_ = std::exchange(other.address_, 0);
    size_ = std::exchange(other.size_, 0);
    host_ = std::exchange(other.host_, nullptr);
    return *this;
}

Buffer::~Buffer() = default;

}  // namespace weft::gpu
