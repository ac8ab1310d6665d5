#include "plan/train_walk.h"

#include <algorithm>
#include <set>

#include "program/arena.h"
#include "train/trainer.h"

namespace weft::plan {
namespace {

using program::Program;
using program::Storage;

constexpr std::string_view kEmbedding = "token_embd.weight";

// Shards with equal counts have equal Programs.
std::string CountsOf(const model::Shard& s) {
    return fmt::format("{} {} {} {} {} {} {}", s.heads.size(), s.kv_heads.size(), s.ffn.size(),
                       s.vocab.size(), s.experts.size(), s.expert_ffn.size(), s.shared_ffn.size());
}

TrainedElements ElementsOf(const train::TrainingGraph& graph) {
    TrainedElements elements;
    std::set<program::ValueId> trained;
    for (const program::FlatBucket& unit : graph.units) {
        for (const program::FlatBucket::Member& member : unit.members) {
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

}  // namespace

Result<TrainWalk> TrainWalk::Make(const ModelWalk& walk, const TrainJob& job) {
    TrainWalk made;
    made.walk_ = &walk;
    made.job_ = &job;
    if (walk.hyper().latent.rank > 0) {
        return MakeError(ErrorCode::kUnsupported,
                         "{}: Weft does not train latent attention (DeepSeek, Kimi)",
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
    graph.recompute = key.recompute;
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
    WEFT_ASSIGN(parts.first, BuildPart(PartOf(shard, 0, {0, end}), graph));
    for (int64_t layer = 0; layer < layers; ++layer) {
        const int kind = walk_->kind_of_layer()[static_cast<size_t>(layer)];
        if (parts.layers.contains(kind)) continue;
        WEFT_ASSIGN(TrainPart part, BuildPart(PartOf(shard, 1, {layer, layer + 1}), graph));
        parts.layers.emplace(kind, std::move(part));
    }
    WEFT_ASSIGN(parts.last, BuildPart(PartOf(shard, 2, {layers - end, layers}), graph));
    return parts;
}

Result<TrainPart> TrainWalk::BuildPart(const model::Shard& shard,
                                       const train::GraphOptions& graph) const {
    TrainPart part;
    WEFT_ASSIGN(part.graph,
                train::BuildTrainingGraph(walk_->hyper(), {&shard, 1}, walk_->source(), graph));
    part.elements = ElementsOf(part.graph);
    return part;
}

Result<std::vector<model::Span>> TrainWalk::LayersOf(int chunks) {
    if (const auto found = spans_.find(chunks); found != spans_.end()) return found->second;
    model::Layout layout;
    layout.pp = chunks;
    WEFT_ASSIGN(const model::ShardPlan plan,
                model::PlanShards(walk_->hyper(), walk_->source(), layout));
    std::vector<model::Span> spans;
    for (const model::Shard& shard : plan.shards) spans.push_back(shard.layers);
    spans_.emplace(chunks, spans);
    return spans;
}

PartUse UseOf(const TrainPart& part, const TrainPlace& place, bool overlap) {
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
    return use;
}

}  // namespace weft::plan
