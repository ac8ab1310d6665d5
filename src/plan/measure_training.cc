#include "plan/measure_training.h"

#include <algorithm>

#include "engine/runner.h"
#include "plan/measure_steps.h"
#include "plan/train_walk.h"
#include "program/communication.h"
#include "train/run.h"

namespace weft::plan {
namespace {

using program::OpKind;

constexpr int64_t kTrainLengths[] = {128, 512};
constexpr int64_t kUpdates = 5;
constexpr int kTrainLayers = 2;
constexpr double kLeastSeconds = 1e-7;  // resolution of the clock

// Copies the program of rank 0 and counts the bytes that its optimizer reads and writes.
class Listener final : public train::TrainListener {
  public:
    Status OnStart(const train::Trainer& trainer, int64_t, int64_t, double) override {
        list = trainer.executable().program();
        const train::TrainerOptions& options = trainer.options();
        const auto weight = static_cast<double>(RowBytes(options.dtype, 1));
        const DType gradients = train::GradientTypeOf(options, trainer.layout().dp);
        update_bytes = static_cast<double>(trainer.state().parameters()) *
                       TouchedBytes(weight, static_cast<double>(RowBytes(gradients, 1)),
                                    train::KeptBytes(options.update) + (weight < 4 ? 4 : 0));
        return {};
    }
    void OnStep(const train::StepLine&) override {}
    Status OnTrained(const model_files::ModelSource&, bool) override { return {}; }

    program::Program list;
    double update_bytes = 0;
};

train::TrainJob JobOf(const MeasureOptions& options, const std::string& device, DType dtype,
                      int64_t rows) {
    train::TrainJob job;
    job.trainer.model = fmt::format("{}:bf16:layers={}", options.train_model, kTrainLayers);
    job.trainer.threads = options.job.threads;
    job.trainer.device = device;
    job.trainer.dtype = dtype;
    job.trainer.recompute = "none";
    job.trainer.time_ops = true;
    job.data.data = {fmt::format("synthetic:random-tokens:{}", rows + 1)};
    job.data.sequence = rows;
    job.schedule.rate = 1e-4;
    job.steps = kUpdates;
    return job;
}

// Adds the rates of ops by kind at this sequence length, and those of an update.
void AddRates(const Listener& trained, const train::TrainSummary& summary, int64_t rows,
              TrainingRates& rates) {
    struct Sum {
        double work = 0, seconds = 0;
    };
    std::map<OpKind, Sum> sums;
    double all_s = 0, update_s = 0;
    const std::vector<program::OpCost> costs = TrainCosts(trained.list, rows, 1);
    for (size_t i = 0; i < costs.size(); ++i) {
        const program::Op& op = trained.list.ops[i];
        double seconds = 0;  // of the slowest rank
        for (const std::vector<double>& rank : summary.op_s) {
            if (i < rank.size()) seconds = std::max(seconds, rank[i]);
        }
        all_s += seconds;
        if (program::IsCommunication(op.kind())) continue;
        if (program::IsOfUpdate(op.kind())) {
            update_s += seconds;
            continue;
        }
        const auto bytes = static_cast<double>(costs[i].read_bytes + costs[i].written_bytes);
        Sum& sum = sums[op.kind()];
        sum.work += op.Is(program::Trait::kByFlops) ? costs[i].flops : bytes;
        sum.seconds += std::max(seconds, kLeastSeconds);
    }
    for (const auto& [kind, sum] : sums) {
        if (sum.work > 0) rates.ops[kind][static_cast<double>(rows)] = sum.work / sum.seconds;
    }
    rates.update = Told(trained.update_bytes / std::max(update_s, 1e-9), "the optimizer's ops");
    rates.step = Told(std::max(0.0, summary.update_s - all_s), "an update beside its ops");
}

}  // namespace

Result<DType> ParseTrainType(std::string_view name) {
    const auto dtype = DTypeOfName(name);
    for (const DType known : {DType::kBF16, DType::kF16, DType::kF32}) {
        if (dtype == known) return known;
    }
    return MakeError(ErrorCode::kUsage, "--train-types {}: expected bf16, f16 or f32", name);
}

Status MeasureTraining(const MeasureOptions& options, const std::string& type, Machine& machine) {
    WEFT_ASSIGN(const DType dtype, ParseTrainType(type));
    WEFT_ASSIGN(const backend::DeviceInfo info, backend::DescribeDevice(options.job.device));
    TrainingRates rates;
    for (const int64_t rows : kTrainLengths) {
        Listener trained;
        WEFT_ASSIGN(
            const train::TrainSummary summary,
            train::RunTraining(options.cluster, JobOf(options, info.name, dtype, rows), trained));
        AddRates(trained, summary, rows, rates);
    }
    machine.measured->training[dtype] = std::move(rates);
    return {};
}

}  // namespace weft::plan
