// GPUs through Vulkan 1.2 compute: lists devices, and opens one.
//
// Only this folder uses vk* names. libvulkan.so.1 is opened at the first use, so that Weft runs on
// the CPU without it. Kernels get device addresses as push constants, and have no descriptors
// except that of the stop word.
//
//     WEFT_ASSIGN(auto device, Device::Open(0));
//     WEFT_ASSIGN(Buffer buffer, device->Allocate(bytes, Place::kDevice));
//     WEFT_ASSIGN(auto kernel, device->MakeKernel(code));
//     WEFT_ASSIGN(auto commands, device->Record());
//     commands->Run(*kernel, args, x);  commands->End();  // then Submit, Wait
//
// Errors: kUnsupported (no loader, no device, a feature that is missing: the message names it and
// what to install), kNotFound (no device of this index), kOutOfMemory, kPeerLost
// (VK_ERROR_DEVICE_LOST), kIo (any other call that failed, with its name and result).
// Thread: one caller for a Device and all objects made from it, except Allocate and Buffer's
// destructor.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/deadline.h"
#include "base/result.h"

namespace weft::gpu {

enum class Kind { kDiscrete, kIntegrated, kVirtual, kCpu };  // kCpu: lavapipe and the like

struct Heap {
    uint64_t total_bytes = 0;
    uint64_t free_bytes = 0;  // from VK_EXT_memory_budget; without it, equals total
    bool device_local = false;
    // Kernels' buffers can be allocated there. On an integrated GPU this may include heaps that are
    // not device-local: RADV reports a third of an APU's GPU memory as host memory.
    bool for_kernels = false;
};

// A device, in the loader's order.
struct Description {
    int index = 0;
    Kind kind = Kind::kDiscrete;
    std::string name;    // "AMD Radeon 8060S (RADV GFX1151)"
    std::string driver;  // "radv Mesa 25.2.3": VkPhysicalDeviceDriverProperties
    std::string api;     // "1.4.305"
    uint32_t vendor_id = 0, device_id = 0, driver_version = 0;
    std::vector<Heap> heaps;
    // Default subgroup size of the driver; for Intel, the size that kernels request.
    uint32_t subgroup = 0;
    uint32_t least_subgroup = 0, most_subgroup = 0;  // range that a kernel may request; equal: no
                                                     // choice
    uint32_t shared_bytes = 0;                       // per workgroup
    uint32_t most_invocations = 0;                   // per workgroup
    std::array<uint32_t, 3> most_groups{};           // of a Run in x, y, z: 65,535 on some devices
    bool integer_dot = false;                        // dot products of packed int8
    bool fast_integer_dot = false;    // and the driver says that the GPU has hardware for it
    bool float16 = false;  // float16 arithmetic, and other features of kernels for matrix units
    bool cooperative_matrix = false;  // f16 x f16 -> f32 of 16 x 16 x 16, per subgroup
    bool host_import = false;         // VK_EXT_external_memory_host
    bool unified = false;             // all device-local memory is mapped by the host
    float timestamp_ns = 0;           // per tick; 0: no timestamps
    // The reason why it can't be used: a missing feature, a lavapipe version with wrong results.
    // Empty: it can be opened.
    std::string unusable;
};
// "discrete", "integrated", "virtual", "cpu".
const char* KindName(Kind kind);

// Empty if the loader finds no device.
Result<std::vector<Description>> ListDevices();

// kDevice: memory that kernels read fastest. kHost: mapped and cached; the host and kernels read
// and write it.
// kMeeting: as kHost, and each side sees the other's writes while a submission runs, if the driver
// has memory with that guarantee (VK_AMD_device_coherent_memory: AMD's caches are not coherent with
// the host otherwise).
// kInbox: mapped; the host writes and kernels read it while a submission runs. On a card it is the
// card's own memory, if the host can map it: an NVIDIA card caches lines of host memory for the
// whole submission.
enum class Place { kDevice, kHost, kMeeting, kInbox };

// Memory of a device. The destructor frees it, after waiting for running submissions. Initial
// contents are undefined.
class Buffer {
  public:
    struct Held;  // gpu/memory.h
    Buffer();
    Buffer(std::unique_ptr<Held> held, uint64_t address, uint64_t size, std::byte* host);
    Buffer(Buffer&&) noexcept;
    Buffer& operator=(Buffer&&) noexcept;
    ~Buffer();

