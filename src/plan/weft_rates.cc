#include "plan/weft_rates.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace weft::plan {
namespace {

// NVIDIA H200, driver 580.159, through Vulkan (docs/gpu.md, docs/plan.md): a token of 7.4 B Q4_K in
// 4.05 ms and of 1.2 B Q4_0 in 1.27 ms, plus 1.08 ms at position 4,096; 16 and 32 sequences in 9.4
// and 15.2 ms; prompts of 512 and 2,048 tokens in 73 and 402 ms; a token with 128 experts in 5 ms;
// a sum of 2 KiB within a submission in 8.7 us; a submission and its wait in 28 us.
constexpr const char* kMeasuredGpu = "h200";
constexpr WeftRates kGpu = {3.9e-6, 15e-6,  8.7e-6, 28e-6,  0.52, 0.123,
                            0.52,   0.0455, 0.175,  0.0076, 64};

// Two cores of an AMD EPYC (Zen 4). From `weft plan --measure` on 2026-11-27: Q4_0 read at 61 of 67
// GB/s, an F16 cache at 22 GB/s, other values at 4.3 GB/s, attention at 0.12 TFLOP/s. From
// docs/architecture.md: 4, 8 and 16 sequences in 13.4, 19.9 and 31.7 ms. 64 FLOP per clock give
// 0.45 TFLOP/s.
constexpr WeftRates kProcessor = {0.5e-6, 4e-6, 3e-6, 10e-6, 0.90, 0.33, 0.065, 1.0, 1.4, 0.27, 0};

// Bandwidth and compute of a data sheet.
struct Sheet {
    double bandwidth = 0, flops = 0;
};
constexpr Sheet kA100 = {2.039e12, 312e12}, kH200 = {4.8e12, 989e12}, kB300 = {8e12, 2250e12};

// llama.cpp on a family of GPUs: the share of the data sheet's bandwidth at which it reads weights,
// the time of an op of Weft's Programs in microseconds, and the share of the compute in tiles.
// fitted: to published measurements, of which docs/plan.md lists the devices; else as of the
// nearest family. of: the device to which the shares belong; the rates of a device with less
// bandwidth or compute are less by the square root only, since llama.cpp does not fill the largest
// devices. Without it, all devices of the family have these shares.
//
// llama.cpp multiplies with F16 accumulators or in INT8, whose rate is twice the data sheet's
// figure (F16 with F32 accumulators) on GeForce cards, and equal on professional ones (-pro).
struct Family {
    const char* name;
    double weights, op_us, tiles;
    bool fitted;
    Sheet of = {};
};
constexpr double kTilesOfF16 = 0.7;
constexpr Family kFamilies[] = {
    {"pascal", 0.6, 5, 0.6, true},
    // (The P100 has no products of 8 bits.)
    {"pascal-hbm", 0.27, 8, 0.6, true},
    {"gtx-16", 0.8, 4, 0.6, false},
    {"volta", 0.7, 5, 0.45, true},
    {"turing", 0.9, 3.1, 2 * kTilesOfF16, true},
    {"turing-pro", 0.9, 3.1, kTilesOfF16, false},
    {"ampere", 0.9, 3.1, 2 * kTilesOfF16, true},
    {"ampere-pro", 0.9, 3.1, kTilesOfF16, false},
    {"ampere-hbm", 0.52, 3.8, 0.45, true, kA100},
    {"ada", 0.9, 3.1, 2 * kTilesOfF16, true},
    {"ada-pro", 0.9, 3.1, kTilesOfF16, true},
    // (Of the H200, Weft's own rates.)
    {"hopper", 0.414, 4.1, 0.2555, true, kH200},
    {"blackwell", 0.9, 3.1, 2 * kTilesOfF16, true},
    {"blackwell-pro", 0.9, 3.1, kTilesOfF16, false},
    {"blackwell-hbm", 0.32, 4.1, 0.17, true, kB300},
    {"blackwell-unified", 0.71, 3.1, 0.8, true},
    {"jetson", 0.7, 8, 0.5, false},
    {"gcn", 0.6, 10, 0.75, true},
    {"gcn-hbm", 0.55, 6, 0.6, false},
    {"cdna", 0.4, 6, 0.22, false},
    {"rdna1", 0.85, 4.3, 0.7, false},
    {"rdna2", 0.9, 4.3, 0.8, true},
    {"rdna3", 0.9, 4.3, 0.5, true},
    {"rdna3.5", 0.84, 2.5, 0.42, true},
    {"rdna3-mobile", 0.88, 4.3, 0.25, true},
    {"rdna4", 0.9, 2, 0.55, true},
    {"alchemist", 0.45, 8, 0.06, true},
    {"battlemage", 0.8, 6, 0.25, true},
    {"xe", 0.6, 15, 0.2, false},
};
// The figures for a GPU whose machine file names no family.
constexpr Family kAnyGpu = {"", 0.8, 4.3, 0.5, false};
// llama.cpp's attention on such GPUs: its rate in prompts as a share of that of products, the bytes
// of KV cache a second at most (of the H200, whose bandwidth does not limit it), and its share of
// the bandwidth at most.
constexpr double kAttention = 0.35, kCacheRate = 0.5e12, kCacheShare = 0.6;
constexpr double kExpertRows = 32;
// Most of the data sheet's bandwidth that a device reads.
constexpr double kMostOfSheet = 0.93;

WeftRates RatesOf(const Family& family, const Machine& machine) {
    WeftRates rates = kGpu;
    rates.op_s = family.op_us * 1e-6 / kDecodeRatio;
    const bool as_read = machine.bandwidth.mark != Mark::kDataSheet;
    const bool by_device = family.of.bandwidth > 0;
    const double weights =
        by_device ? family.weights * std::sqrt(family.of.bandwidth / machine.bandwidth.value)
                  : family.weights;
    rates.weights = std::min(weights * kDecodeRatio, kMostOfSheet) / kSustained;
    if (as_read) rates.weights = std::min(rates.weights, 1.0);
    rates.rest = rates.weights;
    rates.cache = std::min(kCacheShare, kCacheRate / machine.sustained_bytes_per_s());
    rates.tiles = family.tiles * kPromptRatio;
    if (by_device) rates.tiles *= std::sqrt(family.of.flops / machine.compute.value);
    rates.rows = rates.tiles * kGpu.rows / kGpu.tiles;
    rates.attention = rates.tiles * (by_device ? kGpu.attention / kGpu.tiles : kAttention);
    rates.expert_rows = by_device ? kGpu.expert_rows : kExpertRows;
    return rates;
}

// llama.cpp on processors: the share of the data sheet's bandwidth at which it reads weights, the
// seconds that an op takes more for each thread, and its shares of the compute as a part of Weft's
// on two cores. kRestOfCore: bytes/s of other ops of a core (as on the EPYC).
constexpr double kWeightsOfChannels = 0.62, kOpOfThread = 0.1e-6, kComputeOfCores = 0.365;
constexpr double kRestOfCore = 2.15e9, kMostRest = 0.6;

WeftRates RatesOfProcessor(const Machine& machine) {
    WeftRates rates = kProcessor;
    rates.op_s += kOpOfThread * machine.threads;
    rates.weights = kWeightsOfChannels / kSustained;
    rates.rest =
        std::min(kMostRest, kRestOfCore * machine.threads / machine.sustained_bytes_per_s());
    for (double WeftRates::*share : {&WeftRates::rows, &WeftRates::tiles, &WeftRates::attention}) {
        rates.*share *= kComputeOfCores;
    }
    return rates;
}

// Whether the rates of two cores of an EPYC hold: the bandwidth is what the host's cores read.
bool IsAsEpyc(const Machine& machine) {
    return machine.is_processor() && machine.bandwidth.mark == Mark::kMeasured;
}

const Family& FamilyOf(const Machine& machine) {
    const auto* found = std::ranges::find(kFamilies, machine.family, &Family::name);
    return found != std::end(kFamilies) ? *found : kAnyGpu;
}

// Standard deviations: of a measured device, of families that were fitted, of others.
constexpr double kMeasuredSpread = 0.08, kFittedSpread = 0.25, kProcessorSpread = 0.3,
                 kGuessedSpread = 0.4;

// A device with kLargeDevice FLOP/s computes kMostInFlight outputs at a time: 108 to 132 units with
// tiles of 128 x 128.
constexpr double kLargeDevice = 1e14, kMostInFlight = 2e6;

}  // namespace

