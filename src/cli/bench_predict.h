// The predicted column of `weft bench`: what `weft plan` says of the machines that were named, or
// of this one where it is known by its GPUs (known_by in machines/).
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/result.h"
#include "cli/bench_table.h"
#include "plan/predict.h"
#include "plan/shapes.h"

namespace weft::cli {

class BenchPredictor {
  public:
    // machines: as --machines of `weft plan`; "": this host, which is known by its GPUs only where
    // `on_gpu`. Null where nothing is known of the machines. Errors: as of `weft plan`.
    static Result<std::unique_ptr<BenchPredictor>> Make(const std::string& machines,
                                                        const std::string& model, DType kv_dtype,
                                                        bool on_gpu);
    // Tokens a second of the row's test, all sequences together; nothing where the machines have
    // fewer ranks, or the model can't be cut so.
    std::optional<double> Rate(const BenchRow& row) const;
    const std::string& machines() const { return cluster_.words; }

  private:
    std::unique_ptr<model_files::ModelSource> source_;
    plan::ModelWalk walk_;
    plan::ClusterSpec cluster_;
};

}  // namespace weft::cli
