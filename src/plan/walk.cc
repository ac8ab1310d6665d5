#include "plan/walk.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <set>
#include <tuple>

#include "backend/executable.h"
#include "backend/parts.h"
#include "backend/transfer.h"
#include "coll/comm.h"
#include "coll/wire.h"
#include "model/draft_head.h"
#include "plan/weft_rates.h"
#include "program/placement.h"

namespace weft::plan {
namespace {

using program::Trait;

constexpr CauseRow<Breakdown> kBreakdownRows[] = {
    {"weights", &Breakdown::weights},      {"kv cache", &Breakdown::cache},
    {"imbalance", &Breakdown::imbalance},  {"compute", &Breakdown::compute},
    {"op overhead", &Breakdown::overhead}, {"wire", &Breakdown::wire},
    {"sync overhead", &Breakdown::sync},   {"hops", &Breakdown::hops},
    {"processor", &Breakdown::host},       {"hand-overs", &Breakdown::hand_over},
    {"drive", &Breakdown::drive},          {"draft", &Breakdown::draft}};

// Up to this many rows, memory limits attention and products, not arithmetic.
constexpr int kVectorRows = 8;

// The exchange with the host's processor and back within a submission, for steps of few rows.
// Guessed: an exchange of an all-reduce takes 8.7 us on an H200 (plan/weft_rates.cc), and the
// processor also wakes its threads. Longer steps end the submission.
constexpr double kHandOverSeconds = 15e-6;

// For each layer: the first layer with the same tensor names, types and shapes.
std::vector<int> LayerKinds(const model_files::ModelSource& source, const model::Hyper& hyper) {
    std::vector<std::string> signatures(static_cast<size_t>(hyper.layers));
    for (const model_files::TensorInfo& tensor : source.tensors()) {
        std::string_view name = tensor.name;
        if (!name.starts_with("blk.")) continue;
        size_t layer = 0;
        const char* end = name.data() + name.size();
        const auto [rest, error] = std::from_chars(name.data() + 4, end, layer);
        if (error != std::errc() || layer >= signatures.size()) continue;
        signatures[layer] += fmt::format("{}:{}:{}:{};", std::string_view(rest, end),
                                         static_cast<int>(tensor.dtype), tensor.cols, tensor.rows);
    }
    std::map<std::string, int> kinds;
    std::vector<int> kind_of_layer;
    for (size_t layer = 0; layer < signatures.size(); ++layer) {
        const auto at = static_cast<int64_t>(layer);
        if (hyper.IsWindowed(at)) signatures[layer] += "windowed";
        if (hyper.KvLayer(at) != at) signatures[layer] += "shared";
        const int next = static_cast<int>(kinds.size());
        kind_of_layer.push_back(kinds.emplace(signatures[layer], next).first->second);
    }
    return kind_of_layer;
}

class StepTimer {
  public:
    // rates: the machine's measured tables, which replace Weft's shares; may be null.
    StepTimer(const program::StepShape& step, const StepPlace& place, const MeasuredRates* rates,
              const WeftRates& weft)
        : step_(step), place_(place), rates_(rates), weft_(weft) {}

    Breakdown Time(const Piece& piece) const {
        Breakdown all;
        const program::Program& list = piece.program;
        const std::vector<program::OpCost>& costs = piece.CostsOf(step_);
        for (size_t i = 0; i < costs.size(); ++i) Add(list, list.ops[i], costs[i], all);
        return all;
    }

    // The same if the host's processor computes the experts. host: times its ops.
    Breakdown TimePlaced(const Piece& piece, const StepTimer& host) const {
        Breakdown all;
        const program::Program& list = piece.program;
        const std::vector<program::OpCost>& costs = piece.CostsOf(step_);
        const std::vector<bool> on_host =
            program::ChooseHostOps(list, {.expert_layers = program::HostOps::kAllLayers});
        for (size_t i = 0; i < costs.size(); ++i) {
            if (!on_host[i]) {
                Add(list, list.ops[i], costs[i], all);
                continue;
            }
            Breakdown its;
            host.Add(list, list.ops[i], costs[i], its);
            all.host += its.total();
            if (!list.ops[i].Is(Trait::kProduct) || place_.host->on_drive <= 0) continue;
            all.drive += static_cast<double>(costs[i].read_bytes) * place_.host->on_drive /
                         place_.host->drive_bytes_per_s;
        }
        all.hand_over += HandOverSeconds();
        return all;
    }