    uint64_t address() const { return address_; }
    uint64_t size_bytes() const { return size_; }
    // Null if the host can't access it. Writes of the host are visible to the next Submit; writes
    // of kernels are visible after Wait.
    std::byte* host() const { return host_; }
    const Held* held() const { return held_.get(); }

  private:
    std::unique_ptr<Held> held_;
    uint64_t address_ = 0, size_ = 0;
    std::byte* host_ = nullptr;
};

// A compute pipeline.
class Kernel {
  public:
    virtual ~Kernel() = default;
    virtual uint32_t subgroup() const = 0;  // subgroup size that it runs with
};

struct KernelCode {
    std::string_view name;                  // for errors and traces
    std::span<const uint32_t> spirv;        // entry point "main"
    uint32_t args_bytes = 0;                // of push constants, at most kMostArgsBytes
    std::span<const uint32_t> constants{};  // specialization constants 0, 1, ...
    uint32_t subgroup = 0;                  // required subgroup size; 0: the driver's choice
    // The kernel does nothing if the device's stop word is not 0 (shaders/guard.glsl).
    bool guarded = false;
};
inline constexpr uint32_t kMostArgsBytes = 128;

// Workgroups of a Run in x, y, z, starting at `first`. (In a kernel, gl_WorkGroupID starts at
// `first`, and gl_NumWorkGroups is `count`.)
struct WorkgroupCounts {
    std::array<uint32_t, 3> count{1, 1, 1}, first{};
};

// The contents of a submission: recorded once, submitted any number of times.
class Commands {
  public:
    virtual ~Commands() = default;
    // args: the kernel's push constants. If there are more workgroups than most_groups, End fails.
    virtual void Run(const Kernel& kernel, std::span<const std::byte> args,
                     const WorkgroupCounts& groups) = 0;
    void Run(const Kernel& kernel, std::span<const std::byte> args, uint32_t x, uint32_t y = 1,
             uint32_t z = 1) {
        Run(kernel, args, WorkgroupCounts{{x, y, z}});
    }
    virtual void Copy(const Buffer& from, uint64_t from_byte, const Buffer& to, uint64_t to_byte,
                      uint64_t bytes) = 0;
    virtual void Fill(const Buffer& buffer, uint64_t byte, uint64_t bytes, uint32_t word) = 0;
    // Later commands start after earlier ones have finished and their writes are visible.
    virtual void Barrier() = 0;
    // Records time i of the submission, when all earlier commands are done. At most kMostTimes.
    virtual void Time(uint32_t i) = 0;
    // Ends the recording. The host sees writes to host memory after Wait.
    virtual Status End() = 0;
};
inline constexpr uint32_t kMostTimes = 4096;

struct OpenOptions {
    // Enables the validation layer; each of its messages makes the next Wait fail (kIo). Errors:
    // kUnsupported if it is not installed.
    bool validate = false;
    std::string cache_folder{};  // for compiled pipelines; empty: none are stored
};

class Device {
  public:
    virtual ~Device() = default;
    static Result<std::shared_ptr<Device>> Open(int index, const OpenOptions& options = {});

    virtual const Description& description() const = 0;
    virtual std::vector<Heap> heaps() const = 0;  // current values
    // Errors: kOutOfMemory, with the size and the heaps' free bytes. Allocations of more than about
    // 1 GiB may exceed the driver's limit (most_buffer_bytes); callers must split them.
    virtual Result<Buffer> Allocate(uint64_t bytes, Place place) = 0;
    virtual uint64_t most_buffer_bytes() const = 0;
    // A buffer whose first word guarded kernels check; the rest of its 256 bytes belongs to the
    // caller. Not initialized.
    virtual const Buffer& stop_word() const = 0;
    virtual Result<std::unique_ptr<Kernel>> MakeKernel(const KernelCode& code) = 0;
    virtual Result<std::unique_ptr<Commands>> Record() = 0;
    // Submissions run in order. The Commands must live, and must not be submitted again, until a
    // later Wait has returned. Returns a number for Wait.
    virtual Result<uint64_t> Submit(const Commands& commands) = 0;
    // Waits until that submission and all earlier ones are done. Errors: kTimeout; the submissions
    // continue.
    virtual Status Wait(uint64_t submission, Deadline deadline) = 0;
    // Times of the commands' last submission that was waited for, in nanoseconds from Time(0).
    // Empty if the device has no timestamps, or none were recorded.
    virtual std::vector<int64_t> Times(const Commands& commands, uint32_t count) = 0;
    // kPeerLost once a call has reported the device as lost; nothing works after that.
    virtual Status status() const = 0;
};

}  // namespace weft::gpu
