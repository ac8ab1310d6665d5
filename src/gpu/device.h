// GPUs through Vulkan 1.2 compute: which there are, and one that is open.
//
// All that knows a vk* name is in this folder. libvulkan.so.1 is opened when it is first asked for,
// so that a weft without it runs on the CPU; kernels have device addresses among their push
// constants, and no descriptors but that of the stop word.
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
// Thread: one caller for a Device and all that it made, but for Allocate and Buffer's end.
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
    uint64_t free_bytes = 0;  // by VK_EXT_memory_budget; total where the driver does not say
    bool device_local = false;
    // Buffers of kernels can lie there. Of an integrated GPU that may be heaps that are not
    // device-local: RADV calls a third of what the GPU has of an APU's memory the host's.
    bool for_kernels = false;
};

// One that the loader lists, in its order.
struct Description {
    int index = 0;
    Kind kind = Kind::kDiscrete;
    std::string name;    // "AMD Radeon 8060S (RADV GFX1151)"
    std::string driver;  // "radv Mesa 25.2.3": VkPhysicalDeviceDriverProperties
    std::string api;     // "1.4.305"
    uint32_t vendor_id = 0, device_id = 0, driver_version = 0;
    std::vector<Heap> heaps;
    // As the driver runs by itself; of Intel's, what kernels ask for.
    uint32_t subgroup = 0;
    uint32_t least_subgroup = 0, most_subgroup = 0;  // that a kernel may ask for; equal: no choice
    uint32_t shared_bytes = 0;                       // of a workgroup
    uint32_t most_invocations = 0;                   // of a workgroup
    std::array<uint32_t, 3> most_groups{};           // of a Run in x, y, z: 65,535 on some
    bool integer_dot = false;                        // of packed int8
    bool fast_integer_dot = false;    // and the driver says that this is what the GPU has units for
    bool float16 = false;             // arithmetic, and what else kernels for matrix units use
    bool cooperative_matrix = false;  // f16 x f16 -> f32 of 16 x 16 x 16, by a subgroup
    bool host_import = false;         // VK_EXT_external_memory_host
    bool unified = false;             // device-local memory that the host maps, and no other
    float timestamp_ns = 0;           // of one tick; 0: no timestamps
    // What stands against its use: a feature that is missing, a lavapipe that computes wrongly.
    // Empty: it can be opened.
    std::string unusable;
};
// "discrete", "integrated", "virtual", "cpu".
const char* KindName(Kind kind);

// An empty list where the loader has none.
Result<std::vector<Description>> ListDevices();

// kDevice: where kernels read fastest. kHost: mapped and cached, written and read by both.
// kMeeting: the same, and each sees what the other writes while a submission runs, where the driver
// has memory of which that is said (VK_AMD_device_coherent_memory: AMD's caches do not hear of the
// host).
// kInbox: mapped; the host writes, kernels read while a submission runs. On a card it is its own
// memory, where there is a window to it: caches of an NVIDIA card keep lines of the host's memory
// for as long as a submission runs.
enum class Place { kDevice, kHost, kMeeting, kInbox };

// Memory of a device, freed at its end (which waits for submissions that run). At first it holds
// anything.
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
    // Null where the host has no way to it. What the host writes is there for the next Submit, what
    // kernels wrote is there after Wait.
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
    virtual uint32_t subgroup() const = 0;  // that it runs with
};

struct KernelCode {
    std::string_view name;                  // for errors and traces
    std::span<const uint32_t> spirv;        // entry point "main"
    uint32_t args_bytes = 0;                // of push constants, at most kMostArgsBytes
    std::span<const uint32_t> constants{};  // specialization constants 0, 1, ...
    uint32_t subgroup = 0;                  // that it must run with; 0: the driver's choice
    // Where the device's stop word is not 0, the kernel does nothing (shaders/guard.glsl).
    bool guarded = false;
};
inline constexpr uint32_t kMostArgsBytes = 128;

// Workgroups of a Run in x, y, z: those that begin at `first`. (In a kernel gl_WorkGroupID counts
// from there, gl_NumWorkGroups is `count`.)
struct Groups {
    std::array<uint32_t, 3> count{1, 1, 1}, first{};
};

// What one submission runs, recorded once, submitted any number of times.
class Commands {
  public:
    virtual ~Commands() = default;
    // More workgroups than most_groups make End fail. args: the kernel's push constants.
    virtual void Run(const Kernel& kernel, std::span<const std::byte> args,
                     const Groups& groups) = 0;
    void Run(const Kernel& kernel, std::span<const std::byte> args, uint32_t x, uint32_t y = 1,
             uint32_t z = 1) {
        Run(kernel, args, Groups{{x, y, z}});
    }
    virtual void Copy(const Buffer& from, uint64_t from_byte, const Buffer& to, uint64_t to_byte,
                      uint64_t bytes) = 0;
    virtual void Fill(const Buffer& buffer, uint64_t byte, uint64_t bytes, uint32_t word) = 0;
    // What was recorded before is done, and its writes are seen, before what follows begins.
    virtual void Barrier() = 0;
    // Time i of this submission is when all before is done. At most kMostTimes of them.
    virtual void Time(uint32_t i) = 0;
    // Ends the recording. Writes to host memory are seen by the host after Wait.
    virtual Status End() = 0;
};
inline constexpr uint32_t kMostTimes = 4096;

struct OpenOptions {
    // The validation layer; each message is a failure (kIo) of the next Wait. kUnsupported where it
    // is not installed.
    bool validate = false;
    std::string cache_folder{};  // of compiled pipelines; empty: none is kept
};

class Device {
  public:
    virtual ~Device() = default;
    static Result<std::shared_ptr<Device>> Open(int index, const OpenOptions& options = {});

    virtual const Description& description() const = 0;
    virtual std::vector<Heap> heaps() const = 0;  // as they are now
    // kOutOfMemory: the message has the sum and what the heaps have. Larger than 1 GiB or so may
    // fail where the driver forbids it; callers cut.
    virtual Result<Buffer> Allocate(uint64_t bytes, Place place) = 0;
    virtual uint64_t most_buffer_bytes() const = 0;
    // Its first word is what guarded kernels look at; the others of its 256 bytes are the caller's.
    // Nothing has filled it.
    virtual const Buffer& stop_word() const = 0;
    virtual Result<std::unique_ptr<Kernel>> MakeKernel(const KernelCode& code) = 0;
    virtual Result<std::unique_ptr<Commands>> Record() = 0;
    // Submissions run in order. The Commands must live, and not be submitted again, until a Wait
    // after it has returned. Returns a number for Wait.
    virtual Result<uint64_t> Submit(const Commands& commands) = 0;
    // Until that submission and all before are done. kTimeout: not by then, they go on.
    virtual Status Wait(uint64_t submission, Deadline deadline) = 0;
    // Of the submission of these commands that was waited for last: nanoseconds, Time(0) is 0.
    // Empty where the device tells no times, or these were not recorded.
    virtual std::vector<int64_t> Times(const Commands& commands, uint32_t count) = 0;
    // kPeerLost once a call said that the device is lost; nothing works after that.
    virtual Status status() const = 0;
};

}  // namespace weft::gpu
