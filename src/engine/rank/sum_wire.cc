#include "engine/rank/sum_wire.h"

#include <fmt/ranges.h>

#include <array>

#include "backend/device_list.h"

namespace weft::engine {
namespace {

using backend::SumWire;

constexpr std::array kSumWires{SumWire::kAuto, SumWire::kF64, SumWire::kF32, SumWire::kBF16,
                               SumWire::kQ8};

}  // namespace

const char* SumWireName(SumWire wire) {
    switch (wire) {
        case SumWire::kAuto: return "auto";
        case SumWire::kF64: return "f64";
        case SumWire::kF32: return "f32";
        case SumWire::kBF16: return "bf16";
        case SumWire::kQ8: return "q8";
    }
    return "?";
}

std::vector<std::string> SumWireNames() {
    std::vector<std::string> names;
    for (const SumWire wire : kSumWires) names.emplace_back(SumWireName(wire));
    return names;
}

Result<SumWire> ParseSumWire(std::string_view name) {
    for (const SumWire wire : kSumWires) {
        if (name == SumWireName(wire)) return wire;
    }
    return MakeError(ErrorCode::kUsage, "--allreduce-dtype {}: expected {}", name,
                     fmt::join(SumWireNames(), ", "));
}

Status CheckSumWire(SumWire asked, const backend::DeviceInfo& device, std::string_view flag) {
    if (asked != SumWire::kF64 || device.target.float64_reductions) return {};
    return MakeError(
        ErrorCode::kUsage,
        "{} f64: the device {} ({}) sums in float32, so its ranks have no float64 to send. Use {} "
        "auto or f32",
        flag, device.name, device.hardware, flag);
}

SumWire KeptWire(SumWire asked, SumWire chosen, std::string_view devices) {
    if (asked != SumWire::kAuto || chosen == SumWire::kAuto) return asked;
    return chosen == SumWire::kF64 && backend::HasAuto(devices) ? asked : chosen;
}

Status CheckDeviceSum(backend::DeviceSum asked, const backend::DeviceInfo& device) {
    const bool needs_gpu = asked == backend::DeviceSum::kSpin || asked == backend::DeviceSum::kPeer;
    if (!needs_gpu || device.submits) return {};
    const bool spins = asked == backend::DeviceSum::kSpin;
    return MakeError(
        ErrorCode::kUsage,
        "--gpu-allreduce {}: the device {} ({}) {}. Use --gpu-allreduce auto, or a GPU: --device "
        "{}",
        spins ? "spin" : "peer", device.name, device.hardware,
        spins ? "runs no submissions, so it cannot wait within one" : "is not a GPU",
        spins ? "vulkan" : "cuda or hip");
}

SumWires AutoSumWires(bool float64_reductions, bool submits, double bytes_per_s) {
    SumWires wires;
    wires.all = float64_reductions ? SumWire::kF64 : SumWire::kF32;
    const double limit = submits ? kSlowGpuPromptBytesPerS : kSlowPromptBytesPerS;
    const bool slow = bytes_per_s > 0 && bytes_per_s < limit;
    wires.prompts = slow ? SumWire::kBF16 : wires.all;
    return wires;
}

SumWires AutoSumWires(const backend::DeviceInfo& device, bool several_hosts,
                      const coll::Tuning& tuning) {
    const double us_a_byte = several_hosts ? coll::UsAByte(tuning) : 0;
    const double bytes_per_s = us_a_byte > 0 ? 1e6 / us_a_byte : 0;
    return AutoSumWires(device.target.float64_reductions, device.submits, bytes_per_s);
}

double SumWireTolerance(SumWire wire, bool rounded) {
    switch (wire) {
        case SumWire::kAuto:
        case SumWire::kF64: return 0;
        case SumWire::kF32: return rounded ? 6e-2 : 4e-3;
        case SumWire::kBF16: return 0.1;
        case SumWire::kQ8: return 0.4;
    }
    return 0;
}

}  // namespace weft::engine
