#include "plan/predict.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <map>

#include "engine/batch/scheduler.h"
#include "engine/batch/step_drafts.h"
#include "engine/engine.h"
#include "engine/rank/rank_options.h"
#include "engine/rank/sum_wire.h"
#include "engine/sampling/sampler_defaults.h"
#include "engine/start/layout_choice.h"
#include "plan/host_part.h"
#include "plan/weft_rates.h"
#include "program/target.h"

namespace weft::plan {
namespace {

constexpr int64_t kPageTokens = program::Target{}.page_tokens;
// Standard deviation of the model's own error with measured tables.
constexpr double kTablesSpread = 0.05;

struct StageSteps {
    Breakdown decode, chunk, rest, last;  // a step of each kind
    Breakdown guesses, reading;           // draft head: seconds per step, and for a whole prompt
};

// Ranks with equal signatures have equal work.
using Signature = std::pair<std::string, std::vector<int64_t>>;
// Number of first elements that do not change the rank's Programs.
constexpr size_t kOfSteps = 5;

std::vector<double> TierKey(const coll::TierGroup& group) {
    std::vector<double> key = {static_cast<double>(group.ranks), static_cast<double>(group.hosts)};
    for (const coll::Tier& tier : {group.near, group.far}) {
        key.insert(key.end(), {tier.bytes_per_s, tier.latency_s, tier.per_message_s});
    }
    return key;
}

// Gives each distinct key a number, in the order in which keys arrive.
template <typename Key>
class Numbers {
  public:
    int64_t Of(const Key& key) {
        return numbers_.emplace(key, static_cast<int64_t>(numbers_.size())).first->second;
    }

  private:
    std::map<Key, int64_t> numbers_;
};

}  // namespace

// Ranks of all layouts that were predicted so far.
struct LayoutPredictor::Tables {
    struct Timed {
        StageSteps times;
        uint64_t weight_bytes = 0;
        std::optional<MemoryUse> memory;
    };
    Numbers<std::vector<double>> groups;  // groups of tensor ranks
    Numbers<std::vector<int>> sequences;  // sequences of kinds of layers
    std::map<Signature, Timed> ranks;
    // Layouts with even shares, by tensor ranks, stages and expert groups.
    std::map<std::array<int, 3>, Result<model::ShardPlan>> plans;
    std::map<Signature, RankWork> works;  // independent of the machine
    MemoryPlanner memory;
    Tables(const ModelWalk& walk, const Workload& load)
        : memory(walk, load.AsJob(walk.kv_dtype())) {}
};

namespace {

class Predictor {
  public:
    using Known = LayoutPredictor::Tables;
    Predictor(const ModelWalk& walk, const ClusterSpec& cluster, const model::Layout& layout,
              const Workload& load, Known& known, bool with_memory)
        : walk_(walk),
          cluster_(cluster),
          layout_(layout),
          load_(load),
          known_(known),
          with_memory_(with_memory) {
        for (size_t host = 0; host < cluster.hosts.size(); ++host) {
            const auto devices = static_cast<size_t>(cluster.hosts[host].devices);
            host_of_.insert(host_of_.end(), devices, static_cast<int>(host));
        }
    }

    Result<Prediction> Run() {
        if (static_cast<size_t>(layout_.size()) > host_of_.size()) {
            return MakeError(ErrorCode::kUsage, "a layout of {} ranks; {} has {}", layout_.size(),
                             cluster_.words, host_of_.size());
        }
        WEFT_TRY(engine::CheckKvTypes(walk_.hyper(), walk_.kv_dtype(), walk_.source().name()));
        std::optional<Result<model::ShardPlan>> own;
        const Result<model::ShardPlan>& planned = PlanOf(own);
        if (!planned.ok()) return planned.error();
        const model::ShardPlan& plan = *planned;
        flights_ = std::min<int64_t>(layout_.pp, load_.batch);
        if (load_.flights > 0) flights_ = std::min(flights_, load_.flights);
        if (load_.draft.head) flights_ = 1;
        chunk_ = engine::PromptChunk(load_.prompt_tokens(), load_.chunk, layout_.pp);
        stages_.resize(static_cast<size_t>(layout_.pp));
        WEFT_TRY(ChooseDrive(plan));
        for (const model::Shard& shard : plan.shards) {
            if (shard.tensor_rank == 0) BeginStage(shard);
            WEFT_TRY(AddRank(shard));
        }
        AddHops();
        if (load_.draft.head) AddDraftHead();
        if (load_.draft.walk != nullptr) WEFT_TRY(AddDraft());
        if (with_memory_) {
            ShareMemory(out_.memory, cluster_, host_of_);
            out_.lack = FindLack(out_.memory, cluster_, host_of_);
        }
        out_.layout = plan.shards[0].layout;  // with expert groups, if they are needed
        out_.name = Name();
        out_.hosts = HostOf(layout_.size() - 1) + 1;
        SetToken();
        SetPrompt();
        SetAnswer();
        SetPower();
        return std::move(out_);
    }