WeftRates RatesOfKind(const Machine& machine) {
    if (machine.is_processor()) return IsAsEpyc(machine) ? kProcessor : RatesOfProcessor(machine);
    return machine.kind == kMeasuredGpu ? kGpu : RatesOf(FamilyOf(machine), machine);
}

std::string OriginOfRates(const Machine& machine) {
    if (IsAsEpyc(machine)) return "Weft's speed on two cores of an EPYC";
    if (machine.is_processor())
        return "llama.cpp's speed on processors, by memory channels and cores";
    const Family& family = FamilyOf(machine);
    const std::string which = family.name[0] == 0 ? "GPUs of several families"
                              : family.fitted     ? fmt::format("{} GPUs", family.name)
                                                  : fmt::format("GPUs like {}", family.name);
    return fmt::format("llama.cpp's speed on {} and the ratio of Weft to llama.cpp on an H200",
                       which);
}

double SpreadOfRates(const Machine& machine) {
    if (IsMeasured(machine)) return kMeasuredSpread;
    if (machine.is_processor()) return kProcessorSpread;
    return FamilyOf(machine).fitted ? kFittedSpread : kGuessedSpread;
}

std::vector<std::string> FamilyNames() {
    std::vector<std::string> names;
    for (const Family& family : kFamilies) names.emplace_back(family.name);
    return names;
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
