#include "train/trainer.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/log.h"
#include "hw/cpu.h"
#include "model/load.h"
#include "tensor/quant.h"
#include "train/graph.h"
#include "train/trained_source.h"

namespace weft::train {
namespace {

using program::ValueId;

// A share of the weights begins at a multiple of so many elements.
constexpr size_t kGrain = 16;
// Sums over many elements go in blocks of so many, each by one thread, and then in order.
constexpr size_t kBlock = 1 << 16;
constexpr int64_t kAgreeMs = 600'000;
// Elements that are converted at a time when weights are loaded.
constexpr int64_t kLoadElements = 1 << 20;

net::OpTag Tag(const char* op, int64_t step) {
    net::OpTag tag;
    tag.op = op;
    tag.step = step;
    return tag;
}

backend::CpuOptions CpuOptionsOf(const TrainerOptions& options, const cluster::Cluster& cluster) {
    backend::CpuOptions cpu;
    cpu.cores = cluster.cores();
    cpu.threads = options.threads > 0 ? options.threads : static_cast<int>(cpu.cores.size());
    cpu.cores_shared = cluster.cores_shared() || cpu.threads > static_cast<int>(cpu.cores.size());
    if (cpu.cores_shared) cpu.cores.clear();
    cpu.level = options.reference ? CpuLevel::kReference : BestCpuLevel(DetectCpu());
    return cpu;
}

Status CheckTrainer(const TrainerOptions& o) {
    if (o.sequence < 1 || o.sequence > 1 << 20 || o.micro_batch < 1 || o.micro_batch > 4096) {
        return MakeError(ErrorCode::kUsage,
                         "--seq-len {} and --micro-batch {}: expected 1 to {}, and 1 to {}",
                         o.sequence, o.micro_batch, 1 << 20, 4096);
    }
    const AdamOptions& a = o.adam;
    const auto is_beta = [](double beta) { return beta >= 0 && beta < 1; };
    if (!is_beta(a.beta1) || !is_beta(a.beta2) || !(a.eps > 0) || !(a.weight_decay >= 0) ||
        !(o.clip >= 0)) {
        return MakeError(ErrorCode::kUsage,
                         "--betas {},{} --eps {} --weight-decay {} --clip {}: expected betas of 0 "
                         "to below 1, eps above 0, the others 0 or more",
                         a.beta1, a.beta2, a.eps, a.weight_decay, o.clip);
    }
    if (o.zero < 0 || o.zero > 1) {
        return MakeError(ErrorCode::kUnsupported,
                         "--zero {}: this version shares out nothing (0) or the optimizer's state "
                         "(1)",
                         o.zero);
    }
    return {};
}

}  // namespace

Trainer::~Trainer() {
    cluster_.SetProgress(nullptr);
}

Result<std::unique_ptr<Trainer>> Trainer::Make(const TrainerOptions& options,
                                               cluster::Cluster& cluster) {
    WEFT_TRY(CheckTrainer(options));
    std::unique_ptr<Trainer> trainer(new Trainer(options, cluster));
    cluster.SetPhase("load");
    WEFT_TRY(trainer->Plan());
    cluster.SetProgress([t = trainer.get()] { return t->training_->progress(); });
    WEFT_ASSIGN(const std::string fingerprint, trainer->source_->Fingerprint());
    WEFT_TRY(cluster.Agree("model file", fingerprint, Deadline::In(kAgreeMs)));
    WEFT_TRY(trainer->JoinGroup());
    WEFT_TRY(trainer->Load());
    WEFT_TRY(cluster.Barrier("loaded", Deadline::In(kAgreeMs)));
    cluster.SetPhase("train");
    return trainer;
}

Status Trainer::Plan() {
    WEFT_ASSIGN(source_, formats::OpenModel(options_.model));
    WEFT_ASSIGN(hyper_, model::ReadHyper(*source_));
    WEFT_ASSIGN(const model::Layout layout, model::MakeLayout(1, 1, 1, {}, 0));
    WEFT_ASSIGN(const model::ShardPlan plan, model::PlanShards(hyper_, *source_, layout));
    WEFT_ASSIGN(backend::TrainingProgram program,
                BuildTrainingProgram(hyper_, plan.shards[0], *source_));
    backend::TrainingOptions options;
    options.cpu = CpuOptionsOf(options_, cluster_);
    options.bf16 = options_.bf16;
    options.max_tokens = options.max_outputs = options_.sequence * options_.micro_batch;
    WEFT_ASSIGN(training_, backend::TrainingExecutable::Make(std::move(program), options));

    const float* first = training_->weights().data();
    for (const auto& [weight, gradient] : training_->trained()) {
        const std::span<const float> floats = training_->Floats(weight);
        const auto begin = static_cast<size_t>(floats.data() - first);
        const bool decays = training_->program().value(weight).shape.rank > 1;
        segments_.push_back({begin, begin + floats.size(), decays});
    }
    const size_t count = training_->weights().size();
    const size_t shares = options_.zero > 0 ? static_cast<size_t>(cluster_.size()) : 1;
    share_ = options_.zero > 0 ? static_cast<size_t>(cluster_.rank()) : 0;
    for (size_t i = 0; i <= shares; ++i) begins_.push_back(count / kGrain * i / shares * kGrain);
    begins_.back() = count;
    adam_.m.assign(share_end() - share_begin(), 0.0f);
    adam_.v.assign(share_end() - share_begin(), 0.0f);
    return {};
}

Status Trainer::JoinGroup() {
    if (cluster_.size() == 1) return {};
    net::Fabric& fabric = cluster_.fabric();
    size_t window = SIZE_MAX;
    for (const auto& link : fabric.links) {
        if (link != nullptr) window = std::min(window, link->window_bytes());
    }
    std::vector<int> everyone(static_cast<size_t>(cluster_.size()));
    std::iota(everyone.begin(), everyone.end(), 0);
    const coll::Channel all{0, window / 4096 * 4096, 0, net::kFlags};
    WEFT_ASSIGN(world_, coll::Comm::Make(fabric, everyone, all, cluster_.timeout_ms()));
    return {};
}

// From the file's types to float32, some rows at a time.
Status Trainer::Load() {
    const program::Program& program = training_->program();
    std::vector<std::byte> raw;
    for (size_t i = 0; i < program.values.size(); ++i) {
        if (program.values[i].storage != program::Storage::kWeight) continue;
        program::Value value = program.values[i];
        const formats::TensorInfo* tensor = source_->FindTensor(value.slice.name);
        if (value.shape.rank > 2 || tensor == nullptr) {
            return MakeError(ErrorCode::kUnsupported, "{}: weight {} is none that can be trained",
                             source_->name(), value.name);
        }
        value.dtype = tensor->dtype;
        const int64_t rows = value.shape[0], cols = value.shape.rank == 1 ? 1 : value.shape[1];
        const std::span<float> floats = training_->Floats(static_cast<ValueId>(i));
        const int64_t step = value.shape.rank == 1 ? rows : std::max(kLoadElements / cols, 1l);
        for (int64_t row = 0; row < rows; row += step) {
            const int64_t count = std::min(step, rows - row);
            const int64_t of_type = value.shape.rank == 1 ? RowBytes(value.dtype, count)
                                                          : count * RowBytes(value.dtype, cols);
            raw.resize(static_cast<size_t>(of_type));
            WEFT_TRY(model::ReadWeight(*source_, value, row, count, raw, nullptr));
            DequantizeRow(
                value.dtype, raw,
                floats.subspan(static_cast<size_t>(row * cols), static_cast<size_t>(count * cols)));
        }
    }
    return {};
}

// The rows of some sequences, without their padding: samples attend to themselves only.
Status Trainer::RunMicroBatch(std::span<const Sequence> sequences, float loss_gradient) {
    tokens_.clear();
    positions_.clear();
    output_rows_.clear();
    targets_.clear();
    sequences_.clear();
    for (const Sequence& sequence : sequences) {
        const auto base = static_cast<int32_t>(tokens_.size());
        for (size_t s = 0; s < sequence.begins.size(); ++s) {
            const int32_t begin = sequence.begins[s];
            const int32_t end =
                s + 1 < sequence.begins.size() ? sequence.begins[s + 1] : sequence.used;
            sequences_.push_back({base + begin, end - begin, 0, {}});
            for (int32_t i = begin; i < end; ++i) {
                const int32_t target = sequence.targets[static_cast<size_t>(i)];
                const int32_t most = std::max(target, sequence.tokens[static_cast<size_t>(i)]);
                if (most >= hyper_.vocab) {
                    return MakeError(ErrorCode::kUsage,
                                     "the data have token {}, but {} has a vocabulary of {}: they "
                                     "are of another tokenizer",
                                     most, source_->name(), hyper_.vocab);
                }
                tokens_.push_back(sequence.tokens[static_cast<size_t>(i)]);
                positions_.push_back(i - begin);
                if (target < 0) continue;
                output_rows_.push_back(base + i);
                targets_.push_back(target);
            }
        }
    }
    if (targets_.empty()) return {};
    backend::TrainingStep step;
    step.number = adam_.steps + 1;
    step.tokens = tokens_;
    step.positions = positions_;
    step.sequences = sequences_;
    step.output_rows = output_rows_;
    step.targets = targets_;
    step.loss_gradient = loss_gradient;
    WEFT_TRY(training_->Run(step, {}));
    loss_sum_ += training_->loss();
    return {};
}

// Gradients of the mean over the batch's targets, of this rank's sequences.
Result<StepReport> Trainer::Accumulate(const Batch& batch) {
    StepReport report;
    report.targets = static_cast<int64_t>(batch.global_targets);
    loss_sum_ = 0;
    training_->ZeroGradients();
    const auto micro = static_cast<size_t>(options_.micro_batch);
    const std::span<const Sequence> all = batch.sequences;
    const auto gradient = static_cast<float>(1.0 / static_cast<double>(batch.global_targets));
    for (size_t begin = 0; begin < all.size(); begin += micro) {
        WEFT_TRY(RunMicroBatch(all.subspan(begin, std::min(micro, all.size() - begin)), gradient));
        for (size_t i = begin; i < std::min(begin + micro, all.size()); ++i) {
            report.positions += all[i].used;
        }
    }
    report.loss = loss_sum_;
    return report;
}

// Sums the loss and the gradients over the ranks; under ZeRO, of the gradients this rank's share.
Status Trainer::Reduce(StepReport& report) {
    const int64_t step = adam_.steps + 1;
    if (world_ != nullptr) {
        // Ranks are ready at different times (their sequences differ), and a collective waits for
        // its peers no longer than the cluster's timeout. Who is lost meanwhile ends this at once.
        WEFT_TRY(cluster_.Barrier("gradients", Deadline::In(kAgreeMs)));
        double sums[] = {report.loss, static_cast<double>(report.positions)};
        WEFT_TRY(world_->AllReduce(std::span<double>(sums), Tag("loss", step)));
        report.loss = sums[0];
        report.positions = static_cast<int64_t>(sums[1]);
        if (options_.zero == 0) {
            WEFT_TRY(world_->AllReduce(training_->gradients(), Tag("gradients", step)));
        } else {
            std::vector<size_t> counts;
            for (size_t i = 0; i + 1 < begins_.size(); ++i) {
                counts.push_back(begins_[i + 1] - begins_[i]);
            }
            WEFT_TRY(world_->ReduceScatter(training_->gradients(), counts, Tag("gradients", step)));
        }
    }
    report.loss /= static_cast<double>(report.targets);
    return {};
}

// Of all ranks' weights, in an order that no number of threads changes.
Result<double> Trainer::GradientNorm() {
    const std::span<const float> gradients =
        training_->gradients().subspan(share_begin(), share_end() - share_begin());
    std::vector<double> sums((gradients.size() + kBlock - 1) / kBlock);
    training_->InParts([&](int part, int parts) {
        for (size_t b = static_cast<size_t>(part); b < sums.size();
             b += static_cast<size_t>(parts)) {
            const auto block =
                gradients.subspan(b * kBlock, std::min(kBlock, gradients.size() - b * kBlock));
            double sum = 0;
            for (const float g : block) sum += static_cast<double>(g) * static_cast<double>(g);
            sums[b] = sum;
        }
    });
    double total = std::accumulate(sums.begin(), sums.end(), 0.0);
    if (world_ != nullptr && options_.zero > 0) {
        WEFT_TRY(world_->AllReduce(std::span<double>(&total, 1), Tag("norm", adam_.steps + 1)));
    }
    return std::sqrt(total);
}

Status Trainer::Update(double learning_rate, double gradient_scale) {
    const auto t = static_cast<double>(++adam_.steps);
    kernels::dense::AdamWArgs all;
    all.rate = static_cast<float>(learning_rate);
    all.beta1 = static_cast<float>(options_.adam.beta1);
    all.beta2 = static_cast<float>(options_.adam.beta2);
    all.eps = static_cast<float>(options_.adam.eps);
    all.correction1 = static_cast<float>(1 - std::pow(options_.adam.beta1, t));
    all.correction2 = static_cast<float>(1 - std::pow(options_.adam.beta2, t));
    all.grad_scale = static_cast<float>(gradient_scale);
    training_->InParts([&](int part, int parts) {
        for (const Segment& segment : segments_) {
            const size_t begin = std::max(segment.begin, share_begin());
            const size_t end = std::min(segment.end, share_end());
            if (begin >= end) continue;
            kernels::dense::AdamWArgs args = all;
            args.p = training_->weights().data() + begin;
            args.g = training_->gradients().data() + begin;
            args.m = adam_.m.data() + (begin - share_begin());
            args.v = adam_.v.data() + (begin - share_begin());
            args.count = static_cast<int64_t>(end - begin);
            args.decay = segment.decays ? static_cast<float>(options_.adam.weight_decay) : 0.0f;
            training_->dense().adamw(args, part, parts);
        }
    });
    if (world_ == nullptr || options_.zero == 0) return {};
    std::vector<size_t> bytes;
    for (size_t i = 0; i + 1 < begins_.size(); ++i) {
        bytes.push_back((begins_[i + 1] - begins_[i]) * sizeof(float));
    }
    return world_->AllGather(std::as_writable_bytes(training_->weights()), bytes,
                             Tag("weights", adam_.steps));
}

Result<StepReport> Trainer::Step(const Batch& batch, double learning_rate) {
    if (cluster_.stop_requested()) return MakeError(ErrorCode::kCancelled, "stopped by the user");
    WEFT_ASSIGN(StepReport report, Accumulate(batch));
    WEFT_TRY(Reduce(report));
    WEFT_ASSIGN(report.grad_norm, GradientNorm());
    if (!std::isfinite(report.loss) || !std::isfinite(report.grad_norm)) {
        return MakeError(ErrorCode::kCorrupt,
                         "step {}: the loss is {}, the gradient norm {}: training has diverged. "
                         "Use a lower --lr or a longer warm-up",
                         adam_.steps + 1, report.loss, report.grad_norm);
    }
    const bool clips = options_.clip > 0 && report.grad_norm > options_.clip;
    // (The 1e-6 is torch.nn.utils.clip_grad_norm_'s.)
    const double scale = clips ? options_.clip / (report.grad_norm + 1e-6) : 1.0;
    WEFT_TRY(Update(learning_rate, scale));
    return report;
}

std::unique_ptr<formats::ModelSource> Trainer::Trained() {
    return std::make_unique<TrainedSource>(*source_, *training_);
}

backend::MemoryUse Trainer::memory() const {
    backend::MemoryUse use = training_->memory();
    use.weight_bytes += (adam_.m.size() + adam_.v.size()) * sizeof(float);
    return use;
}

int64_t Trainer::parameters() const {
    int64_t count = 0;
    for (const Segment& segment : segments_) {
        count += static_cast<int64_t>(segment.end - segment.begin);
    }
    return count;
}

}  // namespace weft::train
