// The predicted column of `weft bench`: the result of `weft plan` for the named machines, or for
// this host if its GPUs identify it (known_by in machines/).
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/result.h"
#include "cli/bench/bench_table.h"
#include "plan/predict.h"
#include "plan/shapes.h"

namespace weft::cli {

class BenchPredictor {
  public:
    // machines: as in `weft plan --machines`; "": this host, which is identified only if `on_gpu`.
    // Null if the machines are unknown. Errors: as `weft plan`.
    static Result<std::unique_ptr<BenchPredictor>> Make(const std::string& machines,
                                                        const std::string& model, KvTypes kv_dtype,
                                                        bool on_gpu);
    // Predicted tokens per second of the row's test, over all sequences; empty if the machines have
    // fewer ranks, or the model cannot be sharded like this.
    std::optional<double> Rate(const BenchRow& row) const;
    const std::string& machines() const { return cluster_.words; }

  private:
    std::unique_ptr<model_files::ModelSource> source_;
    plan::ModelWalk walk_;
    plan::ClusterSpec cluster_;
};

}  // namespace weft::cli