    Result<bool> Holds(int rank) {
        std::optional<Result<model::ShardPlan>> own;
        const Result<model::ShardPlan>& planned = PlanOf(own);
        if (!planned.ok()) return planned.error();
        const model::Shard& shard = planned->shards[static_cast<size_t>(rank)];
        WEFT_ASSIGN(const MemoryUse use, MemoryOf(shard));
        return use.needed <= use.room;
    }

  private:
    using Stage = StageSteps;

    // The shards of the layout; shards of uneven shares are stored in `own`.
    const Result<model::ShardPlan>& PlanOf(std::optional<Result<model::ShardPlan>>& own) {
        const auto plan = [&] { return model::PlanShards(walk_.hyper(), walk_.source(), layout_); };
        if (!layout_.tp_shares.empty() || !layout_.pp_shares.empty()) return own.emplace(plan());
        const std::array<int, 3> key = {layout_.tp, layout_.pp, layout_.ep};
        const auto found = known_.plans.find(key);
        return found != known_.plans.end() ? found->second
                                           : known_.plans.emplace(key, plan()).first->second;
    }

    int HostOf(int rank) const { return host_of_[static_cast<size_t>(rank)]; }
    const Machine& MachineOf(int rank) const {
        return cluster_.hosts[static_cast<size_t>(HostOf(rank))];
    }

    Result<MemoryUse> MemoryOf(const model::Shard& shard) {
        const bool one_host = HostOf(layout_.size() - 1) == 0;
        program::HostOps host_ops{.fill = true};
        if (on_drive_) host_ops.expert_layers = program::HostOps::kAllLayers;
        return known_.memory.Of(shard, MachineOf(shard.rank), one_host, host_ops, on_drive_);
    }

    // Experts stay on the drives of all hosts, as with --weights-on-drive, if the memory of a host
    // with a drive is too small for those that its GPUs leave to it.
    Status ChooseDrive(const model::ShardPlan& plan) {
        const bool has_drive = std::ranges::any_of(plan.shards, [&](const model::Shard& shard) {
            const Machine& machine = MachineOf(shard.rank);
            return machine.host && machine.host->drive;
        });
        if (!has_drive || walk_.hyper().moe.experts == 0) return {};
        std::map<int, std::pair<double, double>> hosts;  // needed and available bytes
        for (const model::Shard& shard : plan.shards) {
            if (!MachineOf(shard.rank).host) continue;
            WEFT_ASSIGN(const MemoryUse use, MemoryOf(shard));
            auto& [needed, room] = hosts[HostOf(shard.rank)];
            needed += use.host.total();
            room = std::max(room, use.host.room);
        }
        on_drive_ = std::ranges::any_of(hosts, [&](const auto& host) {
            const auto& [needed, room] = host.second;
            return needed > room && cluster_.hosts[static_cast<size_t>(host.first)].host->drive;
        });
        return {};
    }

    // Ranks of the layout on such a host, and how many of them compute at the same time.
    int RanksOn(const Machine& machine) const { return std::min(machine.devices, layout_.size()); }
    int64_t RanksAtOnce(const Machine& machine) const {
        const int within = std::min(layout_.tp, machine.devices);
        return within * std::min<int64_t>(flights_, std::max(1, RanksOn(machine) / within));
    }

    void BeginStage(const model::Shard& shard) {
        const std::span<const int> kinds = walk_.KindsOf(shard.layers);
        kinds_ = known_.sequences.Of({kinds.begin(), kinds.end()});
        tensor_ = cluster_.GroupOf(shard.rank, layout_.tp);
        group_ = known_.groups.Of(TierKey(tensor_));
    }