  private:
    using OpCost = program::OpCost;

    // The hidden state and the chosen experts with their weights go to the host, and their sum
    // comes back.
    double HandOverSeconds() const {
        if (step_.rows() <= kVectorRows) return kHandOverSeconds;
        const double values = 2.0 * static_cast<double>(place_.hyper->hidden) +
                              2.0 * static_cast<double>(place_.hyper->moe.used);
        const double bytes = values * sizeof(float) * static_cast<double>(step_.rows());
        return weft_.hop_s + bytes / kPcieBytesPerS;
    }

    void Add(const program::Program& list, const program::Op& op, const OpCost& cost,
             Breakdown& all) const {
        if (op.Is(Trait::kMessage)) return;
        if (op.Is(Trait::kTransfer)) {
            if (place_.tensor.ranks < 2) return;
            const Measured* measured = place_.measured();
            all.wire += WireSeconds(list, op, cost);
            all.sync += measured != nullptr ? measured->sync.value : weft_.sync_s;
            return;
        }
        if (rates_ != nullptr) return AddMeasured(list, op, cost, all);
        all.overhead += weft_.op_s + (op.Is(Trait::kRouter) ? weft_.router_s : 0);
        if (const UnmeasuredOp* unlike = FindUnmeasured(program::OpName(op.kind()))) {
            all.overhead += weft_.op_s * weft_.unmeasured * unlike->ops;
        }
        const double memory = BytesOf(cost) / place_.machine->sustained_bytes_per_s();
        if (op.Is(Trait::kAttention)) {
            all.cache += memory / weft_.cache;
            const double rate = place_.machine->compute.value * weft_.attention;
            if (step_.tokens > kVectorRows) all.compute += cost.flops / rate;
        } else if (op.Is(Trait::kProduct)) {
            AddProduct(list, op, cost, memory / weft_.weights, all);
        } else {
            all.weights += memory / weft_.rest;
        }
    }

    void AddProduct(const program::Program& list, const program::Op& op, const OpCost& cost,
                    double memory, Breakdown& all) const {
        const double rows = RowsOf(list, op), compute = place_.machine->compute.value;
        const program::Value& weight = list.value(program::WeightOf(op));
        const int64_t columns = weight.shape[weight.shape.rank - 1];
        const double outputs = cost.flops / (2 * static_cast<double>(columns));
        const double waste = IsOfExperts(op) ? 1 + weft_.expert_rows / rows : 1;
        const double as_vectors =
            cost.flops * std::max(0.0, rows - 1) / rows / (compute * weft_.rows);
        const double in_tiles = waste * TiledSeconds(cost.flops, outputs, compute * weft_.tiles,
                                                     OutputsInFlight(*place_.machine));
        AddWeights(list, op, memory, all);
        all.compute += std::min(as_vectors, in_tiles);
    }

    void AddMeasured(const program::Program& list, const program::Op& op, const OpCost& cost,
                     Breakdown& all) const {
        if (AddMeasuredProduct(list, op, cost, all) || AddRowAttention(list, op, cost, all)) return;
        all.overhead += rates_->op.value;
        const double bytes = BytesOf(cost);
        double rate = place_.machine->sustained_bytes_per_s();
        double compute = cost.flops / place_.machine->compute.value;
        if (op.Is(Trait::kAttention)) {
            const CacheRates cache = RatesOfCaches(list, op);
            rate = cache.bytes_per_s;
            compute = cost.flops / cache.flops_per_s;
        } else if (rates_->rest && !op.Is(Trait::kByFlops)) {
            rate = rates_->rest->value;  // the rate includes their arithmetic
            compute = 0;
        }
        const double memory = bytes / rate;
        if (compute > memory) {
            all.compute += compute;
        } else if (op.Is(Trait::kAttention)) {
            all.cache += memory;
        } else {
            AddWeights(list, op, memory, all);
        }
    }

