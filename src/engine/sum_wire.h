// --allreduce-dtype, the element type in which tensor-parallel all-reduces are sent
// (backend::SumWire): names of the types, the choice of `auto`, and the tolerance for logits.
// docs/numbers.md derives the figures.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "backend/communicators.h"
#include "backend/device.h"
#include "base/result.h"
#include "coll/tuning.h"

namespace weft::engine {

const char* SumWireName(backend::SumWire wire);  // "auto", "f64", "f32", "bf16", "q8"
std::vector<std::string> SumWireNames();
// Errors: kUsage.
Result<backend::SumWire> ParseSumWire(std::string_view name);

// Checks that the device supports the type: f64 requires a device that sums in float64
// (program::Target::float64_reductions). Errors: kUsage.
Status CheckSumWire(backend::SumWire asked, const backend::DeviceInfo& device);

// Checks that --gpu-allreduce applies to the device. Errors: kUsage.
Status CheckDeviceSum(backend::DeviceSum asked, const backend::DeviceInfo& device);

// If all-reduces transfer fewer bytes per second than this, float64 all-reduces take at least a
// tenth of the time of a token (docs/collectives.md).
inline constexpr double kSlowWireBytesPerS = 400e6;

// The choice of `auto`: f32 if the device has no float64, or if the ranks are on several hosts and
// the measured times in `tuning` show less than kSlowWireBytesPerS. Otherwise f64.
backend::SumWire AutoSumWire(const backend::DeviceInfo& device, bool several_hosts,
                             const coll::Tuning& tuning);

// Largest relative difference from the logits of one rank that the type of the all-reduces alone
// may cause: twice the measured difference. A small difference in a sum can change how later values
// are rounded (in a float16 cache and, if `rounded`, in int8 or BF16 activations), so these values
// can differ by as much as one rounding step.
double SumWireTolerance(backend::SumWire wire, bool rounded);

}  // namespace weft::engine
