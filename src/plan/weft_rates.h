// The shares of a device's bandwidth and compute that Weft reaches, and the fixed times of ops: as
// measured with Weft, or computed from the speed of llama.cpp on devices of the same family.
//
// The time of an op is the sum of three terms: its bytes over a share of the memory's bandwidth,
// its arithmetic over a share of the device's compute, and op_s. In a product, the arithmetic of
// the first row overlaps with reading the weights. A product of few rows runs as one matrix-vector
// product per row, with the share `rows` of the compute. A product of many rows runs in tiles, with
// the share `tiles`. It takes 1 + in_flight / (2 x outputs) times as long, because the last wave of
// tiles is half empty on average, and with experts also 1 + expert_rows / (rows of an expert)
// times, because an expert's last tile is not full either.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "plan/machine.h"

namespace weft::plan {

struct WeftRates {
    // Fixed seconds of an op, of a layer's router, of an all-reduce, and of a message between
    // stages.
    double op_s, router_s, sync_s, hop_s;
    // Shares of the memory's bandwidth reached in reading weights, the KV cache and other values.
    double weights, cache, rest;
    // Shares of the device's compute reached in products of few rows, of many rows, and attention.
    double rows, tiles, attention;
    double expert_rows;
    // Time of an op without a measured row, as a multiple of UnmeasuredOp::ops x op_s, beyond op_s.
    double unmeasured;
};

// An op of which no run on a GPU is measured, neither with Weft nor with llama.cpp in
// tests/data/plan/llama_cpp.tsv.
struct UnmeasuredOp {
    std::string_view name;  // program::OpName
    std::string_view part;  // the part of a model that has such ops
    double ops;             // its time relative to the time of a norm of one row
};
// Null: the op is measured.
const UnmeasuredOp* FindUnmeasured(std::string_view op);

// The rates of this machine's family; without a family, of its kind of device.
WeftRates RatesOfKind(const Machine& machine);
// The rates of the processor of a host of GPUs, which computes experts.
WeftRates RatesOfExperts(const Machine& processor);

// Whether Weft's speed was measured on this machine: by `weft plan --measure`, or for the rates of
// an H200.
bool IsMeasured(const Machine& machine);
// Names the source of the rates of a machine that was not measured: "llama.cpp's Vulkan on GPUs of
// its family (ampere) and the ratio of Weft to llama.cpp on an H200".
std::string OriginOfRates(const Machine& machine);
// Standard deviation of a prediction on this machine, in addition to the spread of the machine's
// figures.
double SpreadOfRates(const Machine& machine);
// The least standard deviation if the model has ops of which no run is measured.
inline constexpr double kUnmeasuredSpread = 0.4;

// Weft's speed as a multiple of llama.cpp's Vulkan on the H200 (docs/gpu.md): decode of 1.2 B Q4_0
// 1.04 and of 7.4 B Q4_K 1.07, prompts 0.71 and 0.66.
inline constexpr double kDecodeRatio = 1.055, kPromptRatio = 0.685;

// The values of "family" in machine files.
std::vector<std::string> FamilyNames();

// Number of outputs of a product that the device computes at the same time.
double OutputsInFlight(const Machine& machine);
// Seconds of a product in tiles. flops_per_s: the rate of a large product.
double TiledSeconds(double flops, double outputs, double flops_per_s, double in_flight);

}  // namespace weft::plan
