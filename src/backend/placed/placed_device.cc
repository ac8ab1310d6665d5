#include "backend/placed/placed_device.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "backend/placed/placed_executable.h"
#include "base/log.h"

namespace weft::backend {
namespace {

class PlacedDevice final : public Device {
  public:
    PlacedDevice(std::shared_ptr<Device> device, std::shared_ptr<Device> host,
                 const program::HostOps& host_ops)
        : device_(std::move(device)),
          host_(std::move(host)),
          host_ops_(host_ops),
          info_(DescribePlaced(device_->info(), host_->info(), host_ops)) {}

    const DeviceInfo& info() const override { return info_; }
    MemoryPool pool() const override { return device_->pool(); }
    Status status() const override { return device_->status(); }
    Result<std::unique_ptr<Executable>> Compile(program::ChunkedProgram program,
                                                const CompileOptions& options) override;
    ThreadTeam& host_team() override { return host_->host_team(); }
    double MeasurePeak(DType compute) override { return device_->MeasurePeak(compute); }

  private:
    Result<std::unique_ptr<Executable>> CompileToFit(program::HostOps ops,
                                                     const program::ChunkedProgram& program,
                                                     const CompileOptions& options);
    Result<std::unique_ptr<Executable>> CompileWith(const program::HostOps& host_ops,
                                                    const program::ChunkedProgram& program,
                                                    const CompileOptions& options);

    const std::shared_ptr<Device> device_, host_;
    const program::HostOps host_ops_;
    DeviceInfo info_;
};

Result<std::unique_ptr<Executable>> PlacedDevice::Compile(program::ChunkedProgram program,
                                                          const CompileOptions& options) {
    if (!program.chunks.empty()) {
        return MakeError(
            ErrorCode::kUnsupported,
            "{}: training runs all ops on one device. Leave out --experts and --gpu-layers",
            info_.name);
    }
    // Experts on the drive are not streamed: the processor reads only experts that rows chose. Nor
    // are experts of a device whose memory cannot hold their buffers.
    program::HostOps ops = host_ops_;
    if (options.drive_memory > 0 || !info_.submits) ops.stream_rows = 0;
    auto compiled = CompileToFit(ops, program, options);
    const bool again =
        ops.stream_rows != 0 && !compiled.ok() && compiled.error().code == ErrorCode::kOutOfMemory;
    ops.stream_rows = 0;
    return again ? CompileToFit(ops, program, options) : std::move(compiled);
}

// Whether the error may come from ops that the other device runs: this one has no memory, no
// kernel, or no buffer of their size for them.
bool IsOfDevice(const Error& error) {
    return error.code == ErrorCode::kOutOfMemory || error.code == ErrorCode::kUnsupported;
}

// The number of layers that leave their experts is as few as the device demands.
Result<std::unique_ptr<Executable>> PlacedDevice::CompileToFit(
    program::HostOps ops, const program::ChunkedProgram& program, const CompileOptions& options) {
    if (!ops.fill) return CompileWith(ops, program, options);
    ops.fill = false;
    auto compiled = CompileWith(ops, program, options);
    if (compiled.ok() || !IsOfDevice(compiled.error())) return compiled;
    const Error of_device = compiled.error();
    int64_t too_few = ops.expert_layers, enough = program::ExpertLayersEnd(program.program);
    ops.expert_layers = enough;
    compiled = CompileWith(ops, program, options);
    if (!compiled.ok() && of_device.code == ErrorCode::kUnsupported) return of_device;
    while (compiled.ok() && enough - too_few > 1) {
        ops.expert_layers = (too_few + enough) / 2;
        auto tried = CompileWith(ops, program, options);
        (tried.ok() ? enough : too_few) = ops.expert_layers;
        if (tried.ok()) compiled = std::move(tried);
    }
    if (compiled.ok()) {
        Log(LogLevel::kInfo, "{}: the processor computes the experts of layers 0 to {}", info_.name,
            enough - 1);
    }
    return compiled;
}

Result<std::unique_ptr<Executable>> PlacedDevice::CompileWith(
    const program::HostOps& host_ops, const program::ChunkedProgram& program,
    const CompileOptions& options) {
    const std::vector<bool> on_host = program::ChooseHostOps(program.program, host_ops);
    if (std::ranges::find(on_host, true) == on_host.end()) {
        return device_->Compile(program, options);
    }
    const auto compile = [&](int64_t stream_rows) {
        return CompilePlaced(program.program, on_host, *device_, *host_, options, stream_rows);
    };
    auto compiled = compile(host_ops.stream_rows);
    const bool again = host_ops.stream_rows != 0 && !compiled.ok() &&
                       compiled.error().code == ErrorCode::kUnsupported;
    if (!again) return compiled;
    auto handed = compile(0);
    if (handed.ok()) {
        Log(LogLevel::kWarning, "{}: the processor computes its experts in all steps: {}",
            info_.name, compiled.error().message);
    }
    return handed;
}

}  // namespace

DeviceInfo DescribePlaced(DeviceInfo device, const DeviceInfo& host,
                          const program::HostOps& host_ops) {
    device.identity = fmt::format("{}, with {}{} layers' experts and {} layers on {}",
                                  device.identity, host_ops.fill ? "at least " : "",
                                  host_ops.expert_layers, host_ops.layers, host.identity);
    device.uses_host_cores = true;
    return device;
}

std::shared_ptr<Device> MakePlacedDevice(std::shared_ptr<Device> device,
                                         std::shared_ptr<Device> host,
                                         const program::HostOps& host_ops) {
    return std::make_shared<PlacedDevice>(std::move(device), std::move(host), host_ops);
}

}  // namespace weft::backend
