// The timeline of a list: how long its ops take on a machine, and what of its communication they
// hide.
//
// Ops run one after another. One takes as long as its arithmetic or its memory traffic, whichever
// is more (the roofline of Williams et al. 2009), or as its transfer, by the caller's model of the
// wire. With `overlap`, ops that may (RunsBeside) run on a second line, in the order of the list,
// beside the ops after them; an op waits for the shares that it reads, and the end of the list for
// all that is under way.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "program/cost.h"
#include "program/program.h"

namespace weft::program {

// Whether an op is communication.
bool IsTransfer(OpKind kind);
// Whether backends may run it beside the arithmetic: gather_shares and reduce_shares.
bool RunsBeside(OpKind kind);

struct MachineRates {
    double flops_per_s = 0;         // of matrix products
    double memory_bytes_per_s = 0;  // of ops that read and write only
    // Seconds of a collective or a message of so many algorithm bytes (cost.h).
    std::function<double(const Op& op, int64_t bytes)> wire;
    bool overlap = false;
};

// Seconds.
struct Timeline {
    double compute = 0;                                // ops that compute, alone
    double wire = 0;                                   // transfers, alone
    double whole = 0;                                  // from the first op to the end
    double waited() const { return whole - compute; }  // for transfers
};

// costs: by op.
Timeline WalkTimeline(const Program& program, std::span<const OpCost> costs,
                      const MachineRates& rates);

}  // namespace weft::program
