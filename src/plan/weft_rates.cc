#include "plan/weft_rates.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/json.h"

namespace weft::plan {
namespace {

// NVIDIA H200, driver 580.159, through Vulkan (docs/gpu.md, docs/plan.md): a token of 7.4 B Q4_K in
// 4.05 ms and of 1.2 B Q4_0 in 1.27 ms, plus 1.08 ms at position 4,096; 16 and 32 sequences in 9.4
// and 15.2 ms; prompts of 512 and 2,048 tokens in 73 and 402 ms; a token with 128 experts in 5 ms;
// a sum of 2 KiB within a submission in 8.7 us; a submission and its wait in 28 us.
constexpr const char* kMeasuredGpu = "h200";
constexpr WeftRates kGpu = {3.9e-6, 15e-6,  8.7e-6, 28e-6,  0.52, 0.123,
                            0.52,   0.0455, 0.175,  0.0076, 64,   1};

// Two cores of an AMD EPYC (Zen 4). From `weft plan --measure` on 2026-11-27: Q4_0 read at 61 of 67
// GB/s, an F16 cache at 22 GB/s, other values at 4.3 GB/s, attention at 0.12 TFLOP/s. From
// docs/architecture.md: 4, 8 and 16 sequences in 13.4, 19.9 and 31.7 ms. 64 FLOP per clock give
// 0.45 TFLOP/s.
constexpr WeftRates kProcessor = {0.5e-6, 4e-6, 3e-6, 10e-6, 0.90, 0.33,
                                  0.065,  1.0,  1.4,  0.27,  0,    0};

// The times relative to a norm's are from a timeline of Weft: five layers like those of DeepSeek V4
// Flash (hidden size 4096, 4 streams, 20 iterations) on a core of an EPYC, one row, December 2026:
// a norm takes 1.5 us. 0: the time of the op is the time of its bytes.
constexpr std::string_view kStreams = "several residual streams", kPooled = "pooled windows";
constexpr UnmeasuredOp kUnmeasuredOps[] = {
    {"stream_weights", kStreams, 1},     {"merge_streams", kStreams, 2.1},
    {"mix_streams", kStreams, 8.8},      {"pool_windows", kPooled, 5.5},
    {"window_attention", kPooled, 0.6},  {"index_top_k", "an indexer", 0.6},
    {"index_blocks", "an indexer", 0.6}, {"latent_attention", "latent attention", 0}};

// llama.cpp computes each of these ops as tens of its own ops. With this factor, DeepSeek V4 Flash
// on a Strix Halo has the speed that its owners report for ROCm (16 tok/s; Vulkan: 9), and GLM 5.3
// Flash over two of them 12 tok/s (10).
constexpr double kUnmeasuredOfLlama = 11;

// llama.cpp on a family of GPUs, a row of machines/families.json: the share of the data sheet's
// bandwidth at which it reads weights, the time of an op of Weft's Programs in microseconds, and
// the share of the compute in tiles. fitted: to published measurements, of which docs/plan.md lists
// the devices; false: copied from the nearest family. bandwidth, flops: of the device on which the
// shares were fitted. With less bandwidth or compute, rates fall only with the square root, since
// llama.cpp does not fill the largest devices. Without these two figures, all devices of the family
// have equal shares.
//
// llama.cpp multiplies with F16 accumulators or in INT8, whose rate is twice the data sheet's
// figure (F16 with F32 accumulators) on GeForce cards, and equal on professional ones (-pro).
struct Family {
    std::string name;
    double weights, op_us, tiles;
    bool fitted;
    double bandwidth = 0, flops = 0;
};

std::vector<Family> ReadFamilies() {
    std::vector<Family> families;
    for (const EmbeddedFile& file : EmbeddedFiles()) {
        if (file.folder != "machines" || file.name != "families") continue;
        const auto json = ParseJsonText(file.text);
        WEFT_CHECK(json.ok());
        for (const auto& [name, row] : json->items()) {
            families.push_back({name, row.at("weights"), row.at("op_us"), row.at("tiles"),
                                row.at("fitted"), row.value("bandwidth", 0.0),
                                row.value("flops", 0.0)});
        }
    }
    return families;
}

// The families by name. Parsed once, because the text is part of the program.
const std::vector<Family>& Families() {
    static const std::vector<Family> families = ReadFamilies();
    return families;
}

// llama.cpp's attention on GPUs: its rate in prompts as a share of the rate of products, its
// highest rate of reading the KV cache (bytes/s, on the H200, whose bandwidth is not the limit),
// and the highest share of the bandwidth.
constexpr double kAttention = 0.35, kCacheRate = 0.5e12, kCacheShare = 0.6;
constexpr double kExpertRows = 32;
// Largest share of the data sheet's bandwidth that a device reaches.
constexpr double kMostOfSheet = 0.93;

WeftRates RatesOf(const Family& family, const Machine& machine) {
    WeftRates rates = kGpu;
    rates.op_s = family.op_us * 1e-6 / kDecodeRatio;
    const bool as_read = machine.bandwidth.mark != Mark::kDataSheet;
    const bool by_device = family.bandwidth > 0;
    const double weights =
        by_device ? family.weights * std::sqrt(family.bandwidth / machine.bandwidth.value)
                  : family.weights;
    rates.weights = std::min(weights * kDecodeRatio, kMostOfSheet) / kSustained;
    if (as_read) rates.weights = std::min(rates.weights, 1.0);
    rates.rest = rates.weights;
    rates.cache = std::min(kCacheShare, kCacheRate / machine.sustained_bytes_per_s());
    rates.tiles = family.tiles * kPromptRatio;
    if (by_device) rates.tiles *= std::sqrt(family.flops / machine.compute.value);
    rates.rows = rates.tiles * kGpu.rows / kGpu.tiles;
    rates.attention = rates.tiles * (by_device ? kGpu.attention / kGpu.tiles : kAttention);
    rates.expert_rows = by_device ? kGpu.expert_rows : kExpertRows;
    rates.unmeasured = kUnmeasuredOfLlama;
    return rates;
}

// llama.cpp on processors: the share of the data sheet's bandwidth at which it reads weights, the
// extra seconds of an op per thread, and its shares of the compute relative to Weft's on two cores.
// kRestOfCore: bytes/s of a core in other ops (as on the EPYC).
constexpr double kWeightsOfChannels = 0.62, kOpOfThread = 0.1e-6, kComputeOfCores = 0.365;
constexpr double kRestOfCore = 2.15e9, kMostRest = 0.6;
// The same share for experts that a processor computes beside a GPU: the median of the shares with
// which five published runs would be exact (0.28, 0.31, 0.38, 0.43, 0.68; docs/plan.md).
constexpr double kExpertsOfChannels = 0.38;

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

// Whether the rates of the two EPYC cores apply. The rates apply if the bandwidth was measured by
// the host's cores.
bool IsAsEpyc(const Machine& machine) {
    return machine.is_processor() && machine.bandwidth.mark == Mark::kMeasured;
}

// A GPU whose machine file names no family has the figures of several families.
const Family& FamilyOf(const Machine& machine) {
    static const Family any = {"", 0.8, 4.3, 0.5, false};
    const auto found = std::ranges::find(Families(), machine.family, &Family::name);
    return found != Families().end() ? *found : any;
}

// Standard deviations of predictions: on a measured device, a fitted family, a processor, and other
// devices.
constexpr double kMeasuredSpread = 0.08, kFittedSpread = 0.25, kProcessorSpread = 0.3,
                 kGuessedSpread = 0.4;

// A device with kLargeDevice FLOP/s computes kMostInFlight outputs at a time: one tile of 128 x 128
// on each of its 108 to 132 units.
constexpr double kLargeDevice = 1e14, kMostInFlight = 2e6;

}  // namespace

WeftRates RatesOfKind(const Machine& machine) {
    if (machine.is_processor()) return IsAsEpyc(machine) ? kProcessor : RatesOfProcessor(machine);
    return machine.kind == kMeasuredGpu ? kGpu : RatesOf(FamilyOf(machine), machine);
}

WeftRates RatesOfExperts(const Machine& processor) {
    WeftRates rates = RatesOfKind(processor);
    rates.weights = std::min(rates.weights, kExpertsOfChannels / kSustained);
    return rates;
}

const UnmeasuredOp* FindUnmeasured(std::string_view op) {
    const auto* const found = std::ranges::find(kUnmeasuredOps, op, &UnmeasuredOp::name);
    return found == std::end(kUnmeasuredOps) ? nullptr : found;
}

std::string OriginOfRates(const Machine& machine) {
    if (IsAsEpyc(machine)) return "Weft's speed on two cores of an EPYC";
    if (machine.is_processor())
        return "llama.cpp's speed on processors, by memory channels and cores";
    const Family& family = FamilyOf(machine);
    const std::string which = family.name.empty() ? "GPUs of several families"
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
    for (const Family& family : Families()) names.push_back(family.name);
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
