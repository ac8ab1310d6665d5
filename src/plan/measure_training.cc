#include "plan/measure_training.h"

#include <algorithm>

#include "engine/runner.h"
#include "plan/measure_steps.h"
#include "plan/train_time.h"
#include "program/communication.h"
#include "train/run.h"

namespace weft::plan {
namespace {

using program::OpKind;

constexpr int64_t kTrainRows[] = {128, 512};
constexpr int64_t kUpdates = 5;
constexpr int kTrainLayers = 2;

// Reads the trained tensors of rank 0.
class Listener final : public train::TrainListener {
  public:
    Status OnStart(const train::Trainer& trainer, int64_t, int64_t, double) override {
        program_ = trainer.executable().program();
        options_ = trainer.options();
        replicas_ = trainer.layout().dp;
        parameters_ = static_cast<double>(trainer.state().parameters());
        return {};
    }
    void OnStep(const train::StepLine&) override {}
    Status OnTrained(const model_files::ModelSource&, bool) override { return {}; }

    const program::Program& program() const { return program_; }
    // Bytes that the optimizer reads and writes.
    double UpdateBytes() const {
        const auto weight = static_cast<double>(RowBytes(options_.dtype, 1));
        const DType gradients = train::GradientTypeOf(options_, replicas_);
        const double kept = train::KeptBytes(options_.update) + (weight < 4 ? 4 : 0);
        return parameters_ *
               TouchedBytes(weight, static_cast<double>(RowBytes(gradients, 1)), kept);
    }

  private:
    program::Program program_;
    train::TrainerOptions options_;
    int64_t replicas_ = 1;
    double parameters_ = 0;
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

// Times of ops at one sequence length.
class UpdateTimes {
  public:
    UpdateTimes(const Listener& listener, const train::TrainSummary& summary, int64_t rows)
        : list_(listener.program()), rows_(rows) {
        seconds_.resize(list_.ops.size(), 0);
        for (const std::vector<double>& rank : summary.op_s) {
            for (size_t op = 0; op < std::min(rank.size(), seconds_.size()); ++op) {
                seconds_[op] = std::max(seconds_[op], rank[op]);
            }
        }
        for (size_t op = 0; op < seconds_.size(); ++op) {
            all_s_ += seconds_[op];
            const OpKind kind = list_.ops[op].kind();
            if (program::IsOfUpdate(kind) && !program::IsCommunication(kind)) {
                update_s_ += seconds_[op];
            }
        }
        beside_s_ = std::max(0.0, summary.update_s - all_s_);
    }

    // Adds the rates of the ops of a pass, by kind.
    void AddRates(TrainingRates& rates) const {
        struct Sum {
            double work = 0, seconds = 0;
        };
        std::map<OpKind, Sum> sums;
        const std::vector<program::OpCost> costs = TrainCosts(list_, rows_, 1);
        for (size_t op = 0; op < seconds_.size(); ++op) {
            const OpKind kind = list_.ops[op].kind();
            if (program::IsCommunication(kind) || program::IsOfUpdate(kind)) continue;
            const program::OpCost& cost = costs[op];
            const auto bytes = static_cast<double>(cost.read_bytes + cost.written_bytes);
            sums[kind].work += list_.ops[op].Is(program::Trait::kByFlops) ? cost.flops : bytes;
            sums[kind].seconds += std::max(seconds_[op], kLeastSeconds);
        }
        for (const auto& [kind, sum] : sums) {
            if (sum.work > 0) {
                rates.ops[kind][static_cast<double>(rows_)] = sum.work / sum.seconds;
            }
        }
    }
    double update_s() const { return update_s_; }
    double beside_s() const { return beside_s_; }

  private:
    static constexpr double kLeastSeconds = 1e-7;  // resolution of the clock

    const program::Program& list_;
    const int64_t rows_;
    std::vector<double> seconds_;
    double all_s_ = 0, update_s_ = 0, beside_s_ = 0;
};

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
    TrainingRates rates;
    WEFT_ASSIGN(const backend::DeviceInfo info, backend::DescribeDevice(options.job.device));
    const std::string& device = info.name;
    for (const int64_t rows : kTrainRows) {
        Listener listener;
        WEFT_ASSIGN(
            const train::TrainSummary summary,
            train::RunTraining(options.cluster, JobOf(options, device, dtype, rows), listener));
        const UpdateTimes times(listener, summary, rows);
        times.AddRates(rates);
        rates.update =
            Told(listener.UpdateBytes() / std::max(times.update_s(), 1e-9), "the optimizer's ops");
        rates.step = Told(times.beside_s(), "an update beside its ops");
    }
    machine.measured->training[dtype] = std::move(rates);
    return {};
}

}  // namespace weft::plan