    Signature SignatureOf(const model::Shard& s, const Machine& machine) const {
        const bool sends_logits = layout_.pp > 1 && s.last_stage() && s.tensor_rank == 0;
        const std::string host = machine.host ? fmt::format("/{}/{}/{}", RanksAtOnce(machine),
                                                            RanksOn(machine), on_drive_)
                                              : "";
        Signature signature{machine.word + host,
                            {group_, Sequences(), chunk_, machine.measured ? layout_.pp : 0,
                             static_cast<int64_t>(engine::WindowsBytes(layout_, s.rank)), kinds_,
                             s.rank == 0, s.first_stage() * 2 + s.last_stage(),
                             sends_logits * 2 + (HostOf(layout_.size() - 1) == 0)}};
        std::ranges::copy(SizesOf(walk_.hyper(), s), std::back_inserter(signature.second));
        return signature;
    }

    // The Programs of a rank, independent of its machine and workload.
    Result<const RankWork*> WorkOf(const model::Shard& shard, Signature signature) {
        signature.first.clear();
        std::fill_n(signature.second.begin(), kOfSteps, 0);
        auto found = known_.works.find(signature);
        if (found == known_.works.end()) {
            WEFT_ASSIGN(RankWork work, walk_.WorkOf(shard));
            found = known_.works.emplace(std::move(signature), std::move(work)).first;
        }
        return &found->second;
    }

    Status AddRank(const model::Shard& shard) {
        const Machine& machine = MachineOf(shard.rank);
        const Signature signature = SignatureOf(shard, machine);
        auto found = known_.ranks.find(signature);
        if (found == known_.ranks.end()) {
            WEFT_ASSIGN(const RankWork* work, WorkOf(shard, signature));
            std::optional<MemoryUse> memory;
            if (machine.host) {
                WEFT_ASSIGN(memory, MemoryOf(shard));
            }
            const HostUse host = memory ? memory->host : HostUse{};
            Known::Timed timed{TimeRank(*work, machine, host), work->weight_bytes, memory};
            if (load_.draft.head && shard.last_stage()) {
                WEFT_ASSIGN(const ModelWalk::HeadWork head, walk_.DraftHeadWork(shard));
                TimeHead(head, machine, timed.times);
            }
            found = known_.ranks.emplace(signature, timed).first;
        }
        if (found->second.weight_bytes > heaviest_bytes_) {
            heaviest_bytes_ = found->second.weight_bytes;
            out_.heaviest_rank = shard.rank;
        }
        std::optional<MemoryUse>& memory = found->second.memory;
        if (with_memory_ && !memory) {
            WEFT_ASSIGN(memory, MemoryOf(shard));
        }
        out_.memory.push_back(memory.value_or(MemoryUse{}));
        out_.memory.back().rank = shard.rank;
        Stage& stage = stages_[static_cast<size_t>(shard.stage)];
        const Stage& times = found->second.times;
        for (Breakdown Stage::*kind : {&Stage::decode, &Stage::chunk, &Stage::rest, &Stage::last,
                                       &Stage::guesses, &Stage::reading}) {
            if ((times.*kind).total() > (stage.*kind).total()) stage.*kind = times.*kind;
        }
        return {};
    }

    Stage TimeRank(const RankWork& work, const Machine& machine, const HostUse& use) const {
        StepPlace place{&machine, tensor_, &walk_.hyper(), BusyOf(machine, flights_),
                        WiresOf(machine)};
        HostPlace host;
        if (use.is_used()) {
            host = {ProcessorOf(*machine.host, RanksAtOnce(machine)), use.kinds, use.on_drive};
            if (machine.host->drive) {
                host.drive_bytes_per_s =
                    machine.host->drive->value / static_cast<double>(RanksAtOnce(machine));
            }
            place.host = &host;
        }
        const int64_t sequences = Sequences();
        Stage timed;
        const int64_t rows_each = load_.rows_each();
        timed.decode =
            TimeStep(work, {sequences, rows_each, sequences * rows_each, load_.context}, place);
        place.busy = BusyOf(machine, std::clamp<int64_t>(chunks(), 1, layout_.pp));
        place.prompt = engine::NarrowTokens(load_.prompt_tokens()) > 0;
        place.most_rows = load_.chunk;
        if (chunks() > 0) timed.chunk = TimePromptStep(work, ChunkShape(), place);
        if (rest() > 0) timed.rest = TimePromptStep(work, RestShape(), place);
        place.prompt = false;
        place.busy = BusyOf(machine, 1);
        timed.last = TimeStep(work, {1, 1, 1, 0}, place, Pieces::kOnlyLast);
        return timed;
    }

