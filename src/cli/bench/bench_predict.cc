#include "cli/bench/bench_predict.h"

#include <algorithm>

#include "doctor/cost_model.h"
#include "doctor/live_view.h"

namespace weft::cli {
namespace {

// This host, identified by its GPUs.
Result<std::optional<plan::ClusterSpec>> ClusterHere(const plan::Library& library) {
    WEFT_ASSIGN(const doctor::CostModel model, doctor::CostModel::Open());
    const auto view = doctor::MakeLiveView({.measure = false});
    const auto machine = model.MachineOf(doctor::FactsOf(*view));
    if (!machine) return std::optional<plan::ClusterSpec>();
    plan::ClusterSpec cluster;
    cluster.words = machine->name;
    cluster.hosts = {*machine};
    WEFT_ASSIGN(cluster.wire, library.FindWire(machine->wire));
    return std::optional(std::move(cluster));
}

}  // namespace

Result<std::unique_ptr<BenchPredictor>> BenchPredictor::Make(const std::string& machines,
                                                             const std::string& model,
                                                             KvTypes kv_dtype, bool on_gpu) {
    auto predictor = std::make_unique<BenchPredictor>();
    WEFT_ASSIGN(const plan::Library library, plan::Library::Open());
    if (machines.empty()) {
        if (!on_gpu) return std::unique_ptr<BenchPredictor>();
        WEFT_ASSIGN(auto here, ClusterHere(library));
        if (!here) return std::unique_ptr<BenchPredictor>();
        predictor->cluster_ = std::move(*here);
    } else {
        WEFT_ASSIGN(predictor->cluster_, library.ParseCluster(machines));
    }
    WEFT_ASSIGN(predictor->source_, plan::OpenShape(model));
    WEFT_ASSIGN(predictor->walk_, plan::ModelWalk::Make(*predictor->source_, kv_dtype));
    return predictor;
}

std::optional<double> BenchPredictor::Rate(const BenchRow& row) const {
    model::Layout layout;
    layout.tp = row.tp;
    layout.pp = row.pp;
    layout.ep = row.ep;
    plan::Workload load;
    load.chunk = row.chunk;
    load.flights = 1;  // a step ends before the next one begins
    load.prompt = std::max<int64_t>(row.prompt, 1);
    load.depth = row.depth;
    if (row.prompt > 0) {
        load.context = row.prompt;
    } else {
        load.batch = row.seqs;
        // The mean context during the test.
        load.context = row.depth + std::max<int64_t>(row.generate / 2, 1);
    }
    const auto prediction = plan::Predict(walk_, cluster_, layout, load);
    if (!prediction.ok()) return std::nullopt;
    // Prompts run one after another.
    if (row.prompt > 0) return static_cast<double>(row.prompt) / prediction->ttft_s;
    return prediction->tok_s;
}

}  // namespace weft::cli
