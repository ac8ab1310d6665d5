// --allreduce-dtype: what the tensor ranks' sums cross the links as (backend::SumWire): its words,
// what `auto` comes to, and how far a narrower one may move the logits. docs/numbers.md derives the
// figures.
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

// Whether a device has what is asked for: float64 only where its sums are float64
// (program::Target::float64_reductions). Errors: kUsage.
Status CheckSumWire(backend::SumWire asked, const backend::DeviceInfo& device);

// Whether --gpu-allreduce means something to it. Errors: kUsage.
Status CheckDeviceSum(backend::DeviceSum asked, const backend::DeviceInfo& device);

// Below so many bytes of a sum a second, sums at float64 take a tenth of a token and more:
// docs/collectives.md.
inline constexpr double kSlowWireBytesPerS = 400e6;

// What `auto` comes to: f32 where the device has no float64, and where the ranks are on several
// hosts and the group's table was measured and says that the wire is slow. Else f64.
backend::SumWire AutoSumWire(const backend::DeviceInfo& device, bool several_hosts,
                             const coll::Tuning& tuning);

// By how much logits may differ from those of one rank, as a part of their length, because of the
// wire alone: twice what was measured. What is rounded behind the sums may round the other way, and
// moves them by as much as that rounding itself: a float16 cache, and where `rounded` is true,
// activations to int8 or BF16.
double SumWireTolerance(backend::SumWire wire, bool rounded);

}  // namespace weft::engine
