#include "plan/train_walk.h"

#include <algorithm>
#include <set>

#include "backend/memory_plan.h"
#include "model/builder.h"
#include "plan/weft_rates.h"
#include "program/arena.h"
#include "train/grpo/generator.h"
#include "train/grpo/judge.h"
#include "train/trainer.h"

namespace weft::plan {
namespace {

using program::Op;
using program::OpCost;
using program::OpKind;
using program::Program;
using program::Trait;

// Starting and writing a tile takes as long as this many terms of its sums.
constexpr double kEdge = 128;
// Sequence length at which fused attention has half of its rate.
constexpr double kShortSequence = 400;

constexpr double kUnitElements = 1 << 24;  // elements of a unit of weights (program/zero.h)
constexpr std::string_view kEmbedding = "token_embd.weight";

constexpr CauseRow<TrainSeconds> kTrainRows[] = {{"products", &TrainSeconds::products},
                                                 {"attention", &TrainSeconds::attention},
                                                 {"memory", &TrainSeconds::memory},
                                                 {"launch", &TrainSeconds::launch},
                                                 {"tensor syncs", &TrainSeconds::tensor},
                                                 {"shares", &TrainSeconds::shares},
                                                 {"hops", &TrainSeconds::hops},
                                                 {"bubble", &TrainSeconds::bubble},
                                                 {"optimizer", &TrainSeconds::update},
                                                 {"stragglers", &TrainSeconds::stragglers},
                                                 {"data", &TrainSeconds::data}};

double Bytes(const OpCost& cost) {
    return static_cast<double>(cost.read_bytes + cost.written_bytes);
}

// ---- Seconds ------------------------------------------------------------------------------------

class OpTimer {
  public:
    OpTimer(const Program& list, const TrainPlace& place)
        : list_(list),
          place_(place),
          sequence_(static_cast<double>(place.sequence)),
          rows_(place.sequence * place.micro_batch),
          outputs_((rows_ + place.cp - 1) / place.cp) {
        for (const Op& op : list.ops) {
            if (!op.Is(Trait::kRouter)) continue;
            const auto last = [&](program::ValueId id) {
                const program::Shape& shape = list.value(id).shape;
                return static_cast<double>(shape[shape.rank - 1]);
            };
            expert_share_ = last(op.outputs[0]) / last(op.inputs[0]);
        }
    }

    TrainSeconds Time(std::span<const OpCost> costs, size_t begin, size_t end) const {
        TrainSeconds sum;
        double ops = 0;
        for (size_t i = begin; i < end; ++i) {
            const Op& op = list_.ops[i];
            if (op.Is(Trait::kMessage)) continue;
            if (op.Is(Trait::kTransfer)) {
                sum.tensor += WireSeconds(op, static_cast<double>(costs[i].wire_bytes));
                continue;
            }
            ++ops;
            Add(op, costs[i], sum);
        }
        sum.launch = ops * place_.device.op_s;
        return sum;
    }

  private:
    void Add(const Op& op, const OpCost& cost, TrainSeconds& sum) const {
        const bool attention = op.Is(Trait::kAttention);
        const double bytes_s = Bytes(cost) / place_.device.memory;
        if (const auto rate = MeasuredRate(op); rate) {
            const bool by_flops = op.Is(Trait::kByFlops);
            (attention  ? sum.attention
             : by_flops ? sum.products
                        : sum.memory) += (by_flops ? cost.flops : Bytes(cost)) / *rate;
        } else if (attention) {
            const double slower = 1 + kShortSequence / sequence_;
            sum.attention += std::max(cost.flops / place_.device.attention * slower, bytes_s);
        } else if (op.Is(Trait::kAnyProduct)) {
            sum.products += std::max(ProductSeconds(op, cost), bytes_s);
        } else {
            sum.memory += bytes_s;
        }
    }

    // The rate of the op, or of the plain product that an expert's product or a product of the loss
    // corresponds to.
    std::optional<double> MeasuredRate(const Op& op) const {
        if (place_.rates == nullptr) return std::nullopt;
        const OpKind kind = op.kind();
        const OpKind plain = op.Is(Trait::kProduct)             ? OpKind::kMatMul
                             : op.Is(Trait::kProductGradInput)  ? OpKind::kMatMulGradInput
                             : op.Is(Trait::kProductGradWeight) ? OpKind::kMatMulGradWeight
                                                                : kind;
        const auto all = static_cast<double>(rows_);
        const double rows = plain != kind ? std::max(1.0, all * expert_share_) : all;
        const auto rate = place_.rates->Rate(kind, op.Is(Trait::kAttention) ? sequence_ : rows);
        return rate ? rate : place_.rates->Rate(plain, rows);
    }

