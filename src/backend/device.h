// Device: the hardware that a rank computes on, opened by name. Device and Executable
// (executable.h) are the only interface to devices: code outside of backend/ does not depend on
// which device it uses. A new device is a folder in backend/ and a line in device.cc.
//
//     WEFT_ASSIGN(auto device, OpenDevice("cpu", options));
//     ... build a Program for device->info().target
//     WEFT_ASSIGN(auto executable, device->Compile({program}, compile));
//
// Thread: one caller. A Device must outlive its Executables. Several Executables of one Device run
// one after another.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "backend/executable.h"
#include "backend/thread_team.h"
#include "base/result.h"
#include "program/placement.h"
#include "program/program.h"
#include "program/target.h"

namespace weft::backend {

// The part of a host that a rank may use.
struct DeviceOptions {
    int threads = 1;
    std::vector<int> cores;       // threads are pinned to these; empty: not pinned
    bool cores_shared = false;    // more ranks than cores: do not spin for long
    bool reference = false;       // use the reference kernels: slow, they define the results
    bool exact = false;           // never round activations to fewer bits than float32
    program::HostOps host_ops{};  // ops that the host's processor runs beside a GPU
    int local_rank = 0;  // number of this rank among the ranks of its host; selects its GPU
    // Whether the user asked to stop; then a GPU compiles no further kernel, and the step that
    // needs one fails (kCancelled). Called from several threads.
    std::function<bool()> stopped{};
};

// Kind of memory that holds a device's values. kUnified: the host and the device access the same
// memory directly.
enum class MemoryKind { kHost, kDevice, kUnified };
struct MemoryPool {
    MemoryKind kind = MemoryKind::kHost;
    uint64_t total_bytes = 0, free_bytes = 0;
    uint64_t held_bytes = 0;  // bytes that this process has allocated
    // Whether memory held in this pool counts toward the memory limit of the process's control
    // group.
    bool limited = true;
};

struct DeviceInfo {
    std::string name;                        // as in --device: "cpu", "vulkan:0"
    std::string hardware;                    // display name of the processor or GPU
    std::string kernels;                     // kernels in use: "avx2", "vulkan"
    std::vector<std::string> kernels_built;  // all kernels in this build for this kind
    // Text for everything about the device that affects the bits of results. Devices with the same
    // identity give the same bits. Tensor ranks must have the same identity, because their
    // replicated values must be equal.
    std::string identity;
    program::Target target;
    // Whether the device computes on the host's cores. Those cores also move values between ranks
    // of one host, so running a transfer beside computation costs more time than it saves.
    bool uses_host_cores = true;
    bool submits = false;         // executes submissions, so CompileOptions::device_sum applies
    std::string backend = "CPU";  // kind of device as benchmarks show it
};

class Device {
  public:
    virtual ~Device() = default;
    virtual const DeviceInfo& info() const = 0;
    // The memory that holds the device's values, measured now.
    virtual MemoryPool pool() const = 0;
    // Returns kPeerLost once the device has stopped responding. After that, nothing runs on the
    // device.
    virtual Status status() const { return {}; }
    // Compiles a Program; Programs of inference have no chunks. Errors: kUnsupported (an op or a
    // type that the device does not run), kOutOfMemory.
    virtual Result<std::unique_ptr<Executable>> Compile(program::ChunkedProgram program,
                                                        const CompileOptions& options) = 0;
    // Threads of the host for work between two steps, such as sampling. On a processor, they are
    // the threads that compute steps. Default: only the calling thread.
    virtual ThreadTeam& host_team() { return caller_; }
    // Peak FLOP/s of matrix products in this type, measured for about 20 ms. 0: unknown.
    virtual double MeasurePeak(DType compute) = 0;

  private:
    ThreadTeam caller_{TeamOptions()};
};

inline constexpr const char* kDefaultDevice = "cpu";
inline constexpr const char* kAutoDevice = "auto";
// The names that CheckDeviceName accepts, as text for --help.
inline constexpr const char* kDeviceNames =
    "cpu, vulkan, cuda or hip (a GPU through this driver, discrete first; local ranks take the "
    "GPUs of that kind in turn), vulkan:N, cuda:N, hip:N, auto (a GPU that the model fits into, "
    "else cpu)";

// Checks that `name` is a device name. The device need not be on this host. Errors: kUsage (not a
// device name; the message lists the names), kUnsupported (this build lacks that kind).
Status CheckDeviceName(std::string_view name);
// Opens the device `name`. For "auto", opens the best device that works, and warns about each
// better one that does not work. Errors: those of CheckDeviceName, kNotFound (not on this host),
// kUnsupported (the device lacks a feature, or the host lacks the device's driver).
Result<std::shared_ptr<Device>> OpenDevice(const std::string& name, const DeviceOptions& options);
// The DeviceInfo that OpenDevice would return, without creating threads or allocating memory.
Result<DeviceInfo> DescribeDevice(const std::string& name, const DeviceOptions& options = {});
// The memory of the device `name`, which is not "auto".
Result<MemoryPool> DescribePool(const std::string& name);

// The candidates for `auto` on this host.
struct AutoChoice {
    // Best first: usable GPUs, then "cpu". Discrete GPUs come before GPUs that share the
    // processor's memory. Each local rank begins with another GPU of a kind. GPUs emulated in
    // software are excluded.
    std::vector<std::string> names;
    std::string left_out;  // unusable GPUs with reasons; "": none
};
AutoChoice ChooseAuto(const DeviceOptions& options);

}  // namespace weft::backend
