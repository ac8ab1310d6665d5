// Seconds of the ops of a job's steps, by the timelines of its ranks (engine/trace.h), put beside
// what the cost walk says of them.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
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
        int ops = 0;         // of these
        double step_s = 0;   // from the first op's begin to the last one's end
    };
    struct Sums {
        double bytes = 0, seconds = 0;  // of one all-reduce, on average; 0: there are none
    };

    // program: rank 0's; the other ranks' have the same ops. traces: a rank's events each. Errors:
    // kCorrupt (an event names no op).
    static Result<OpTimes> Read(program::Program program, const std::vector<std::string>& traces);

    // All of steps [first, last], which are alike: of each op the slowest rank, the lower quartile
    // of the steps.
    //
    // By the type of the weights, and rows.
    std::map<std::pair<DType, int64_t>, Work> Products(const program::StepShape& shape,
                                                       int64_t first, int64_t last) const;
    Work Attention(const program::StepShape& shape, int64_t first, int64_t last) const;
    Rest RestOf(int64_t first, int64_t last) const;
    Sums SumsOf(const program::StepShape& shape, int64_t first, int64_t last) const;

  private:
    struct Step {
        std::vector<double> op_s;  // the slowest rank's
        double span_s = 0;
    };
    std::vector<double> Quartiles(int64_t first, int64_t last) const;  // by op
    Status AddRank(const std::string& trace);

    program::Program program_;
    std::map<int64_t, Step> steps_;
};

}  // namespace weft::plan