    double WireSeconds(const Op& op, double bytes) const {
        // (A rank keeps its own part of the bytes, as in an all-gather.)
        if (op.kind() == OpKind::kAllToAll)
            return AllGatherSeconds(place_.measured, place_.context, bytes);
        if (op.Is(Trait::kAllReduce))
            return AllReduceSeconds(place_.measured, place_.tensor, bytes);
        if (!op.Is(Trait::kReduceScatter))
            return AllGatherSeconds(place_.measured, place_.tensor, bytes);
        const auto value_bytes = static_cast<double>(RowBytes(list_.value(op.inputs[0]).dtype, 1));
        return ReduceScatterSeconds(place_.measured, place_.tensor, bytes, value_bytes);
    }

    double ProductSeconds(const Op& op, const OpCost& cost) const {
        if (cost.flops <= 0) return 0;
        // For a loss's product, the outputs are the logits.
        const bool logits = op.Is(Trait::kLogits);
        const int64_t elements =
            logits
                ? outputs_ * list_.value(program::WeightOf(op)).shape[0]
                : std::max<int64_t>(list_.value(op.outputs[0]).shape.Elements(rows_, outputs_), 1);
        const auto outputs = static_cast<double>(elements);
        double summed = cost.flops / (2 * outputs);
        if (logits && op.Is(Trait::kProductGradWeight)) summed /= 3;
        const DeviceRates& device = place_.device;
        return TiledSeconds(cost.flops, outputs, device.products, device.in_flight) *
               (1 + kEdge / std::max(summed, 1.0));
    }

