// Times of the ops of a job's steps, from the timelines of its ranks (engine/trace.h), with the
// FLOPs and bytes of the cost walk.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "model/hyper.h"
#include "program/cost.h"
#include "program/program.h"

namespace weft::plan {

class OpTimes {
  public:
    struct Work {
        double flops = 0, bytes = 0, seconds = 0;
    };
    struct Rest {
        double seconds = 0;  // ops other than products and collectives, and gaps between ops
        int ops = 0;         // number of such ops
        double gap_s = 0;    // from a step's last op to the next step's first, on rank 0
    };
    struct Sums {
        double bytes = 0, seconds = 0;  // mean of an all-reduce; 0: none
    };

    // program: rank 0's; other ranks have the same ops. traces: events of one rank each. Errors:
    // kCorrupt (an event names no op).
    static Result<OpTimes> Read(program::Program program, const std::vector<std::string>& traces);

    // These functions summarize steps [first, last], which have the same shape. The time of an op
    // is the slowest rank's, the lower quartile over the steps; of a collective, the time of the
    // rank that entered last and so did not wait. The rest of a step is taken per step and rank,
    // because a rank that waits for another is slow at another op in each step.
    //
    // Products by weight type and rows. experts: products of chosen experts instead; rows are the
    // expected rows, in tenths, of each expert that has any.
    std::map<std::pair<DType, double>, Work> Products(const program::StepShape& shape,
                                                      int64_t first, int64_t last,
                                                      const model::Moe* experts = nullptr) const;
    // Attention, or the other ops that are neither products nor collectives.
    Work WorkOf(const program::StepShape& shape, int64_t first, int64_t last, bool attention) const;
    int attentions() const;  // number of attention ops, which Rest also counts
    Rest RestOf(int64_t first, int64_t last) const;
    Sums SumsOf(const program::StepShape& shape, int64_t first, int64_t last) const;
    // Median of (seconds of a step's ops and of its gaps, as above) / (wall time of the step), at
    // most 1. Below 1 if ranks take turns on cores: each waits at another op in each step, which
    // the quartiles of the ops leave out.
    double ShareOfSteps(int64_t first, int64_t last) const;

  private:
    struct Step {
        std::vector<double> op_s;
        double rest_s = 0, gap_s = 0;
        double begin_us = 0, end_us = 0;
    };
    std::vector<double> Quartiles(int64_t first, int64_t last) const;  // by op
    Status AddRank(const std::string& trace);
    Result<std::map<int64_t, Step>> StepsOf(const std::string& trace) const;

    program::Program program_;
    std::map<int64_t, Step> steps_;
};

// Seconds of a message between stages, the mean over a step's messages and the lower quartile of
// steps [first, last]. Measured on the first stage from its send to the end of the reply from the
// last stage, minus the compute time of the others (each by its own clock). traces: one rank of
// each stage. Errors: kCorrupt (a malformed timeline, or one without messages).
Result<double> HopSeconds(const std::vector<std::string>& traces, int64_t first, int64_t last);

}  // namespace weft::plan
