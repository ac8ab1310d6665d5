// --allreduce-dtype and --prompt-allreduce-dtype, the element types in which tensor-parallel
// all-reduces are sent (backend::SumWire): names of the types, the choices of `auto`, and the
// tolerance for logits.
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
// flag: names it in the error.
Status CheckSumWire(backend::SumWire asked, const backend::DeviceInfo& device,
                    std::string_view flag = "--allreduce-dtype");

// The type of the next epoch's job: the choice of `auto` stays, except float64 if a rank may move
// to a device without float64 (--device auto). asked: the job's type; chosen: the type of the last
// epoch; devices: as in Job::device.
backend::SumWire KeptWire(backend::SumWire asked, backend::SumWire chosen,
                          std::string_view devices);

// Checks that --gpu-allreduce applies to the device. Errors: kUsage.
Status CheckDeviceSum(backend::DeviceSum asked, const backend::DeviceInfo& device);

// If all-reduces transfer fewer bytes per second than this, those of a prompt take about as long as
// its arithmetic, or longer: on a processor, and on a GPU (docs/collectives.md).
inline constexpr double kSlowPromptBytesPerS = 400e6, kSlowGpuPromptBytesPerS = 2e9;

// The types that `auto` chooses for rows of prompts and for all other rows.
struct SumWires {
    backend::SumWire all = backend::SumWire::kF64, prompts = backend::SumWire::kF64;
    bool operator==(const SumWires&) const = default;
};
// all: f64, so that generated tokens have the bits of one rank; f32 if the device has no float64.
// prompts: bf16 if the wire is slower than the rate above for the device; otherwise as `all`.
// bytes_per_s: of all-reduces between hosts; 0: one host, or not measured.
SumWires AutoSumWires(bool float64_reductions, bool submits, double bytes_per_s);
SumWires AutoSumWires(const backend::DeviceInfo& device, bool several_hosts,
                      const coll::Tuning& tuning);

// Rows of a prompt of at least this many tokens are sent in the type of --prompt-allreduce-dtype.
// The number depends on the request only, so other requests do not change an answer.
inline constexpr int64_t kLeastNarrowPrompt = 128;
inline int64_t NarrowTokens(int64_t prompt) {
    return prompt < kLeastNarrowPrompt ? 0 : prompt;
}

// Largest relative difference from the logits of one rank that the type of the all-reduces alone
// may cause: twice the measured difference. A small difference in a sum can change how later values
// are rounded (in a float16 cache and, if `rounded`, in int8 or BF16 activations), so these values
// can differ by as much as one rounding step.
double SumWireTolerance(backend::SumWire wire, bool rounded);

}  // namespace weft::engine