    const Program& list_;
    const TrainPlace& place_;
    const double sequence_;
    const int64_t rows_, outputs_;  // of all context ranks, and of this one
    double expert_share_ = 1;       // share of all rows that an expert has
};

// ---- Parts --------------------------------------------------------------------------------------

TrainedElements ElementsOf(const train::TrainingGraph& graph) {
    TrainedElements elements;
    double largest = kUnitElements, of_layers = kUnitElements;
    std::set<program::ValueId> trained;
    for (const program::FlatBucket& unit : graph.units) {
        for (const program::FlatBucket::Member& member : unit.members) {
            const auto count = static_cast<double>(member.weight.shape.Elements(0, 0));
            if (member.weight.shape.rank > 1) {
                elements.matrices += count;
                largest = std::max(largest, count);
                if (member.weight.slice.name == kEmbedding) elements.embedding += count;
                const bool in_layer = member.weight.slice.name.starts_with("blk.");
                if (!in_layer) elements.ends += count;
                if (in_layer) of_layers = std::max(of_layers, count);
            } else {
                elements.vectors += count;
            }
        }
        if (unit.weights != program::kNoValue) trained.insert(unit.weights);
    }
    elements.unit = std::min(elements.matrices, largest);
    elements.layer_unit = std::min(elements.matrices, of_layers);
    const Program& list = graph.program.program;
    for (size_t i = 0; i < list.values.size(); ++i) {
        const program::Value& value = list.values[i];
        if (value.storage != program::Storage::kWeight) continue;
        if (trained.contains(static_cast<program::ValueId>(i))) continue;
        const auto bytes = static_cast<double>(RowBytes(value.dtype, value.shape.Elements(0, 0)));
        elements.frozen_bytes += bytes;
        if (value.slice.name == kEmbedding) elements.frozen_embedding_bytes += bytes;
    }
    return elements;
}

}  // namespace

Result<TrainWalk> TrainWalk::Make(const ModelWalk& walk, const TrainJob& job) {
    TrainWalk made;
    made.walk_ = &walk;
    made.job_ = &job;
    if (job.lora.on()) {
        WEFT_ASSIGN(made.lora_, train::PlanLora(walk.source(), job.lora));
    }
    return made;
}

Result<double> TrainWalk::GeneratedBytes(int tp, int ep) {
    if (job_->completions == 0) return 0.0;
    if (const auto found = generated_.find({tp, ep}); found != generated_.end()) {
        return found->second;
    }
    model::Layout layout;
    layout.tp = tp;
    layout.ep = ep;
    layout.whole_blocks = true;
    WEFT_ASSIGN(const model::ShardPlan plan,
                model::PlanShards(walk_->hyper(), walk_->source(), layout));
    model::BuildOptions build;
    build.context = job_->sequence;
    build.kv_dtype = job_->dtype == DType::kF32 ? DType::kF32 : DType::kF16;
    std::set<std::vector<int64_t>> seen;
    int64_t most = 0;  // bytes of a page of one sequence
    for (const model::Shard& shard : plan.shards) {
        if (!seen.insert(SizesOf(walk_->hyper(), shard)).second) continue;
        WEFT_ASSIGN(const Program list,
                    model::BuildProgram(walk_->hyper(), shard, walk_->source(), build));
        most = std::max(most, program::StateBytes(list, program::kLeastPage));
    }
    train::GrpoOptions grpo;
    grpo.group = job_->group;
    grpo.slots = job_->completions;
    grpo.most_tokens =
        job_->completion > 0 ? job_->completion : std::max<int64_t>(job_->sequence / 2, 1);
    const train::GeneratorSize size =
        train::SizeOf(grpo, job_->completions, job_->sequence, program::kLeastPage);
    return generated_[{tp, ep}] = static_cast<double>(size.pages() * most);
}

Result<double> TrainWalk::JudgeWork(int tp, int64_t rows, int threads) {
    const train::RewardModelOptions options =
        train::JudgeOptions(job_->dtype, job_->sequence, rows, "");
    const auto [found, is_new] = judge_work_.try_emplace({tp, options.rows, threads}, 0);
    if (!is_new) return found->second;
    const backend::DescribedDevice device{
        threads > 0 ? backend::MemoryKind::kHost : backend::MemoryKind::kDevice, threads, false};
    const program::Target target = backend::TargetOf(device);
    model::Layout layout;
    layout.tp = tp;
    layout.whole_blocks = true;
    for (const ModelWalk* judge : job_->judges) {
        WEFT_ASSIGN(const model::ShardPlan plan,
                    model::PlanShards(judge->hyper(), judge->source(), layout));
        WEFT_ASSIGN(const program::ChunkedProgram list,
                    train::BuildJudge(judge->hyper(), {plan.shards.data(), 1}, judge->source(),
                                      options, target));
        const auto use = backend::PlanMemory(
            list, train::CompileOptionsOfJudge(judge->hyper(), options, target), device);
        if (use.ok()) found->second += static_cast<double>(use->arena_bytes);
    }
    return found->second;
}

Result<const std::vector<RankParts>*> TrainWalk::PartsOf(const PartsKey& key) {
    if (const auto found = parts_.find(key); found != parts_.end()) return found->second.get();
    model::Layout layout;
    layout.tp = key.tp;
    layout.ep = key.ep;
    layout.whole_blocks = true;
    WEFT_ASSIGN(const model::ShardPlan plan,
                model::PlanShards(walk_->hyper(), walk_->source(), layout));
    train::GraphOptions graph;
    graph.dtype = job_->dtype;
    graph.gradients = key.gradients;
    graph.recompute = key.recompute;
    graph.sequence = job_->sequence;
    graph.row_shares = key.row_shares;
    graph.context_ranks = key.cp;
    graph.vectors = job_->vectors;
    if (lora_) graph.lora = &*lora_;
    std::set<std::vector<int64_t>> seen;
    auto ranks = std::make_unique<std::vector<RankParts>>();
    for (const model::Shard& shard : plan.shards) {
        if (!seen.insert(SizesOf(walk_->hyper(), shard)).second) continue;
        WEFT_ASSIGN(RankParts parts, BuildRank(shard, graph));
        ranks->push_back(std::move(parts));
    }
    return parts_.emplace(key, std::move(ranks)).first->second.get();
}

Result<RankParts> TrainWalk::BuildRank(const model::Shard& shard,
                                       const train::GraphOptions& graph) const {
    RankParts parts;
    const auto add = [&](int key, const model::Shard& part) -> Status {
        if (parts.contains(key)) return {};
        TrainPart& added = parts[key];
        WEFT_ASSIGN(added.graph,
                    train::BuildTrainingGraph(walk_->hyper(), {&part, 1}, walk_->source(), graph));
        added.elements = ElementsOf(added.graph);
        return {};
    };
    const int64_t layers = walk_->hyper().layers, end = lora_ ? 1 : 0;
    if (lora_ && layers == 1) {
        WEFT_TRY(add(kLast, shard));
        return parts;
    }
    WEFT_TRY(add(kFirst, PartOf(shard, 0, {0, end})));
    for (int64_t layer = 0; layer < layers; ++layer) {
        const int kind = walk_->kind_of_layer()[static_cast<size_t>(layer)];
        WEFT_TRY(add(kind, PartOf(shard, 1, {layer, layer + 1})));
    }
    WEFT_TRY(add(kLast, PartOf(shard, 2, {layers - end, layers})));
    return parts;
}

Result<std::vector<std::vector<int>>> TrainWalk::ChunksOf(int chunks) {
    if (const auto found = chunks_.find(chunks); found != chunks_.end()) return found->second;
    model::Layout layout;
    layout.pp = chunks;
    WEFT_ASSIGN(const model::ShardPlan plan,
                model::PlanShards(walk_->hyper(), walk_->source(), layout));
    const std::vector<int>& kinds = walk_->kind_of_layer();
    const int64_t layers = walk_->hyper().layers, end = lora_ ? 1 : 0;
    std::vector<std::vector<int>>& all = chunks_[chunks];
    for (const model::Shard& shard : plan.shards) {
        std::vector<int>& keys = all.emplace_back();
        if (shard.first_stage() && layers > end) keys.push_back(kFirst);
        const int64_t begin = std::max(shard.layers.begin, end);
        for (int64_t layer = begin; layer < std::min(shard.layers.end, layers - end); ++layer) {
            keys.push_back(kinds[static_cast<size_t>(layer)]);
        }
        if (shard.last_stage()) keys.push_back(kLast);
    }
    return all;
}

// ---- Costs --------------------------------------------------------------------------------------

std::span<const CauseRow<TrainSeconds>> TrainSeconds::Rows() {
    return kTrainRows;
}

void TrainedElements::Add(const TrainedElements& other) {
    matrices += other.matrices;
    vectors += other.vectors;
    ends += other.ends;
    unit = std::max(unit, other.unit);
    layer_unit = std::max(layer_unit, other.layer_unit);
    frozen_bytes += other.frozen_bytes;
}

void PartUse::Add(const PartUse& other) {
    forward += other.forward;
    backward += other.backward;
    forward_flops += other.forward_flops;
    kept += other.kept;
    brief = std::max(brief, other.brief);
    scratch = std::max(scratch, other.scratch);
}

std::vector<OpCost> TrainCosts(const Program& list, int64_t sequence, int64_t micro_batch, int cp) {
    const auto cost = [&](int64_t sequences) {
        const int64_t rows = sequence * sequences;
        return program::Cost(list,
                             program::StepShape{sequences, sequence, (rows + cp - 1) / cp, 0});
    };
    std::vector<OpCost> costs = cost(micro_batch);
    if (micro_batch == 1) return costs;
    const std::vector<OpCost> one = cost(1);
    for (size_t i = 0; i < costs.size(); ++i) {
        const program::OpRow& row = program::RowOf(list.ops[i].kind());
        if (!row.Is(Trait::kAttention) || row.pass != program::Pass::kBackward) continue;
        // (The cost of all rows counts the pairs of one long sequence.)
        costs[i].flops = one[i].flops * static_cast<double>(micro_batch);
    }
    return costs;
}

// Activations and scratch memory of a processor's executable; 0: unknown.
static double WorkBytes(const TrainPart& part, const TrainPlace& place, bool overlap) {
    if (place.threads == 0) return 0;
    backend::CompileOptions options;
    options.compute = place.compute;
    options.max_tokens = place.sequence * place.micro_batch;
    options.max_outputs = (options.max_tokens + place.cp - 1) / place.cp;
    options.beside = overlap;
    const auto use = backend::PlanMemory(part.graph.program, options,
                                         {backend::MemoryKind::kHost, place.threads, false});
    return use.ok() ? static_cast<double>(use->arena_bytes) : 0;
}

PartUse UseOf(const TrainPart& part, const TrainPlace& place, bool overlap) {
    const Program& list = part.graph.program.program;
    const auto [found, is_new] =
        part.costs.try_emplace({place.micro_batch, place.threads, overlap});
    TrainPart::Costs& costs = found->second;
    if (is_new) {
        costs.ops = TrainCosts(list, place.sequence, place.micro_batch, place.cp);
        const int64_t rows = place.sequence * place.micro_batch;
        const int64_t outputs = (rows + place.cp - 1) / place.cp;
        const program::TrainingArenaPlan plan =
            program::PlanTrainingArena(part.graph.program, rows, outputs, {true, overlap});
        costs.kept = static_cast<double>(plan.kept.size_bytes);
        costs.brief = static_cast<double>(plan.brief.size_bytes);
        costs.scratch = WorkBytes(part, place, overlap) - costs.kept - costs.brief;
        costs.scratch = std::max(0.0, costs.scratch);
    }
    const size_t backward = part.graph.program.chunks[0].backward_begin;
    const OpTimer timer(list, place);
    PartUse use;
    use.forward = timer.Time(costs.ops, 0, backward);
    use.backward = timer.Time(costs.ops, backward, list.ops.size());
    for (size_t i = 0; i < backward; ++i) use.forward_flops += costs.ops[i].flops;
    use.kept = costs.kept;
    use.brief = costs.brief;
    use.scratch = costs.scratch;
    return use;
}

const TrainingRates* MeasuredTraining(const Machine& machine, DType dtype) {
    if (!machine.measured) return nullptr;
    const auto found = machine.measured->training.find(dtype);
    return found == machine.measured->training.end() ? nullptr : &found->second;
}

}  // namespace weft::plan