    // The types of sums on the wire that ranks would choose after a measurement.
    engine::SumWires WiresOf(const Machine& machine) const {
        const bool submits = !machine.is_processor();
        const double rate = tensor_.hosts > 1 ? tensor_.far.bytes_per_s : 0;
        return engine::AutoSumWires(!submits, submits, rate);
    }

    // A draft head reads all rows of each step and drafts from the last row of each sequence. Each
    // further drafted token takes one row, or one run has a block of rows for all.
    void TimeHead(const ModelWalk::HeadWork& head, const Machine& machine, Stage& timed) const {
        const StepPlace place{&machine, tensor_, &walk_.hyper(), BusyOf(machine, 1)};
        const int64_t batch = load_.batch, context = load_.context, tokens = load_.drafts_each();
        const int64_t block = walk_.hyper().block_rows();
        timed.guesses = TimeStep(head.first, {batch, load_.rows_each(), batch, context}, place);
        timed.guesses += block > 0
                             ? TimeStep(head.next, {batch, block, batch * tokens, context}, place)
                             : TimeStep(head.next, {batch, 1, batch, context}, place) *
                                   static_cast<double>(tokens - 1);
        if (chunks() > 0) {
            timed.reading =
                TimeStep(head.first, ChunkShape(), place) * static_cast<double>(chunks());
        }
        if (rest() > 0) timed.reading += TimeStep(head.first, RestShape(), place);
    }

    // Sequences per step.
    int64_t Sequences() const { return (load_.batch + flights_ - 1) / flights_; }
    int64_t chunks() const { return load_.prompt_tokens() / chunk_; }
    int64_t rest() const { return load_.prompt_tokens() % chunk_; }
    // The middle chunk represents all whole chunks, because attention grows linearly with the
    // context.
    program::StepShape ChunkShape() const {
        return {1, chunk_, 1, load_.depth + (chunks() - 1) * chunk_ / 2};
    }
    program::StepShape RestShape() const { return {1, rest(), 1, load_.depth + chunks() * chunk_}; }

    // How much `stages` stages that compute at the same time slow each other down on `machine`
    // (StepPlace::busy). The stages share the memory, and the cores if there are too few.
    double BusyOf(const Machine& machine, int64_t stages) const {
        if (!machine.measured) return 1;
        const int devices = machine.devices, all = machine.measured->ranks;
        // With one rank per host, `alone` is the rate of every rank.
        const int64_t within = std::min(layout_.tp, devices);
        const int64_t ranks = devices > 1 ? devices : all;
        const int64_t busy = std::min<int64_t>(
            ranks, devices > 1 ? within * std::min<int64_t>(stages, devices / within)
                               : stages * layout_.tp);
        const int64_t cores = std::min<int64_t>(machine.measured->cores.value_or(devices), ranks);
        if (ranks < 2) return 1;
        const double free = devices > 1 && cores < ranks ? static_cast<double>(cores) : 1;
        return std::max(0.0, static_cast<double>(busy) - free) /
               (static_cast<double>(ranks) - free);
    }

    // senders: tensor ranks of the stage that send; ranks of one host share its wire.
    double HopSeconds(int stage, int64_t row_bytes, int64_t rows, int senders) const {
        const int next = (stage + 1) % layout_.pp;
        const int from = stage * layout_.tp, to = next * layout_.tp;
        int64_t on_wire = 0;
        for (int rank = 0; rank < senders; ++rank) {
            on_wire +=
                HostOf(from + rank) == HostOf(from) && HostOf(to + rank) != HostOf(from + rank);
        }
        const Machine& machine = MachineOf(from);
        const bool told = machine.measured && machine.measured->hop;
        const double own = told ? machine.measured->hop->value : RatesOfKind(machine).hop_s;
        const auto bytes = static_cast<double>(rows * row_bytes * std::max<int64_t>(1, on_wire));
        return coll::MessageSeconds(cluster_.Between(from, to), bytes) + own;
    }

