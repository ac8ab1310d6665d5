#include "plan/predict.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "program/target.h"

namespace weft::plan {
namespace {

constexpr int64_t kPageTokens = program::Target{}.page_tokens;
// What no figure's mark covers: the form of the model itself.
constexpr double kModelSpread = 0.05;

// What makes two ranks of a stage do the same.
using Signature = std::pair<std::string, std::array<int64_t, 11>>;
Signature SignatureOf(const model::Shard& s, const Machine& machine) {
    return {machine.name,
            {s.stage, s.heads.size(), s.kv_heads.size(), s.ffn.size(), s.vocab.size(),
             s.experts.size(), s.expert_ffn.size(), s.shared_ffn.size(), s.layers.begin,
             s.expert_ffn.begin == 0, s.rank == 0}};
}

class Predictor {
  public:
    Predictor(const ModelWalk& walk, const Cluster& cluster, const Runtime& runtime,
              const model::Layout& layout, const Workload& load)
        : walk_(walk), cluster_(cluster), runtime_(runtime), layout_(layout), load_(load) {}

    Result<Prediction> Run() {
        WEFT_ASSIGN(const model::ShardPlan plan,
                    model::PlanShards(walk_.hyper(), walk_.source(), layout_));
        flights_ = std::min<int64_t>(layout_.pp, load_.batch);
        stages_.resize(static_cast<size_t>(layout_.pp));
        for (const model::Shard& shard : plan.shards) WEFT_TRY(AddRank(shard));
        AddHops();
        if (load_.draft.walk != nullptr) WEFT_TRY(AddDraft());
        out_.layout = plan.shards[0].layout;  // with expert groups, where they are needed
        out_.name = Name();
        out_.hosts = cluster_.host_of(layout_.size() - 1) + 1;
        SetToken();
        SetPrompt();
        SetPower();
        return std::move(out_);
    }

  private:
    struct Stage {
        Breakdown decode, chunk, rest, last;  // a step of each kind
    };
    struct Timed {
        Stage times;
        MemoryUse memory;
    };

    Status AddRank(const model::Shard& shard) {
        const Machine& machine = cluster_.machine_of(shard.rank);
        const Signature signature = SignatureOf(shard, machine);
        auto found = timed_.find(signature);
        if (found == timed_.end()) {
            WEFT_ASSIGN(const RankWork work, walk_.WorkOf(shard));
            found = timed_.emplace(signature, TimeRank(work, shard, machine)).first;
        }
        MemoryUse memory = found->second.memory;
        memory.rank = shard.rank;
        out_.memory.push_back(memory);
        Stage& stage = stages_[static_cast<size_t>(shard.stage)];
        const Stage& times = found->second.times;
        for (Breakdown Stage::*kind : {&Stage::decode, &Stage::chunk, &Stage::rest, &Stage::last}) {
            if ((times.*kind).total() > (stage.*kind).total()) stage.*kind = times.*kind;
        }
        return {};
    }

    Timed TimeRank(const RankWork& work, const model::Shard& shard, const Machine& machine) const {
        const StepPlace place{&machine, &runtime_,
                              cluster_.GroupOf(shard.stage * layout_.tp, layout_.tp),
                              &walk_.hyper()};
        const int64_t sequences = (load_.batch + flights_ - 1) / flights_;
        const int64_t whole = chunks() * load_.chunk, rest = load_.prompt_tokens() - whole;
        Timed timed;
        const int64_t rows_each = load_.draft.walk == nullptr ? 1 : load_.draft.tokens + 1;
        timed.times.decode =
            TimeStep(work, {sequences, rows_each, sequences * rows_each, load_.context}, place);
        // All whole chunks as the middle one: attention grows in proportion to what is before it.
        if (chunks() > 0) {
            timed.times.chunk = TimeStep(
                work, {1, load_.chunk, 1, load_.depth + (whole - load_.chunk) / 2}, place, false);
        }
        if (rest > 0) {
            timed.times.rest = TimeStep(work, {1, rest, 1, load_.depth + whole}, place, false);
        }
        timed.times.last = LastOf(work, place);
        const int64_t longest = std::max(load_.context, load_.depth + load_.prompt_tokens());
        const int64_t pages = (longest + kPageTokens - 1) / kPageTokens;
        const int64_t rows =
            std::max(sequences * rows_each, std::min(load_.chunk, load_.prompt_tokens()));
        timed.memory.weights = work.weight_bytes;
        timed.memory.cache =
            work.state_bytes_per_token * static_cast<uint64_t>(load_.batch * pages * kPageTokens);
        timed.memory.work = work.work_bytes(rows, sequences * rows_each);
        timed.memory.room = machine.memory.value;
        return timed;
    }

    static Breakdown LastOf(const RankWork& work, const StepPlace& place) {
        RankWork last;
        for (const Piece& piece : work.pieces) {
            if (piece.last) last.pieces.push_back(piece);
        }
        return TimeStep(last, {1, 1, 1, 0}, place);
    }

