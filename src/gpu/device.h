// GPUs through one of several drivers: lists devices, and opens one.
//
// Each driver has a folder here, and only that folder calls the driver's functions. A driver's
// library is opened at its first use, so Weft also runs on hosts without it. Kernels are SPIR-V;
// their arguments are device addresses and numbers.
//
//     WEFT_ASSIGN(auto device, Device::Open(Api::kVulkan, 0));
//     WEFT_ASSIGN(Buffer buffer, device->Allocate(bytes, Place::kDevice));
//     WEFT_ASSIGN(auto kernel, device->MakeKernel(code));
//     WEFT_ASSIGN(auto commands, device->Record());
//     commands->Run(*kernel, args, x);  commands->End();  // then Submit, Wait
//
// Errors: kUnsupported (no library, no device, or a missing feature; the message names what is
// missing and what to install), kNotFound (no device of this index), kOutOfMemory, kPeerLost (the
// device is lost), kIo (any other call that failed, with its name and result).
// Thread: one caller for a Device and all objects made from it, except Allocate and Buffer's
// destructor.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/deadline.h"
#include "base/result.h"

namespace weft::gpu {

// The interface of a driver. If several can use a card, the first is preferred.
enum class Api { kVulkan, kCuda, kHip };
inline constexpr std::array kApis = {Api::kVulkan, Api::kCuda, Api::kHip};
const char* ApiName(Api api);   // as in --device: "vulkan", "cuda", "hip"
const char* ApiTitle(Api api);  // for messages: "Vulkan", "CUDA", "HIP"
// Whether the driver is for GPUs of this PCI vendor.
bool IsFor(Api api, uint32_t vendor_id);
// The advice to a user whose driver finds no device.
std::string DriverAdvice(Api api);

enum class Kind { kDiscrete, kIntegrated, kVirtual, kCpu };  // kCpu: lavapipe and the like

struct Heap {
    uint64_t total_bytes = 0;
    uint64_t free_bytes = 0;  // from VK_EXT_memory_budget; without this extension, the total size
    bool device_local = false;
    // Whether buffers for kernels can be allocated in this heap. On an integrated GPU, heaps that
    // are not device-local may be among them: RADV reports a third of an APU's GPU memory as host
    // memory.
    bool for_kernels = false;
};

// Matrices of a subgroup: f16 of m x k elements times f16 of k x n, summed in f32.
struct MatrixUnit {
    uint32_t m = 0, n = 0, k = 0;
    bool operator==(const MatrixUnit&) const = default;
};

// A device.
struct Description {
    Api api = Api::kVulkan;
    int index = 0;  // among the devices of this API
    Kind kind = Kind::kDiscrete;
    std::string name;         // "AMD Radeon 8060S (RADV GFX1151)"
    std::string driver;       // "radv Mesa 25.2.3": VkPhysicalDeviceDriverProperties
    std::string api_version;  // "1.4.305"
    // PCI address, "0000:c1:00.0", by which a card's devices of several APIs are recognized; "" if
    // the driver does not report it.
    std::string pci;
    uint32_t vendor_id = 0, device_id = 0, driver_version = 0;
    std::vector<Heap> heaps;
    // Default subgroup size of the driver; for Intel, the size that kernels request.
    uint32_t subgroup = 0;
    uint32_t least_subgroup = 0, most_subgroup = 0;  // range of sizes that a kernel may request; if
                                                     // both are equal, there is no choice
    uint32_t shared_bytes = 0;                       // per workgroup
    uint32_t most_invocations = 0;                   // per workgroup
    std::array<uint32_t, 3> most_groups{};           // most workgroups of a Run in x, y, z; 65,535
                                                     // on some devices
    bool integer_dot = false;                        // dot products of packed int8
    bool fast_integer_dot = false;  // the driver reports that the GPU has hardware for these
                                    // products
    bool float16 = false;  // float16 arithmetic, and other features of kernels for matrix units
    bool cooperative_matrix = false;  // matrix units with a size that kernels support
    MatrixUnit matrix_unit;           // if so: the size
    bool host_import = false;         // VK_EXT_external_memory_host
    bool unified = false;             // all device-local memory is mapped by the host
    float timestamp_ns = 0;           // per tick; 0: no timestamps
    // The reason why the device can't be used, such as a missing feature or a lavapipe version with
    // wrong results. Empty if the device can be opened.
    std::string unusable;
    bool hidden = false;  // unusable by the user's choice: CUDA_VISIBLE_DEVICES and the like
};
// "discrete", "integrated", "virtual", "cpu".
const char* KindName(Kind kind);

// Lists the devices in the driver's order; GPUs of Vulkan that CUDA_VISIBLE_DEVICES or
// HIP_VISIBLE_DEVICES name, in the order of the variable (visible.h). The list is empty if the
// driver finds none.
Result<std::vector<Description>> ListDevices(Api api);

// Where a buffer is allocated. kDevice: memory that kernels read fastest. kHost: mapped and cached
// memory that the host and kernels read and write.
// kMeeting: as kHost, for data that the host and a running submission exchange. If the driver has
// memory with that guarantee, the host and kernels see each other's writes while the submission
// runs. (On AMD, VK_AMD_device_coherent_memory provides such memory; without it, the caches are not
// coherent with the host.)
// kInbox: mapped memory that the host writes and kernels read while a submission runs. On a card,
// it is the card's own memory if the host can map that. The reason: an NVIDIA card caches lines of
// host memory for the whole submission, so its kernels would not see later writes.
enum class Place { kDevice, kHost, kMeeting, kInbox };

// Memory of a device. The destructor frees it, after waiting for running submissions. Initial
// contents are undefined.
class Buffer {
  public:
    // The driver's object. Its destructor frees the memory.
    struct Held {
        virtual ~Held() = default;
    };
    Buffer();
    Buffer(std::unique_ptr<Held> held, uint64_t address, uint64_t size, std::byte* host);
    Buffer(Buffer&&) noexcept;
    Buffer& operator=(Buffer&&) noexcept;
    ~Buffer();