    // Bytes of a row's answer from the last stage to rank 0 (engine/rank/step_links.h): the best
    // logits. Sampling options that need all logits are not part of a workload.
    static int64_t AnswerBytes() {
        return engine::DefaultSampling().top_k * static_cast<int64_t>(sizeof(backend::Candidate));
    }

    // Each tensor rank sends whole hidden states to the next stage, one sends answers to rank 0.
    void AddHops() {
        if (layout_.pp == 1) return;
        const int64_t sequences = Sequences();
        const int64_t rows_each = load_.rows_each();
        for (int s = 0; s < layout_.pp; ++s) {
            Stage& stage = stages_[static_cast<size_t>(s)];
            const bool back = s == layout_.pp - 1;
            const int64_t row = back ? AnswerBytes() : walk_.hyper().stream_columns() * 4;
            const int senders = back ? 1 : layout_.tp;
            stage.decode.hops += HopSeconds(s, row, sequences * rows_each, senders);
            if (back) {
                stage.last.hops += HopSeconds(s, row, 1, 1);
                continue;
            }
            if (chunks() > 0) stage.chunk.hops += HopSeconds(s, row, chunk_, senders);
            if (rest() > 0) stage.rest.hops += HopSeconds(s, row, rest(), senders);
        }
    }

    // Each step in flight has 1 / flights of the sequences. A token of all sequences takes the
    // longer of two times: the slowest stage for all of them, or one step through all stages.
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
        if (load_.draft.on()) {
            out_.token.draft = draft_s_;
            out_.token = out_.token * (1 / load_.yield());
        }
        out_.tok_s = static_cast<double>(load_.batch) / out_.token.total();
        out_.spread = out_.tok_s * Spread(out_.token);
    }

    // A chunk enters a stage as soon as the stage is free. A draft head follows each step before
    // the next one begins, so chunks then run one after another.
    void SetPrompt() {
        Breakdown through;
        const Breakdown* slowest = &stages_[0].chunk;
        for (const Stage& stage : stages_) {
            through += stage.chunk;
            out_.prompt += stage.rest;
            out_.prompt += stage.last;
            if (stage.chunk.total() > slowest->total()) slowest = &stage.chunk;
        }
        const double turns = load_.draft.head ? 1 : 0;
        const auto more = static_cast<double>(std::max<int64_t>(chunks(), 1) - 1);
        out_.prompt += through * (1 + more * turns);
        out_.prompt += *slowest * (more * (1 - turns));
        out_.prompt.draft = draft_prompt_s_;
        out_.ttft_s = out_.prompt.total();
        out_.ttft_spread = out_.ttft_s * Spread(out_.prompt);
        out_.prompt_tok_s = static_cast<double>(load_.prompt_tokens()) / out_.ttft_s;
    }

    // Both parts depend on the same figures, so their errors add up.
    void SetAnswer() {
        const auto batch = static_cast<double>(load_.batch);
        const double tokens_s = static_cast<double>(load_.answer) * batch / out_.tok_s;
        out_.answer_s = batch * out_.ttft_s + tokens_s;
        out_.answer_spread = batch * out_.ttft_spread + tokens_s * (out_.spread / out_.tok_s);
    }

    // The last stage has the head; the answer of each drafted token goes to rank 0, the answers of
    // a block together.
    void AddDraftHead() {
        const Stage& last = stages_.back();
        draft_s_ = last.guesses.total();
        draft_prompt_s_ = last.reading.total();
        if (layout_.pp == 1) return;
        const bool together = walk_.hyper().block_rows() > 0;
        const int64_t answers = together ? load_.drafts_each() : 1;
        draft_s_ += static_cast<double>(load_.drafts_each() / answers) *
                    HopSeconds(layout_.pp - 1, AnswerBytes(), load_.batch * answers, 1);
    }

