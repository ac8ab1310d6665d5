// The shares of a device's bandwidth and compute that Weft reaches, and the fixed times of ops.
// They were measured on one GPU and one processor. For other devices they are an estimate.
//
// The time of an op is the sum of three terms: its bytes over a share of the memory's bandwidth,
// its arithmetic over a share of the device's compute, and op_s. In a product, the arithmetic of
// the first row overlaps with reading the weights. A product of few rows runs as one matrix-vector
// product per row, with the share `rows` of the compute. A product of many rows runs in tiles, with
// the share `tiles`. It takes 1 + in_flight / (2 x outputs) times as long, because the last wave of
// tiles is half empty on average.
#pragma once

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
};

// Rates for the kind of device: a GPU or a processor.
const WeftRates& RatesOfKind(const Machine& machine);

// Whether Weft's speed was measured on this machine: by `weft plan --measure`, or for the rates
// above.
bool IsMeasured(const Machine& machine);

// Number of outputs of a product that the device computes at the same time.
double OutputsInFlight(const Machine& machine);
// Seconds of a product in tiles. flops_per_s: the rate of a large product.
double TiledSeconds(double flops, double outputs, double flops_per_s, double in_flight);

}  // namespace weft::plan