    void AddWeights(const program::Program& list, const program::Op& op, double seconds,
                    Breakdown& all) const {
        const double even = EvenShare(list, op);
        all.weights += seconds * even;
        all.imbalance += seconds * (1 - even);
    }

    static double BytesOf(const OpCost& cost) {
        return static_cast<double>(cost.read_bytes + cost.written_bytes);
    }

    struct CacheRates {
        double bytes_per_s, flops_per_s;
    };
    // Rates of attention: means over its caches, which may have different types, by their bytes and
    // by their columns.
    CacheRates RatesOfCaches(const program::Program& list, const program::Op& op) const {
        double bytes = 0, columns = 0, seconds = 0, compute_seconds = 0;
        for (const program::ValueId id : op.inputs) {
            const program::Value& cache = list.value(id);
            if (cache.storage != program::Storage::kState) continue;
            const auto own_columns = static_cast<double>(cache.shape[1]);
            const auto own_bytes = static_cast<double>(RowBytes(cache.dtype, cache.shape[1]));
            bytes += own_bytes;
            columns += own_columns;
            seconds += own_bytes / rates_->CacheRate(cache.dtype);
            compute_seconds += own_columns / rates_->AttentionFlops(cache.dtype);
        }
        if (bytes == 0)
            return {rates_->CacheRate(DType::kF16), rates_->AttentionFlops(DType::kF16)};
        return {bytes / seconds, columns / compute_seconds};
    }

    program::ExpertLoad LoadOf(const program::Program& list, const program::Op& op) const {
        return LoadOfExperts(place_.hyper->moe, list.value(program::WeightOf(op)).shape[0],
                             step_.rows());
    }

    // The mean expert group's bytes as a share of the busiest group's; 1 if the op has no experts.
    double EvenShare(const program::Program& list, const program::Op& op) const {
        if (!IsOfExperts(op)) return 1;
        const program::ExpertLoad load = LoadOf(list, op);
        return load.most > 0 ? load.mean / load.most : 1;
    }

    // Adds a product whose type was measured. The measured rate includes the op's overhead.
    bool AddMeasuredProduct(const program::Program& list, const program::Op& op, const OpCost& cost,
                            Breakdown& all) const {
        if (!op.Is(Trait::kProduct)) return false;
        const program::Value& weight = list.value(program::WeightOf(op));
        const double rows = RowsOf(list, op);
        const auto rate = IsOfExperts(op) ? rates_->ExpertFlops(weight.dtype, rows)
                                          : rates_->ProductFlops(weight.dtype, rows);
        if (!rate) return false;
        const double seconds = cost.flops / *rate;
        (rows > kVectorRows ? all.compute : all.weights) += seconds;
        all.imbalance += seconds * (1 / EvenShare(list, op) - 1);
        return true;
    }

    // Adds attention of few rows from measured rates, which include the op's overhead.
    bool AddRowAttention(const program::Program& list, const program::Op& op, const OpCost& cost,
                         Breakdown& all) const {
        if (!op.Is(Trait::kAttention) || !rates_->scores || step_.tokens > kVectorRows)
            return false;
        int64_t seen = step_.context + step_.tokens;
        const auto* attention = op.attributes.If<program::Attention>();
        if (attention != nullptr && attention->window > 0) {
            seen = std::min(seen, attention->window);
        }
        if (attention != nullptr && attention->block > 0) {
            const int64_t columns = list.value(op.inputs[3]).shape[1];
            seen = std::min(seen, columns / attention->kv_heads * attention->block);
        }
        const double seconds = BytesOf(cost) / RatesOfCaches(list, op).bytes_per_s +
                               cost.flops / rates_->scores->value;
        all.cache += seconds * (1 + rates_->positions / static_cast<double>(seen));
        return true;
    }

    // Rows of a product; for experts, the rows of each expert that has any.
    double RowsOf(const program::Program& list, const program::Op& op) const {
        if (IsOfExperts(op)) {
            const int64_t held = list.value(program::WeightOf(op)).shape[0];
            return RowsOfExpert(place_.hyper->moe, held, step_.rows());
        }
        const program::Shape& out = list.value(op.outputs[0]).shape;
        const int64_t elements = out.Elements(step_.rows(), step_.outputs);
        return static_cast<double>(elements / out[out.rank - 1]);
    }