    // For each step, the draft model runs a step for each token on rank 0 for all sequences. In a
    // prompt, it prefills each chunk after the model has prefilled it.
    Status AddDraft() {
        const ModelWalk& walk = *load_.draft.walk;
        WEFT_ASSIGN(const model::ShardPlan plan,
                    model::PlanShards(walk.hyper(), walk.source(), model::Layout{}));
        WEFT_ASSIGN(const RankWork work, walk.WorkOf(plan.shards[0]));
        const StepPlace place{&MachineOf(0), {}, &walk.hyper()};
        const int64_t batch = load_.batch;
        const Breakdown step = TimeStep(work, {batch, 1, batch, load_.context}, place);
        draft_s_ = step.total() * static_cast<double>(load_.drafts_each());
        if (chunks() > 0) {
            draft_prompt_s_ = TimeStep(work, ChunkShape(), place, Pieces::kNotLast).total() *
                              static_cast<double>(chunks());
        }
        if (rest() > 0) {
            draft_prompt_s_ += TimeStep(work, RestShape(), place, Pieces::kNotLast).total();
        }
        engine::Job job = load_.AsJob(walk.kv_dtype());
        job.max_outputs = load_.batch;
        MemoryPlanner planner(walk, job);
        WEFT_ASSIGN(const MemoryUse its, planner.Of(plan.shards[0], MachineOf(0), true));
        MemoryUse& first = out_.memory[0];
        first.weights += its.weights;
        first.cache += its.cache;
        first.work += its.work;
        return {};
    }

