// Measured times of the ops in a job's steps, from the timelines of its ranks
// (engine/rank/trace.h), together with the FLOPs and bytes that program/cost.h computes for these
// ops.
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

// Steps [first, last], all of the same shape.
struct StepRange {
    int64_t first = 0, last = 0;
    program::StepShape shape;
};

class OpTimes {
  public:
    struct Work {
        double flops = 0, bytes = 0, seconds = 0;
    };
    struct Rest {
        double seconds = 0;  // ops other than products and collectives, and gaps between ops
        int ops = 0;         // number of ops other than products and collectives
        double gap_s = 0;    // from a step's last op to the next step's first, on rank 0
    };
    struct Sums {
        double bytes = 0, seconds = 0;  // means of the all-reduces; 0: there are none
    };

    // program: rank 0's Program; other ranks have the same ops. traces: for each rank, its events
    // as JSON. Errors: kCorrupt (an event does not name an op of the program).
    static Result<OpTimes> Read(program::Program program, const std::vector<std::string>& traces);

    // The time of an op in a step is the slowest rank's. The time of a collective is the time of
    // the rank that entered last, because it did not wait. Results are the lower quartile over the
    // steps. RestOf first adds up the times within each step and rank, because a rank that waits
    // for another waits at a different op in each step.
    //
    // Products by weight type and number of rows. experts: if set, products of the chosen experts
    // instead; their number of rows is the expected one of a used expert, rounded to tenths.
    std::map<std::pair<DType, double>, Work> Products(const StepRange& steps,
                                                      const model::Moe* experts = nullptr) const;
    // Work of attention; or, if `attention` is false, of the other ops that are neither products
    // nor collectives.
    Work WorkOf(const StepRange& steps, bool attention) const;
    int attentions() const;  // number of attention ops; Rest::ops includes them
    Rest RestOf(const StepRange& steps) const;
    Sums SumsOf(const StepRange& steps) const;

  private:
    struct Step {
        std::vector<double> op_s;
        double rest_s = 0, gap_s = 0;
        double begin_us = 0, end_us = 0;
    };
    // Calls each(op, work) for every op.
    template <typename Each>
    void ForOps(const StepRange& steps, const Each& each) const;
    Status AddRank(const std::string& trace);
    Result<std::map<int64_t, Step>> StepsOf(const std::string& trace) const;

    program::Program program_;
    std::map<int64_t, Step> steps_;
};

// Seconds of a message between stages: the lower quartile over steps [first, last] of the mean of a
// step's messages. A step's messages take the time from the first stage's send to the end of its
// receive from the last stage, minus the compute time of the other stages (each by its own clock).
// traces: events of one rank of each stage. Errors: kCorrupt (a malformed timeline, or one without
// messages).
Result<double> HopSeconds(const std::vector<std::string>& traces, int64_t first, int64_t last);

}  // namespace weft::plan
