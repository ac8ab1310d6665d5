// How long an update takes, and what it needs, on machines that are not there: from the lists of
// ops that training there would run, their costs, and what the machines can do.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "model_files/model_file.h"
#include "train/trainer.h"

namespace weft::train {

struct Wire {
    double bytes_per_s = 0;  // `within`: of a rank; `between`: of a host, all its links together
    double latency_s = 0;    // of a message
    bool overlaps = true;    // transfers cost no arithmetic: DMA and RDMA, not copies by a kernel
};

// Machines that are alike. Ranks are numbered host by host.
struct Machines {
    int hosts = 1, ranks_per_host = 1;
    double flops_per_s = 0;         // of a rank, in large matrix products of the type asked for
    double memory_bytes_per_s = 0;  // of a rank
    uint64_t memory_bytes = 0;      // of a rank
    Wire within, between;
    int ranks() const { return hosts * ranks_per_host; }
};

// {"hosts": 2, "ranks_per_host": 8, "flops_per_s": .., "memory_bytes_per_s": ..,
//  "memory_bytes": .., "within": {"bytes_per_s": .., "latency_s": .., "overlaps": true},
//  "between": {..}}. `between` may lack where there is one host, `within` where there is one rank
// each, latency_s and overlaps always. Errors: kUsage, naming `where` and the key.
Result<Machines> ReadMachines(const std::string& text, const std::string& where);

struct StageEstimate {
    int first_rank = 0;
    uint64_t state_bytes = 0;  // weights, gradients, optimizer's state
    uint64_t work_bytes = 0;   // activations, and units that are whole for a while
    // Seconds of an update.
    double compute_s = 0, wire_s = 0, waited_s = 0;
    double idle_s = 0;    // while a pipeline fills and empties
    double update_s = 0;  // of them all: compute, waited, idle
};

struct TrainEstimate {
    int64_t micro_batch = 0;    // as asked for, or the most that fits
    std::string recompute;      // as asked for, or what auto became
    int64_t sequences = 0;      // of an update
    double flops = 0;           // of an update, all ranks
    std::vector<StageEstimate> stages;
    double update_s = 0;        // of the slowest stage
    bool fits = false;
    double tokens_per_s(int64_t sequence) const {
        return static_cast<double>(sequences * sequence) / update_s;
    }
};

// options: model, layout, micro-batch (0: the most whose state and work take at most `fill` of the
// memory), sequence, accumulation, ZeRO. Nothing of the model's weights is read. Errors: those of
// BuildTrainingGraph and MakeTrainLayout; kOutOfMemory (micro_batch 0, and not one sequence fits).
Result<TrainEstimate> EstimateTraining(const TrainerOptions& options,
                                       const model_files::ModelSource& source,
                                       const Machines& machines, double fill = 0.9);

}  // namespace weft::train
