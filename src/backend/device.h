// Device: what a rank computes on, opened by its name. Together with Executable (executable.h) it
// is the border: nothing above backend/ knows one device from another, and a new device is a folder
// in backend/ and a line in device.cc.
//
//     WEFT_ASSIGN(auto device, OpenDevice("cpu", options));
//     ... build a Program for device->info().target
//     WEFT_ASSIGN(auto executable, device->Compile({program}, compile));
//
// Thread: one caller. A Device outlives what it compiled; several Executables of one Device run one
// after the other.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "backend/executable.h"
#include "base/result.h"
#include "program/program.h"
#include "program/target.h"

namespace weft::backend {

// What a rank may use of its host.
struct DeviceOptions {
    int threads = 1;
    std::vector<int> cores;     // to pin threads to; empty: not pinned
    bool cores_shared = false;  // more ranks than cores: do not spin for long
    bool reference = false;     // the kernels that define what is right, slow
    bool exact = false;         // activations are rounded to nothing narrower than float32
    int local_rank = 0;         // among the ranks of the host, which share out its GPUs
};

// Memory that a device's values live in. Unified: the host's own, read and written in place by
// both.
enum class MemoryKind { kHost, kDevice, kUnified };
struct MemoryPool {
    MemoryKind kind = MemoryKind::kHost;
    uint64_t total_bytes = 0, free_bytes = 0;
    uint64_t held_bytes = 0;  // by this process
    // Whether what is held of it counts for the memory limit of the process's control group.
    bool limited = true;
};

struct DeviceInfo {
    std::string name;                        // as --device takes it: "cpu", "vulkan:0"
    std::string hardware;                    // for people: the processor's or the GPU's name
    std::string kernels;                     // those that run on it: "avx2", "vulkan"
    std::vector<std::string> kernels_built;  // all that this weft has for its kind
    // What its numbers depend on. Devices of one identity give the same bits; tensor ranks of other
    // identities would not hold the same replicated state.
    std::string identity;
    program::Target target;
    // It computes on the cores that also move values between ranks of one host: there a transfer
    // beside the arithmetic takes more than it gives.
    bool uses_host_cores = true;
    bool submits = false;         // work is submitted to it: CompileOptions::device_sum matters
    std::string backend = "CPU";  // as benchmarks name its kind
};

class Device {
  public:
    virtual ~Device() = default;
    virtual const DeviceInfo& info() const = 0;
    // Where its values live, as it is now.
    virtual MemoryPool pool() const = 0;
    // kPeerLost, once it does not answer any more: nothing runs on it then.
    virtual Status status() const { return {}; }
    // A Program of inference has no chunks. Errors: kUnsupported (an op or a type that the device
    // does not run), kOutOfMemory.
    virtual Result<std::unique_ptr<Executable>> Compile(program::ChunkedProgram program,
                                                        const CompileOptions& options) = 0;
    // FLOP/s of matrix products in this type, at most: measured for some 20 ms. 0: not known.
    virtual double MeasurePeak(DType compute) = 0;
};

inline constexpr const char* kDefaultDevice = "cpu";
inline constexpr const char* kAutoDevice = "auto";
// What CheckDeviceName takes, for --help.
inline constexpr const char* kDeviceNames =
    "cpu, vulkan (the first GPU), vulkan:N, auto (a GPU that the model fits into, else cpu)";

// Whether a device may have this name; on another host, perhaps. Errors: kUsage (none has; the
// message lists the names), kUnsupported (this weft was built without).
Status CheckDeviceName(std::string_view name);
// auto: the best that opens, with a warning for each that does not. Errors: those of
// CheckDeviceName, kNotFound (this host has none), kUnsupported (it lacks a feature or its driver).
Result<std::shared_ptr<Device>> OpenDevice(const std::string& name, const DeviceOptions& options);
// What opening it would say, without its threads and memory.
Result<DeviceInfo> DescribeDevice(const std::string& name, const DeviceOptions& options = {});
// The same of its memory. Of `auto`: the first whose memory has `needed_bytes` free.
Result<MemoryPool> DescribePool(const std::string& name, uint64_t needed_bytes = 0);

// What `auto` may be on this host.
struct AutoChoice {
    // Best first: GPUs that can be used (cards before those that share the processor's memory, of
    // equals each rank of a host another one first), then "cpu". A processor that stands in for a
    // GPU is not among them.
    std::vector<std::string> names;
    std::string left_out;  // GPUs that can't be used, and why; "": none
};
AutoChoice ChooseAuto(const DeviceOptions& options);

}  // namespace weft::backend
