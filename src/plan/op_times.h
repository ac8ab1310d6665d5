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
        double seconds = 0;  // of ops that are neither products nor collectives, and between ops
        int ops = 0;         // mean of an all-reduce; 0: none
        double gap_s = 0;    // from a step's last op to the next step's first, on rank 0
    };
    struct Sums {
        double bytes = 0, seconds = 0;  // of one all-reduce, on average; 0: there are none
    };

    // program: rank 0's; the other ranks' have the same ops. traces: a rank's events each. Errors:
    // kCorrupt (an event names no op).
    static Result<OpTimes> Read(program::Program program, const std::vector<std::string>& traces);

    // All of steps [first, last], which are alike: of each op the slowest rank (of a collective the
    // one that came last, which waited for nobody), the lower quartile of the steps. What ops leave
    // of a step is taken step by step, on each rank: where a rank waits for another, another op of
    // each step is slow.
    //
    // By the type of the weights, and rows. experts: of those that are chosen, whose rows are those
    // that one is expected to have which has any, in tenths.
    std::map<std::pair<DType, double>, Work> Products(const program::StepShape& shape,
                                                      int64_t first, int64_t last,
                                                      const model::Moe* experts = nullptr) const;
    // Ops other than products, attention and collectives.
    Work Others(const program::StepShape& shape, int64_t first, int64_t last) const;
    Work Attention(const program::StepShape& shape, int64_t first, int64_t last) const;
    int attentions() const;  // number of attention ops, which Rest also counts
    Rest RestOf(int64_t first, int64_t last) const;
    Sums SumsOf(const program::StepShape& shape, int64_t first, int64_t last) const;
    // Median of (time of a step's ops and of the gaps) / (wall time of the step), at most 1. It is
    // below 1 if ranks take turns on cores, because another op of each step waits.
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
