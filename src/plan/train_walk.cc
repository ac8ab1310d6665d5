#include "plan/train_walk.h"

#include <algorithm>
#include <set>

#include "program/arena.h"
#include "train/trainer.h"

namespace weft::plan {
namespace {

using program::Program;
using program::Recompute;
using program::Storage;

constexpr std::string_view kEmbedding = "token_embd.weight";

// The shard as a part of a pipeline of three stages: the first has no layers, the last neither, and
// the one between those that are given.
model::Shard TrainPartOf(const model::Shard& shard, int stage, model::Span layers) {
    model::Shard part = shard;
    part.layout.pp = 3;
    part.layout.pp_shares.clear();
    part.stage = stage;
    part.rank = stage * shard.layout.tp + shard.tensor_rank;
    part.layers = layers;
    return part;
}

// Shards with the same counts have the same lists.
std::string CountsOf(const model::Shard& s) {
    return fmt::format("{} {} {} {} {} {} {}", s.heads.size(), s.kv_heads.size(), s.ffn.size(),
                       s.vocab.size(), s.experts.size(), s.expert_ffn.size(), s.shared_ffn.size());
}

// Other programs keep the residual stream, and sum over ranks, in the type that they compute in.
void NarrowAll(Program& list, DType dtype) {
    for (program::Value& value : list.values) {
        const bool activation = value.storage == Storage::kActivation && value.shape.rank > 1;
        if (activation && value.dtype == DType::kF32) value.dtype = dtype;
    }
}

TrainedElements ElementsOf(const train::TrainingGraph& graph) {
    TrainedElements elements;
    std::set<program::ValueId> trained;
    for (const program::Unit& unit : graph.units) {
        for (const program::Unit::Member& member : unit.members) {
            const auto count = static_cast<double>(member.weight.shape.Elements(0, 0));
            if (member.weight.shape.rank > 1) {
                elements.matrices += count;
                elements.largest = std::max(elements.largest, count);
                if (member.weight.slice.name == kEmbedding) elements.embedding += count;
            } else {
                elements.vectors += count;
            }
        }
        if (unit.weights != program::kNoValue) trained.insert(unit.weights);
    }
    const Program& list = graph.program.program;
    for (size_t i = 0; i < list.values.size(); ++i) {
        const program::Value& value = list.values[i];
        if (value.storage != Storage::kWeight) continue;
        if (trained.contains(static_cast<program::ValueId>(i))) continue;
        const auto bytes = static_cast<double>(RowBytes(value.dtype, value.shape.Elements(0, 0)));
        elements.frozen_bytes += bytes;
        if (value.slice.name == kEmbedding) elements.frozen_embedding_bytes += bytes;
    }
    return elements;
}

// Scores that a layer keeps for its backward pass: probabilities, a mask, and what it left.
double ScoreBytes(const Program& list, const TrainPlace& place) {
    double bytes = 0;
    const auto length = static_cast<double>(place.sequence);
    for (const program::Op& op : list.ops) {
        if (op.kind() != program::OpKind::kAttention) continue;
        bytes += 5 * length * length * static_cast<double>(place.micro_batch) *
                 static_cast<double>(op.as<program::Attention>().heads);
    }
    return bytes;
}

// Rows that the forward pass gathers and the backward pass wants again: those of other ranks, and
// the most of one gather. Other programs keep their own rows alone and gather the others' once more
// (Korthikanti et al. 2022, "Reducing activation recomputation in large transformer models",
// section 4.2.2).
struct GatheredBytes {
    double others = 0, largest = 0;
};
GatheredBytes KeptGathers(const TrainPart& part, int64_t rows) {
    const Program& list = part.list();
    const auto forward = std::span(list.ops).first(part.backward_begin());
    const auto backward = std::span(list.ops).subspan(part.backward_begin());
    std::set<program::ValueId> wanted;
    for (const program::Op& op : backward) {
        for (const program::ValueId id : op.inputs) wanted.insert(list.HomeOf(id));
    }
    const auto bytes = [&](program::ValueId id) {
        const program::Value& value = list.value(id);
        return static_cast<double>(RowBytes(value.dtype, value.shape.Elements(rows, rows)));
    };
    GatheredBytes gathered;
    for (const program::Op& op : forward) {
        if (!op.Is(program::Trait::kAllGather)) continue;
        if (!wanted.contains(list.HomeOf(op.outputs[0]))) continue;
        const double all = bytes(op.outputs[0]);
        gathered.others += all - bytes(op.inputs[0]);
        gathered.largest = std::max(gathered.largest, all);
    }
    return gathered;
}

// Logits in the type computed in, and in float32 with their gradient.
double LogitBytes(const Program& list, const TrainPlace& place) {
    for (const program::Op& op : list.ops) {
        if (!op.Is(program::Trait::kLogits)) continue;
        const auto rows = static_cast<double>(place.sequence * place.micro_batch);
        return 6 * rows * static_cast<double>(list.value(program::WeightOf(op)).shape[0]);
    }
    return 0;
}

}  // namespace

Result<TrainWalk> TrainWalk::Make(const ModelWalk& walk, const TrainJob& job) {
    TrainWalk made;
    made.walk_ = &walk;
    made.job_ = &job;
    if (walk.hyper().latent.rank > 0) {
        return MakeError(ErrorCode::kUnsupported,
                         "{}: no prediction of its training, in no program (--as): it is made of "
                         "what Weft would compute, which has no training form of latent attention "
                         "(DeepSeek, Kimi)",
                         walk.source().name());
    }
    if (job.lora.on()) {
        WEFT_ASSIGN(made.lora_, train::PlanLora(walk.source(), job.lora));
    }
    return made;
}

Result<const std::vector<RankParts>*> TrainWalk::PartsOf(const PartsKey& key) {
    auto found = parts_.find(key);
    if (found == parts_.end()) {
        WEFT_ASSIGN(std::vector<RankParts> built, Build(key));
        auto kept = std::make_unique<std::vector<RankParts>>(std::move(built));
        found = parts_.emplace(key, std::move(kept)).first;
    }
    return found->second.get();
}

Result<std::vector<RankParts>> TrainWalk::Build(const PartsKey& key) const {
    model::Layout layout;
    layout.tp = key.tp;
    layout.ep = key.ep;
    layout.whole_blocks = true;
    WEFT_ASSIGN(const model::ShardPlan plan,
                model::PlanShards(walk_->hyper(), walk_->source(), layout));
    train::GraphOptions graph;
    graph.dtype = job_->dtype;
    graph.gradients = key.gradients;
    graph.recompute = job_->style.weft ? key.recompute : Recompute::kNone;
    graph.sequence = job_->sequence;
    graph.row_shares = key.row_shares;
    if (lora_) graph.lora = &*lora_;
    std::set<std::string> seen;
    std::vector<RankParts> ranks;
    for (const model::Shard& shard : plan.shards) {
        if (!seen.insert(CountsOf(shard)).second) continue;
        WEFT_ASSIGN(RankParts parts, BuildRank(shard, graph));
        ranks.push_back(std::move(parts));
    }
    return ranks;
}

Result<RankParts> TrainWalk::BuildRank(const model::Shard& shard,
                                       const train::GraphOptions& graph) const {
    RankParts parts;
    const int64_t layers = walk_->hyper().layers, end = lora_ ? 1 : 0;
    parts.ends_have_layers = lora_.has_value();
    parts.all_in_last = lora_ && layers == 1;
    if (parts.all_in_last) {
        WEFT_ASSIGN(parts.last, BuildPart(shard, graph));
        parts.first = parts.last;
        return parts;
    }
    WEFT_ASSIGN(parts.first, BuildPart(TrainPartOf(shard, 0, {0, end}), graph));
    for (int64_t layer = 0; layer < layers; ++layer) {
        const int kind = walk_->kind_of_layer()[static_cast<size_t>(layer)];
        if (parts.layers.contains(kind)) continue;
        WEFT_ASSIGN(TrainPart part, BuildPart(TrainPartOf(shard, 1, {layer, layer + 1}), graph));
        parts.layers.emplace(kind, std::move(part));
    }
    WEFT_ASSIGN(parts.last, BuildPart(TrainPartOf(shard, 2, {layers - end, layers}), graph));
    return parts;
}

Result<TrainPart> TrainWalk::BuildPart(const model::Shard& shard,
                                       const train::GraphOptions& graph) const {
    TrainPart part;
    WEFT_ASSIGN(part.graph,
                train::BuildTrainingGraph(walk_->hyper(), {&shard, 1}, walk_->source(), graph));
    if (!job_->style.weft) NarrowAll(part.graph.program.program, job_->dtype);
    part.elements = ElementsOf(part.graph);
    return part;
}

Result<std::vector<model::Span>> TrainWalk::LayersOf(int chunks) {
    if (const auto found = spans_.find(chunks); found != spans_.end()) return found->second;
    std::vector<model::Span> spans;
    if (job_->style.even_layers) {
        if (chunks > layers()) {
            return MakeError(ErrorCode::kUnsupported,
                             "{} layers cannot be cut into {} runs of layers", layers(), chunks);
        }
        for (int64_t c = 0; c < chunks; ++c) {
            spans.push_back({layers() * c / chunks, layers() * (c + 1) / chunks});
        }
    } else {
        model::Layout layout;
        layout.pp = chunks;
        WEFT_ASSIGN(const model::ShardPlan plan,
                    model::PlanShards(walk_->hyper(), walk_->source(), layout));
        for (const model::Shard& shard : plan.shards) spans.push_back(shard.layers);
    }
    spans_.emplace(chunks, spans);
    return spans;
}

PartUse UseOf(const TrainPart& part, const TrainPlace& place, Recompute recompute, bool layer,
              bool overlap) {
    const Program& list = part.list();
    const std::vector<program::OpCost> costs = TrainCosts(list, place.sequence, place.micro_batch);
    PartUse use;
    use.forward = TimeOps(list, costs, 0, part.backward_begin(), place);
    use.backward = TimeOps(list, costs, part.backward_begin(), list.ops.size(), place);
    const int64_t rows = place.sequence * place.micro_batch;
    const program::TrainingArenaPlan plan =
        program::PlanTrainingArena(part.graph.program, rows, rows, {true, overlap});
    use.kept = static_cast<double>(plan.kept.size_bytes);
    use.brief = static_cast<double>(plan.brief.size_bytes);
    if (place.style->weft) return use;
    use.brief += LogitBytes(list, place);
    const double scores = place.style->scores ? ScoreBytes(list, place) : 0;
    const GatheredBytes gathered = KeptGathers(part, rows);
    use.kept += scores - gathered.others;
    use.brief += gathered.largest;
    if (!layer) return use;
    if (recompute == Recompute::kFull) {
        // Its input is kept, and all of it is run again, collectives too.
        const int columns = 1;
        const program::Value& input = list.values[static_cast<size_t>(list.ops[0].outputs[0])];
        const double whole = use.kept;
        use.kept =
            static_cast<double>(RowBytes(input.dtype, columns * input.shape.Elements(rows, rows)));
        use.brief += whole - use.kept;
        use.backward.all += use.forward.all;
        use.backward.flops += use.forward.flops;
    } else if (recompute == Recompute::kSelective && place.style->again > 0) {
        // Every second product's outputs are kept, and the rest is run again from these.
        use.kept *= 1 - place.style->again;
        use.backward.all.products += place.style->again * use.forward.all.products;
        use.backward.all.memory += use.forward.all.memory;
    } else if (recompute == Recompute::kSelective && place.style->scores) {
        use.kept -= scores;
        use.brief += scores;
        use.backward.all.attention += use.forward.scores;
    }
    return use;
}

}  // namespace weft::plan