    int64_t chunks() const { return load_.prompt_tokens() / load_.chunk; }

    double HopSeconds(int stage, int64_t rows, int64_t columns) const {
        const int next = (stage + 1) % layout_.pp;
        const int64_t bytes = rows * columns * 4;
        const int from = stage * layout_.tp, to = next * layout_.tp;
        const int from_host = cluster_.host_of(from), to_host = cluster_.host_of(to);
        const coll::Tier tier = cluster_.Between(from, to);
        const double own = from_host == to_host ? runtime_.hop_within.value : runtime_.hop.value;
        const double seconds = coll::MessageSeconds(tier, static_cast<double>(bytes)) + own;
        const bool relayed = runtime_.relay && from_host != to_host && from_host > 0 && to_host > 0;
        return relayed ? 2 * seconds : seconds;
    }

    // Hidden states to the next stage, logits from the last one to rank 0.
    void AddHops() {
        if (layout_.pp == 1) return;
        const int64_t sequences = (load_.batch + flights_ - 1) / flights_;
        const int64_t rows_each = load_.draft.walk == nullptr ? 1 : load_.draft.tokens + 1;
        for (int s = 0; s < layout_.pp; ++s) {
            Stage& stage = stages_[static_cast<size_t>(s)];
            const bool back = s == layout_.pp - 1;
            const int64_t columns = back ? walk_.hyper().vocab : walk_.hyper().hidden;
            stage.decode.hops += HopSeconds(s, sequences * rows_each, columns);
            if (back) {
                stage.last.hops += HopSeconds(s, 1, columns);
                continue;
            }
            if (chunks() > 0) stage.chunk.hops += HopSeconds(s, load_.chunk, columns);
            const int64_t rest = load_.prompt_tokens() % load_.chunk;
            if (rest > 0) stage.rest.hops += HopSeconds(s, rest, columns);
        }
    }

    // Each step in flight holds 1 / flights of the sequences. A token of all takes as long as the
    // slowest stage needs for all of them, or as one step needs through all stages.
    void SetToken() {
        Breakdown through;
        const Breakdown* slowest = &stages_[0].decode;
        for (const Stage& stage : stages_) {
            through += stage.decode;
            if (stage.decode.total() > slowest->total()) slowest = &stage.decode;
        }
        const double flights = static_cast<double>(flights_);
        const Breakdown turns = *slowest * flights;
        out_.token = turns.total() > through.total() ? turns : through;
        if (load_.draft.walk != nullptr) {
            out_.token.draft = draft_s_;
            out_.token = out_.token * (1 / load_.draft.yield());
        }
        out_.tok_s = static_cast<double>(load_.batch) / out_.token.total();
        out_.spread = out_.tok_s * Spread(out_.token);
    }

    // Chunks follow each other through the stages.
    void SetPrompt() {
        const Breakdown* slowest = &stages_[0].chunk;
        for (const Stage& stage : stages_) {
            if (chunks() > 0) out_.prompt += stage.chunk;
            out_.prompt += stage.rest;
            out_.prompt += stage.last;
            if (stage.chunk.total() > slowest->total()) slowest = &stage.chunk;
        }
        if (chunks() > 1) out_.prompt += *slowest * static_cast<double>(chunks() - 1);
        out_.ttft_s = out_.prompt.total();
        out_.prompt_tok_s = static_cast<double>(load_.prompt_tokens()) / out_.ttft_s;
    }

    // K steps of the draft model on rank 0, for all sequences.
    Status AddDraft() {
        const ModelWalk& walk = *load_.draft.walk;
        WEFT_ASSIGN(const model::ShardPlan plan,
                    model::PlanShards(walk.hyper(), walk.source(), model::Layout{}));
        WEFT_ASSIGN(const RankWork work, walk.WorkOf(plan.shards[0]));
        const StepPlace place{&cluster_.machine_of(0), &runtime_, {}, &walk.hyper()};
        const int64_t batch = load_.batch;
        const Breakdown step = TimeStep(work, {batch, 1, batch, load_.context}, place);
        draft_s_ = step.total() * static_cast<double>(load_.draft.tokens);
        MemoryUse& first = out_.memory[0];
        const int64_t pages = (load_.context + kPageTokens - 1) / kPageTokens;
        first.weights += work.weight_bytes;
        first.cache +=
            work.state_bytes_per_token * static_cast<uint64_t>(batch * pages * kPageTokens);
        return {};
    }