    uint64_t address() const { return address_; }
    uint64_t size_bytes() const { return size_; }
    // The buffer's address on the host; null if the host can't access the buffer. Writes of the
    // host are visible to commands that are submitted afterward. Writes of kernels are visible to
    // the host after Wait.
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
    virtual uint32_t subgroup() const = 0;  // the kernel's subgroup size
};

struct KernelCode {
    std::string_view name;                  // for errors and traces
    std::span<const uint32_t> spirv;        // entry point "main"
    uint32_t args_bytes = 0;                // size of the push constants, at most kMostArgsBytes
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

// Checks that a device has so many workgroups. who: the device, for the error. Errors:
// kUnsupported.
Status CheckGroups(const Description& device, const std::string& who,
                   const WorkgroupCounts& groups);

// The contents of a submission: recorded once, submitted any number of times.
class Commands {
  public:
    virtual ~Commands() = default;
    // kernel: must outlive the commands. args: the kernel's push constants. If there are more
    // workgroups than most_groups, End fails.
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
    // Records time i of the submission: the time at which all earlier commands are done. i is below
    // kMostTimes.
    virtual void Time(uint32_t i) = 0;
    // Ends the recording. Writes of the commands to host memory are visible to the host after Wait.
    virtual Status End() = 0;
};
inline constexpr uint32_t kMostTimes = 4096;

struct OpenOptions {
    // Vulkan: enables the validation layer; each of its messages makes the next Wait fail (kIo).
    // Errors: kUnsupported if it is not installed.
    bool validate = false;
    std::string cache_folder{};  // folder for compiled pipelines; empty: they are not stored
    // CUDA, HIP: whether no further kernel is to be compiled; then Commands::End returns
    // kCancelled. Called from several threads.
    std::function<bool()> stopped{};
};

// Names memory of a device for other processes of the host.
struct SharedHandle {
    std::array<std::byte, 64> bytes{};
};

class Device {
  public:
    virtual ~Device() = default;
    static Result<std::shared_ptr<Device>> Open(Api api, int index,
                                                const OpenOptions& options = {});

    virtual const Description& description() const = 0;
    virtual std::vector<Heap> heaps() const = 0;  // current values
    // Errors: kOutOfMemory, with the size and the heaps' free bytes. An allocation of more than
    // about 1 GiB may exceed the driver's limit (most_buffer_bytes); the caller must split it.
    virtual Result<Buffer> Allocate(uint64_t bytes, Place place) = 0;
    virtual uint64_t most_buffer_bytes() const = 0;
    // Memory of this device that devices of other processes may access, by the handle. Errors: also
    // kUnsupported.
    virtual Result<Buffer> AllocateShared(uint64_t bytes, SharedHandle& handle);
    // Memory that another process of this host has allocated with AllocateShared on the device at
    // PCI address `pci`, for kernels of this device. Both see each other's writes as in kMeeting.
    // Errors: kUnsupported (the device cannot access the other one).
    virtual Result<Buffer> OpenShared(const SharedHandle& handle, const std::string& pci,
                                      uint64_t bytes);
    // A buffer of 256 bytes. Guarded kernels check its first word; the caller may use the rest. It
    // is not initialized.
    virtual const Buffer& stop_word() const = 0;
    // CUDA and HIP compile kernels when the first recording that runs one ends, all kernels made so
    // far at the same time. Errors of the compiler come from Commands::End.
    virtual Result<std::unique_ptr<Kernel>> MakeKernel(const KernelCode& code) = 0;
    virtual Result<std::unique_ptr<Commands>> Record() = 0;
    // Submits the commands and returns a number for Wait. Submissions run in order. Until a later
    // Wait has returned, `commands` must exist and must not be submitted again.
    virtual Result<uint64_t> Submit(const Commands& commands) = 0;
    // Waits until that submission and all earlier ones are done. Errors: kTimeout (the submissions
    // continue).
    virtual Status Wait(uint64_t submission, Deadline deadline) = 0;
    // The first `count` times of the last submission of `commands` that was waited for, in
    // nanoseconds from time 0. Empty if the device has no timestamps, or none were recorded.
    virtual std::vector<int64_t> Times(const Commands& commands, uint32_t count) = 0;
    // Returns kPeerLost once a call has reported that the device is lost. After that, no call
    // works.
    virtual Status status() const = 0;
};

}  // namespace weft::gpu