    // Size of an all-reduce in its type on the wire.
    double WireBytes(const program::Program& list, const program::Op& op,
                     const OpCost& cost) const {
        if (!op.Is(Trait::kAllReduce)) return static_cast<double>(cost.wire_bytes);
        const program::Value& addend = list.value(op.inputs[0]);
        const program::Shape& shape = addend.shape;
        if (shape[shape.rank - 1] < static_cast<int64_t>(coll::kQ8Block)) {
            return static_cast<double>(cost.wire_bytes);
        }
        const bool of_prompt = place_.prompt && shape[0] == program::kTokens;
        const int64_t values = cost.wire_bytes / RowBytes(addend.dtype, 1);
        return static_cast<double>(backend::SumBytes(
            of_prompt ? place_.wires.prompts : place_.wires.all, addend.dtype, values));
    }

    double WireSeconds(const program::Program& list, const program::Op& op,
                       const OpCost& cost) const {
        const double bytes = WireBytes(list, op, cost);
        return op.Is(Trait::kAllReduce) ? AllReduceSeconds(place_.measured(), place_.tensor, bytes)
                                        : AllGatherSeconds(place_.measured(), place_.tensor, bytes);
    }

    const program::StepShape& step_;
    const StepPlace& place_;
    const MeasuredRates* rates_;
    const WeftRates weft_;
};

Breakdown TimeWith(const RankWork& work, const program::StepShape& step, const StepPlace& place,
                   const MeasuredRates* rates, Pieces pieces) {
    Breakdown all;
    const StepTimer timer(step, place, rates, RatesOfKind(*place.machine));
    bool with_layers = false;
    for (const Piece& piece : work.pieces) {
        if (pieces == (piece.last ? Pieces::kNotLast : Pieces::kOnlyLast)) continue;
        with_layers |= !piece.last;
        const int64_t on_host = place.host == nullptr ? 0 : place.host->LayersOf(piece.kind);
        all += timer.Time(piece) * static_cast<double>(piece.count - on_host);
        if (on_host == 0) continue;
        const StepPlace of_host{&place.host->processor, {}, place.hyper};
        const StepTimer host(step, of_host, nullptr, RatesOfExperts(*of_host.machine));
        all += timer.TimePlaced(piece, host) * static_cast<double>(on_host);
    }
    if (rates != nullptr && with_layers) all.overhead += rates->step.value;
    return all;
}

// The parts in which a step runs, as the devices choose them (backend::Overlap::kAuto); 1: it runs
// as a whole. sums: all-reduces of the step.
int64_t PartsOf(const program::StepShape& step, const StepPlace& place, int64_t sums) {
    const coll::TierGroup& group = place.tensor;
    if (group.ranks < 2 || group.hosts < 2 || sums == 0) return 1;
    const int64_t bytes = backend::SumBytes(place.prompt ? place.wires.prompts : place.wires.all,
                                            DType::kF64, step.tokens * place.hyper->hidden);
    const double seconds =
        coll::AllReduceSeconds(group, coll::Algorithm::kAuto, static_cast<double>(bytes / 2));
    const double idle_s = static_cast<double>(bytes / 2) * coll::Comm::kIdleUsAByte * 1e-6;
    if (bytes < backend::kLeastSumInParts || seconds < idle_s) return 1;
    if (place.machine->is_processor()) {
        return std::max<int64_t>(backend::PartsOfRows(step.tokens), 1);
    }
    const model::Moe& moe = place.hyper->moe;
    const int64_t least = backend::LeastRowsOfDevicePart(moe.experts, moe.used);
    const int64_t most_rows = std::max(place.most_rows, step.tokens);
    const int64_t most_parts = backend::DevicePartsOfRows(most_rows, least);
    if (most_parts == 0) return 1;
    const backend::DevicePartSpace room{most_rows, most_parts};
    return std::max<int64_t>(backend::DevicePartsOfRows(step.tokens, least, room), 1);
}

}  // namespace

// While a part computes the ops between two all-reduces, all-reduces of the other parts are on the
// wire. No all-reduce overlaps with the first ops, and no ops overlap with the last all-reduce.
Breakdown TimePromptStep(const RankWork& work, const program::StepShape& step,
                         const StepPlace& place) {
    const int64_t sums = work.CountSums(false);
    const int64_t parts = PartsOf(step, place, sums);
    if (parts == 1) return TimeStep(work, step, place, Pieces::kNotLast);
    Breakdown all;
    program::StepShape part = step;
    for (int64_t i = 0; i < parts; ++i) {
        part.tokens = step.tokens * (i + 1) / parts - step.tokens * i / parts;
        part.context = step.context + step.tokens * i / parts;
        all += TimeStep(work, part, place, Pieces::kNotLast);
    }
    const double wire = all.wire, own = all.total() - wire;
    const double segments = static_cast<double>(parts * (sums + 1));
    all.wire = std::max(own + wire / segments, wire + own / segments) - own;
    return all;
}

program::ExpertLoad LoadOfExperts(const model::Moe& moe, int64_t held, int64_t rows) {
    return program::DistinctExperts(static_cast<double>(held), static_cast<double>(moe.experts),
                                    static_cast<double>(moe.used), static_cast<double>(rows));
}

double RowsOfExpert(const model::Moe& moe, int64_t held, int64_t rows) {
    const double met = LoadOfExperts(moe, held, rows).mean;
    const auto all = static_cast<double>(moe.experts), used = static_cast<double>(moe.used);
    return met > 0 ? static_cast<double>(rows) * used * static_cast<double>(held) / all / met : 1;
}

std::span<const CauseRow<Breakdown>> Breakdown::Rows() {
    return kBreakdownRows;
}

const std::vector<program::OpCost>& Piece::CostsOf(const program::StepShape& step) const {
    const auto key = [](const program::StepShape& s) {
        return std::tie(s.sequences, s.tokens, s.outputs, s.context);
    };
    for (const auto& [known, its] : costs) {
        if (key(known) == key(step)) return its;
    }
    return costs.emplace_back(step, program::Cost(program, step)).second;
}

int64_t RankWork::CountSums(bool with_last) const {
    int64_t sums = 0;
    for (const Piece& piece : pieces) {
        if (piece.last && !with_last) continue;
        sums += piece.count * std::ranges::count_if(piece.program.ops, [](const program::Op& op) {
                    return op.Is(Trait::kAllReduce);
                });
    }
    return sums;
}

std::vector<int64_t> SizesOf(const model::Hyper& hyper, const model::Shard& shard) {
    std::vector<int64_t> sizes = {shard.expert_ffn.begin == 0};
    for (const model::Span& span :
         {shard.heads, shard.kv_heads, shard.windowed_heads, shard.ffn, shard.vocab, shard.experts,
          shard.expert_ffn, shard.shared_ffn, shard.recurrent_heads, shard.recurrent_keys}) {
        sizes.push_back(span.size());
    }
    // Equally many query heads of windowed layers may read other numbers of KV heads.
    if (const int64_t kv_heads = hyper.windowed_heads.kv_heads; kv_heads > 0) {
        const int64_t group = hyper.WindowedQueryHeads() / kv_heads;
        const model::Span& heads = shard.windowed_heads;
        sizes.push_back((heads.end - 1) / group - heads.begin / group + 1);
    }
    for (int64_t layer = shard.layers.begin; layer < shard.layers.end; ++layer) {
        if (!shard.layer_ffn.empty()) sizes.push_back(shard.FfnOf(layer).size());
    }
    return sizes;
}

model::Shard PartOf(const model::Shard& shard, int stage, model::Span layers) {
    model::Shard part = shard;
    part.layout.pp = 3;
    part.layout.pp_shares.clear();
    part.stage = stage;
    part.rank = stage * shard.layout.tp + shard.tensor_rank;
    part.layers = layers;
    return part;
}

Result<ModelWalk> ModelWalk::Make(const model_files::ModelSource& source, KvTypes kv_dtype) {
    ModelWalk walk;
    walk.source_ = &source;
    WEFT_ASSIGN(walk.hyper_, model::ReadHyper(source));
    walk.kind_of_layer_ = LayerKinds(source, walk.hyper_);
    WEFT_ASSIGN(const model::ShardPlan whole, model::PlanShards(walk.hyper_, source, {}));
    WEFT_ASSIGN(const RankWork work, walk.WorkOf(whole.shards[0]));
    std::set<std::string_view> parts;
    for (const Piece& piece : work.pieces) {
        for (const program::Op& op : piece.program.ops) {
            const UnmeasuredOp* unlike = FindUnmeasured(program::OpName(op.kind()));
            if (unlike != nullptr) parts.insert(unlike->part);
        }
    }
    walk.unmeasured_.assign(parts.begin(), parts.end());
    walk.options_.kv_dtype = kv_dtype;  // (Predict refuses requests that no head supports.)
    return walk;
}

Result<RankWork> ModelWalk::WorkOf(const model::Shard& shard) const {
    RankWork work;
    const auto add = [&](int stage, model::Span layers, int64_t count, int kind) -> Status {
        WEFT_ASSIGN(program::Program list,
                    model::BuildProgram(hyper_, PartOf(shard, stage, layers), *source_, options_));
        work.pieces.push_back({std::move(list), count, stage == 2, kind});
        return {};
    };
    if (shard.first_stage()) WEFT_TRY(add(0, {0, 0}, 1, -1));
    std::map<int, std::pair<int64_t, int64_t>> kinds;  // first layer and count
    for (int64_t layer = shard.layers.begin; layer < shard.layers.end; ++layer) {
        const int kind = kind_of_layer_[static_cast<size_t>(layer)];
        ++kinds.emplace(kind, std::pair(layer, int64_t{0})).first->second.second;
    }
    for (const auto& [kind, layers] : kinds) {
        WEFT_TRY(add(1, {layers.first, layers.first + 1}, layers.second, kind));
    }
    if (shard.last_stage()) WEFT_TRY(add(2, {hyper_.layers, hyper_.layers}, 1, -1));
    std::set<std::string> ends;  // counts an embedding once that is also the output matrix
    for (const Piece& piece : work.pieces) {
        for (const program::Value& value : piece.program.values) {
            if (value.storage != program::Storage::kWeight) continue;
            const std::string& name = value.slice.name;
            // (Each piece counts its own columns of per-layer tables.)
            const bool layer = name.starts_with("blk.") || name.starts_with("per_layer_");
            if (!layer && !ends.insert(name).second) continue;
            work.weight_bytes += static_cast<uint64_t>(
                piece.count * RowBytes(value.dtype, value.shape.Elements(0, 0)));
        }
    }
    return work;
}

Result<ModelWalk::HeadWork> ModelWalk::DraftHeadWork(const model::Shard& shard) const {
    model::BuildOptions options = options_;
    options.draft_head = true;
    const model::Shard part = PartOf(shard, 2, {hyper_.layers, hyper_.layers});
    WEFT_ASSIGN(const program::Program list, model::BuildProgram(hyper_, part, *source_, options));
    const model::DraftHeadOps head = model::DraftHeadOf(list);
    const auto work = [&](const program::OpRange& range) {
        program::Program own = list;
        const auto begin = list.ops.begin();
        own.ops.assign(begin + static_cast<std::ptrdiff_t>(range.begin),
                       begin + static_cast<std::ptrdiff_t>(range.end));
        RankWork of_range;
        of_range.pieces.push_back({std::move(own)});
        return of_range;
    };
    return HeadWork{work(head.first), work(head.next)};
}

Breakdown TimeStep(const RankWork& work, const program::StepShape& step, const StepPlace& place,
                   Pieces pieces) {
    const Measured* measured = place.measured();
    const Breakdown together = TimeWith(work, step, place, measured, pieces);
    if (measured == nullptr || !measured->alone || place.busy >= 1) return together;
    Breakdown all = TimeWith(work, step, place, &*measured->alone, pieces) * (1 - place.busy);
    all += together * place.busy;
    return all;
}

}  // namespace weft::plan
