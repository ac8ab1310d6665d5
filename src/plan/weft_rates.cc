#include "plan/weft_rates.h"

#include <algorithm>

namespace weft::plan {
namespace {

// NVIDIA H200, driver 580.159, through Vulkan (docs/gpu.md, docs/plan.md): a token of 7.4 B Q4_K in
// 4.05 ms and of 1.2 B Q4_0 in 1.27 ms, plus 1.08 ms at position 4,096; 16 and 32 sequences in 9.4
// and 15.2 ms; prompts of 512 and 2,048 tokens in 73 and 402 ms; a token with 128 experts in 5 ms;
// a sum of 2 KiB within a submission in 8.7 us; a submission and its wait in 28 us.
constexpr const char* kMeasuredGpu = "h200";
constexpr WeftRates kGpu = {3.9e-6, 15e-6, 8.7e-6, 28e-6, 0.52, 0.123, 0.52, 0.0455, 0.175, 0.0076};

// Two cores of an AMD EPYC (Zen 4). From `weft plan --measure` on 2026-11-27: Q4_0 read at 61 of 67
// GB/s, an F16 cache at 22 GB/s, other values at 4.3 GB/s, attention at 0.12 TFLOP/s. From
// docs/architecture.md: 4, 8 and 16 sequences in 13.4, 19.9 and 31.7 ms. 64 FLOP per clock give
// 0.45 TFLOP/s.
constexpr WeftRates kProcessor = {0.5e-6, 4e-6, 3e-6, 10e-6, 0.90, 0.33, 0.065, 1.0, 1.4, 0.27};

// A device with kLargeDevice FLOP/s computes kMostInFlight outputs at a time: 108 to 132 units with
// tiles of 128 x 128.
constexpr double kLargeDevice = 1e14, kMostInFlight = 2e6;

}  // namespace

const WeftRates& RatesOfKind(const Machine& machine) {
    return machine.is_processor() ? kProcessor : kGpu;
}

bool IsMeasured(const Machine& machine) {
    return machine.measured.has_value() || machine.kind == kMeasuredGpu;
}

double OutputsInFlight(const Machine& machine) {
    return kMostInFlight * std::min(1.0, machine.compute.value / kLargeDevice);
}

double TiledSeconds(double flops, double outputs, double flops_per_s, double in_flight) {
    return flops / flops_per_s * (1 + in_flight / (2 * outputs));
}

}  // namespace weft::plan
