// How programs that train do it: what they keep, what they send, in which types, and what of that
// runs beside the arithmetic. Weft's own way is in the Program; of others these are the differences
// that move a prediction by more than a few percent.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "plan/machine.h"

namespace weft::plan {

// When transfers of shares run beside the arithmetic.
enum class Beside {
    kNever,
    kBetweenHosts,  // where replicas are on several hosts
    kRdma,          // within a host, and between hosts over RDMA; over TCP they wait
    kAlways,
};

struct TrainStyle {
    std::string name;
    bool weft = false;  // lists of ops, types and collectives are Weft's own
    // Attention writes its scores, as before FlashAttention; not `weft`.
    bool scores = false;
    bool even_layers = true;     // stages have the same number of layers, the output matrix or not
    bool blocking_hops = false;  // a stage stands still while it sends to another
    bool hops_by_share = false;  // tensor ranks send a share each, and gather it there
    Beside shares = Beside::kAlways;  // ZeRO 2 and 3: gathers of weights, sums of gradients
    bool gradients_beside = false;    // ZeRO 0 and 1: sums run beside the last backward pass
    // Bytes of an element of a matrix.
    double weight = 2, gradient = 2, master = 4;  // kept
    double gathered = 2, summed = 2;              // on the wire
    // Master weights are the only ones: narrow copies live for a unit's time (FSDP).
    bool one_copy = false;
    // Bytes that norms, gates and sums move, beside those of Weft's ops: ops of an eager framework
    // stand apart, and some are in float32.
    double passes = 1;
    // With stages, gradients and weights are no shares of replicas: ZeRO 1 at most.
    bool whole_stages = false;
    // Of the rate of fused attention that machine files have (FlashAttention-2's).
    double attention = 1;
    // Of a layer's products those that selective recomputation runs again, where it is by op.
    double again = 0;
    // Of the time that operands of FP8 products take to be read in BF16 and written.
    double casts = 1;
    // Of the collectives of tensor ranks, what runs beside the products.
    double tensor_beside = 0;
    // Seconds that a host needs to start an op: a device that is faster than that waits.
    double host_op_s = 0;
};

// Whether the program trains on the machine: Weft runs on Linux, not on Macs.
bool TrainsOn(const TrainStyle& style, const Machine& machine);

// "weft", "megatron", "deepspeed", "fsdp", "torchtitan", "nemo". Errors: kUsage, naming these.
Result<TrainStyle> FindTrainStyle(const std::string& name);
std::vector<std::string> TrainStyleNames();

}  // namespace weft::plan