    // Of the hosts, by how much of a step each is busy. Where idle watts are unknown, they are busy
    // all the time.
    void SetPower() {
        const double flights = static_cast<double>(flights_);
        const double step_s = out_.token.total() * yield();
        std::vector<double> share(static_cast<size_t>(out_.hosts), 0);  // of the host's devices
        for (int rank = 0; rank < layout_.size(); ++rank) {
            const Breakdown& decode = stages_[static_cast<size_t>(rank / layout_.tp)].decode;
            const double busy = (decode.total() - decode.hops) * flights / step_s;
            share[static_cast<size_t>(cluster_.host_of(rank))] +=
                std::min(busy, 1.0) / cluster_.machine_of(rank).devices;
        }
        double watts = 0;
        for (int host = 0; host < out_.hosts; ++host) {
            const Machine& machine = cluster_.hosts[static_cast<size_t>(host)];
            if (!machine.watts_busy) return;
            const double busy = machine.watts_busy->value;
            const double idle = machine.watts_idle ? machine.watts_idle->value : busy;
            watts += idle + (busy - idle) * share[static_cast<size_t>(host)];
        }
        out_.joules_per_token = watts / out_.tok_s;
    }
    double yield() const { return load_.draft.walk == nullptr ? 1 : load_.draft.yield(); }

    // Of the parts by the figures that they rest on, as if these erred on their own.
    double Spread(const Breakdown& parts) const {
        const Machine& machine = cluster_.hosts[0];
        const double memory = machine.bandwidth.spread();
        const bool own = machine.measured && runtime_.name == kOwnRuntime;
        const double link = layout_.tp > 1 ? LinkSpread() : 0;
        const double compute =
            own ? machine.compute.spread()
                : std::hypot(machine.compute.spread(), runtime_.compute_share.spread());
        const std::pair<double, double> terms[] = {
            {parts.weights + parts.cache, memory},
            {parts.imbalance, Figure{}.spread()},
            {parts.compute, compute},
            {parts.overhead, own ? machine.measured->op.spread() : runtime_.op.spread()},
            {parts.wire, link},
            {parts.sync, own ? machine.measured->sync.spread() : runtime_.sync.spread()},
            {parts.hops, runtime_.hop.spread()},
            {parts.draft, memory}};
        double squares = kModelSpread * kModelSpread;
        for (const auto& [seconds, spread] : terms) {
            const double share = seconds / parts.total() * spread;
            squares += share * share;
        }
        return std::sqrt(squares);
    }
    double LinkSpread() const {
        const Machine& machine = cluster_.hosts[0];
        const bool within = layout_.tp <= machine.devices && !machine.within.empty();
        return within ? machine.within.back().latency.spread() : cluster_.wire.latency.spread();
    }

    std::string Name() const {
        std::string name;
        if (layout_.tp > 1 || layout_.pp == 1) name = fmt::format("tp{}", layout_.tp);
        if (layout_.pp > 1) name += fmt::format("{}pp{}", name.empty() ? "" : " ", layout_.pp);
        if (out_.layout.ep > 1) name += fmt::format(" ep{}", out_.layout.ep);
        return name;
    }

    const ModelWalk& walk_;
    const Cluster& cluster_;
    const Runtime& runtime_;
    const model::Layout& layout_;
    const Workload& load_;
    int64_t flights_ = 1;
    std::map<Signature, Timed> timed_;
    std::vector<Stage> stages_;
    double draft_s_ = 0;
    Prediction out_;
};

}  // namespace

double Draft::yield() const {
    double yield = 1, all_right = 1;
    for (int64_t guess = 0; guess < tokens; ++guess) yield += all_right *= accepted;
    return yield;
}

const MemoryUse& Prediction::worst() const {
    return *std::ranges::max_element(memory, {},
                                     [](const MemoryUse& use) { return use.total() / use.room; });
}

std::pair<const char*, double> Prediction::limit() const {
    const BreakdownRow* most = &BreakdownRows()[0];
    for (const BreakdownRow& row : BreakdownRows()) {
        if (token.*row.seconds > token.*(most->seconds)) most = &row;
    }
    return {most->name, token.*(most->seconds) / token.total()};
}

Result<Prediction> Predict(const ModelWalk& walk, const Cluster& cluster, const Runtime& runtime,
                           const model::Layout& layout, const Workload& load) {
    if (layout.size() > cluster.ranks()) {
        return MakeError(ErrorCode::kUsage, "a layout of {} ranks; {} has {}", layout.size(),
                         cluster.words, cluster.ranks());
    }
    return Predictor(walk, cluster, runtime, layout, load).Run();
}

Result<int64_t> SyncsOfToken(const ModelWalk& walk, int tensor_ranks) {
    model::Layout layout;
    layout.tp = tensor_ranks;
    WEFT_ASSIGN(const model::ShardPlan plan,
                model::PlanShards(walk.hyper(), walk.source(), layout));
    WEFT_ASSIGN(const RankWork work, walk.WorkOf(plan.shards[0]));
    int64_t syncs = 0;
    for (const Piece& piece : work.pieces) {
        syncs += piece.count * std::ranges::count_if(piece.program.ops, [](const program::Op& op) {
                     return op.kind() == program::OpKind::kAllReduce;
                 });
    }
    return syncs;
}

Result<Prediction> PredictTensor(const ModelWalk& walk, const Cluster& cluster,
                                 const Runtime& runtime, const Workload& load) {
    model::Layout layout;
    layout.tp = cluster.ranks();
    return Predict(walk, cluster, runtime, layout, load);
}

}  // namespace weft::plan
