// The shares of a device's limits that Weft reaches, and its time beside them, as measured on one
// device of each kind. For a device that was not measured the same shares are an estimate.
//
// An op takes its bytes over a share of the memory's bandwidth, its arithmetic, and op_s; the
// arithmetic of a product's first row runs while the weights are read. Products of few rows run as
// so many products of a vector, at `rows`. Products of many rows run in tiles, at `tiles`, and take
// 1 + in_flight / (2 x outputs) times as long, because the last wave of tiles is half empty on
// average.
#pragma once

#include "plan/machine.h"

namespace weft::plan {

struct WeftRates {
    // Seconds: of an op, of a layer's router, of an all-reduce and of a message between stages,
    // each beside its bytes.
    double op_s, router_s, sync_s, hop_s;
    // Shares of the memory's bandwidth: of weights, of the KV cache, of other values.
    double weights, cache, rest;
    // Shares of the device's compute.
    double rows, tiles, attention;
};

// By the kind of the device: a GPU or a processor.
const WeftRates& RatesOfKind(const Machine& machine);

// Whether Weft's speed was measured on this machine: by `weft plan --measure`, or the rates above
// were measured on such a device.
bool IsMeasured(const Machine& machine);

// Outputs of products that the device computes at a time: fewer units, fewer outputs.
double OutputsInFlight(const Machine& machine);
// Seconds of a product in tiles, at `flops_per_s` for a large one.
double TiledSeconds(double flops, double outputs, double flops_per_s, double in_flight);

}  // namespace weft::plan