    // Power of the hosts, by the share of a step in which each is busy. A host with unknown idle
    // watts counts as always busy.
    void SetPower() {
        const double flights = static_cast<double>(flights_);
        const double step_s = out_.token.total() * load_.yield();
        // by host: busy share of its devices
        std::vector<double> share(static_cast<size_t>(out_.hosts), 0);
        for (int rank = 0; rank < layout_.size(); ++rank) {
            const Breakdown& decode = stages_[static_cast<size_t>(rank / layout_.tp)].decode;
            const double busy = (decode.total() - decode.hops) * flights / step_s;
            share[static_cast<size_t>(HostOf(rank))] +=
                std::min(busy, 1.0) / MachineOf(rank).devices;
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

    // Combines the spreads of the figures behind each part as independent errors. For unlike hosts,
    // uses the widest.
    double Spread(const Breakdown& parts) const {
        double widest = 0;
        const Machine* last = nullptr;
        for (int host = 0; host < out_.hosts; ++host) {
            const Machine& machine = cluster_.hosts[static_cast<size_t>(host)];
            if (last != nullptr && last->word == machine.word) continue;
            last = &machine;
            widest = std::max(widest, SpreadOn(machine, parts));
        }
        return widest;
    }
    double SpreadOn(const Machine& machine, const Breakdown& parts) const {
        const double memory = machine.bandwidth.spread(), guess = Figure{}.spread();
        const std::optional<Measured>& tables = machine.measured;
        const std::pair<double, double> terms[] = {
            {parts.weights + parts.cache + parts.draft, memory},
            {parts.imbalance, guess},
            {parts.compute, machine.compute.spread()},
            {parts.wire, layout_.tp > 1 ? LinkSpread(machine) : 0},
            {parts.sync + parts.hops + parts.hand_over, tables ? tables->sync.spread() : guess},
            {parts.host, machine.host ? std::hypot(machine.host->bandwidth.spread(), guess) : 0},
            {parts.drive, machine.host && machine.host->drive ? machine.host->drive->spread() : 0}};
        double form = tables ? kTablesSpread : SpreadOfRates(machine);
        if (!tables && !walk_.unmeasured().empty()) form = std::max(form, kUnmeasuredSpread);
        double squares = form * form;
        for (const auto& [seconds, spread] : terms) {
            const double share = seconds / parts.total() * spread;
            squares += share * share;
        }
        return std::sqrt(squares);
    }
    double LinkSpread(const Machine& machine) const {
        const bool within = layout_.tp <= machine.devices && machine.within;
        return within ? machine.within->latency.spread() : cluster_.wire.latency.spread();
    }

    std::string Name() const {
        std::string name;
        if (layout_.tp > 1 || layout_.pp == 1) name = fmt::format("tp{}", layout_.tp);
        if (layout_.pp > 1) name += fmt::format("{}pp{}", name.empty() ? "" : " ", layout_.pp);
        if (out_.layout.ep > 1) name += fmt::format(" ep{}", out_.layout.ep);
        return name;
    }

    const ModelWalk& walk_;
    const ClusterSpec& cluster_;
    const model::Layout& layout_;
    const Workload& load_;
    int64_t flights_ = 1, chunk_ = 1;  // steps in flight; rows of a prompt's step
    Known& known_;
    std::vector<int> host_of_;  // by rank
    const bool with_memory_;
    bool on_drive_ = false;          // ChooseDrive
    coll::TierGroup tensor_;         // link group of the stage being added
    int64_t kinds_ = 0, group_ = 0;  // the stage's numbers in the tables
    std::vector<Stage> stages_;
    double draft_s_ = 0, draft_prompt_s_ = 0;
    uint64_t heaviest_bytes_ = 0;
    Prediction out_;
};

}  // namespace

engine::Job Workload::AsJob(KvTypes kv_dtype) const {
    engine::Job job;
    job.ctx = (longest() + kPageTokens - 1) / kPageTokens * kPageTokens;
    job.kv_tokens = job.ctx * batch;
    engine::EngineOptions options;  // options of an equivalent server
    options.max_seqs = batch;
    options.draft.lookup = draft.on();
    options.draft.tokens = draft.on() ? draft.tokens : 0;
    job.state_slots = engine::StateSlots(options);
    job.draft_head = draft.head;
    job.max_outputs = batch + draft_rows();
    job.chunk = std::max(chunk, job.max_outputs);
    job.kv_dtype = kv_dtype;
    return job;
}

int64_t Workload::draft_rows() const {
    if (!draft.on()) return 0;
    engine::DraftOptions options;
    options.lookup = true;
    options.tokens = draft.tokens;
    return engine::StepDrafts(options).most_rows(batch);
}

// (If the drafted tokens are no multiple of the sequences, some of these have one more.)
double Workload::yield() const {
    const double each = static_cast<double>(draft_rows()) / static_cast<double>(batch);
    double yield = 1, all_right = 1;
    for (int64_t guess = 0; guess < drafts_each(); ++guess) {
        all_right *= draft.accepted;
        yield += all_right * std::min(1.0, each - static_cast<double>(guess));
    }
    return yield;
}

const MemoryUse& Prediction::worst() const {
    return *std::ranges::max_element(memory, {}, [](const MemoryUse& use) {
        const auto [needed, room] = use.tightest();
        return needed / room;
    });
}

const HostUse* Prediction::UseOfHost() const {
    const HostUse* most = nullptr;
    for (const MemoryUse& use : memory) {
        if (!use.host.is_used()) continue;
        if (most == nullptr || use.host.on_drive > most->on_drive) most = &use.host;
    }
    return most;
}

bool Prediction::IsBetterThan(const Prediction& other) const {
    if (fits() != other.fits()) return fits();
    return fits() ? answer_s < other.answer_s
                  : worst().tightest().first < other.worst().tightest().first;
}

LayoutPredictor::LayoutPredictor(const ModelWalk& walk, const Workload& load)
    : walk_(walk), load_(load), tables_(std::make_unique<Tables>(walk, load)) {}

LayoutPredictor::~LayoutPredictor() = default;

size_t LayoutPredictor::known_kinds() const {
    return tables_->ranks.size();
}

Result<Prediction> LayoutPredictor::Predict(const ClusterSpec& cluster, const model::Layout& layout,
                                            bool with_memory) {
    return Predictor(walk_, cluster, layout, load_, *tables_, with_memory).Run();
}

bool LayoutPredictor::MayFit(const ClusterSpec& cluster, const Prediction& timed) {
    const auto holds =
        Predictor(walk_, cluster, timed.layout, load_, *tables_, true).Holds(timed.heaviest_rank);
    return !holds.ok() || *holds;
}

Result<Prediction> Predict(const ModelWalk& walk, const ClusterSpec& cluster,
                           const model::Layout& layout, const Workload& load) {
    return LayoutPredictor(walk, load).Predict(cluster, layout);
}

Result<int64_t> SyncsOfToken(const ModelWalk& walk, int tensor_ranks) {
    model::Layout layout;
    layout.tp = tensor_ranks;
    WEFT_ASSIGN(const model::ShardPlan plan,
                model::PlanShards(walk.hyper(), walk.source(), layout));
    WEFT_ASSIGN(const RankWork work, walk.WorkOf(plan.shards[0]));
    return work.CountSums(true);
}

}  // namespace weft::plan
