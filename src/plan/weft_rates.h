// The shares of a device's limits that Weft reaches, and its fixed times, measured on one device of
// each kind. For other devices the same shares are an estimate.
//
// The time of an op is its bytes over a share of the memory's bandwidth, plus its arithmetic, plus
// op_s. The arithmetic of a product's first row overlaps with reading the weights. Products of few
// rows run as that many matrix-vector products, at `rows`. Products of many rows run in tiles, at
// `tiles`, and take 1 + in_flight / (2 x outputs) times as long, because the last wave of tiles is
// half empty on average.
#pragma once

#include "plan/machine.h"

namespace weft::plan {

struct WeftRates {
    // Fixed seconds of an op, a layer's router, an all-reduce, and a message between stages, apart
    // from their bytes.
    double op_s, router_s, sync_s, hop_s;
    // Shares of the memory's bandwidth for weights, the KV cache and other values.
    double weights, cache, rest;
    // Shares of the device's compute.
    double rows, tiles, attention;
};

// Rates for the kind of device: a GPU or a processor.
const WeftRates& RatesOfKind(const Machine& machine);

// Weft's speed was measured on this machine: by `weft plan --measure`, or as the source of the
// rates above.
bool IsMeasured(const Machine& machine);

// Outputs of products that the device computes at a time; a device with fewer units has fewer.
double OutputsInFlight(const Machine& machine);
// Seconds of a product in tiles. flops_per_s: the rate of a large product.
double TiledSeconds(double flops, double outputs, double flops_per_s, double in_flight);

}  // namespace weft::plan
