#include "plan/walk.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <map>
#include <set>

#include "model/draft_head.h"

namespace weft::plan {
namespace {

using program::Trait;

constexpr BreakdownRow kBreakdownRows[] = {
    {"weights", &Breakdown::weights},      {"kv cache", &Breakdown::cache},
    {"imbalance", &Breakdown::imbalance},  {"compute", &Breakdown::compute},
    {"op overhead", &Breakdown::overhead}, {"wire", &Breakdown::wire},
    {"sync overhead", &Breakdown::sync},   {"hops", &Breakdown::hops},
    {"draft", &Breakdown::draft}};

// Some experts are chosen more often than others: their popularity varies as a gamma distribution
// of this shape does. Fitted (docs/plan.md).
constexpr double kPopularity = 0.4;

// By layer: which earlier one has tensors of the same names, types and shapes.
std::vector<int> KindsOf(const model_files::ModelSource& source, const model::Hyper& hyper) {
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

// Of an op of experts: what the mean group reads of what the unluckiest does.
double EvenShare(const program::Program& list, const program::Op& op, const model::Hyper& hyper,
                 int64_t rows) {
    const int64_t held = list.value(program::WeightOf(op)).shape[0];
    const program::ExpertLoad load =
        program::DistinctExperts(static_cast<double>(held), static_cast<double>(hyper.moe.experts),
                                 static_cast<double>(hyper.moe.used), static_cast<double>(rows));
    return load.most > 0 ? load.mean / load.most : 1;
}

class StepTimer {
  public:
    // rates: the machine's tables that hold; null where there are none.
    StepTimer(const program::StepShape& step, const StepPlace& place, const MeasuredRates* rates)
        : step_(step), place_(place), rates_(rates) {}

    Breakdown Piece(const program::Program& list) const {
        Breakdown all;
        const std::vector<program::OpCost> costs = program::Cost(list, step_);
        for (size_t i = 0; i < costs.size(); ++i) Add(list, list.ops[i], costs[i], all);
        return all;
    }

  private:
    void Add(const program::Program& list, const program::Op& op, const program::OpCost& cost,
             Breakdown& all) const {
        if (op.Is(Trait::kMessage)) return;
        if (op.Is(Trait::kTransfer)) {
            if (place_.tensor.ranks < 2) return;
            all.wire += WireSeconds(list, op, cost);
            all.sync += SyncSeconds();
            return;
        }
        if (rates_ != nullptr && AddProduct(list, op, cost, all)) return;
        if (rates_ != nullptr && AddRowAttention(list, op, cost, all)) return;
        all.overhead += rates_ != nullptr ? rates_->op.value : OpSeconds(list, op);
        const double memory = MemorySeconds(list, op, cost);
        const double compute = ByBytes(op) ? 0 : cost.flops / FlopsPerSecond(list, op);
        // What of the shorter one does not run beside the longer one.
        const double apart = IsUnpacked(list, op) ? 1 - place_.runtime->overlap.value : 0;
        all.compute += compute > memory ? compute : apart * compute;
        AddMemory(list, op, compute > memory ? apart * memory : memory, all);
    }

    // What the program needs for an op beside its bytes.
    double OpSeconds(const program::Program& list, const program::Op& op) const {
        const Runtime& runtime = *place_.runtime;
        double seconds = runtime.op.value;
        if (op.Is(Trait::kRouter)) seconds += runtime.route.value;
        // One op a layer of experts has a row for each token, not for each of its experts.
        if (!IsOfExperts(op) || list.value(op.outputs[0]).shape.rank > 2) return seconds;
        const program::Value& weight = list.value(program::WeightOf(op));
        if (weight.shape[2] < kNarrowExpert && runtime.InEightBits(*place_.machine, weight.dtype)) {
            seconds += runtime.narrow_experts.value;
        }
        return seconds;
    }

    // A product of many rows, whose quantized weights the kernel unpacks.
    bool IsUnpacked(const program::Program& list, const program::Op& op) const {
        if (rates_ != nullptr || !op.Is(Trait::kProduct) || RowsOf(list, op) <= kVectorRows)
            return false;
        return Info(list.value(program::WeightOf(op)).dtype).quantized;
    }

    void AddMemory(const program::Program& list, const program::Op& op, double seconds,
                   Breakdown& all) const {
        if (op.Is(Trait::kAttention)) {
            all.cache += seconds;
        } else if (IsOfExperts(op)) {
            const double even = EvenShare(list, op, *place_.hyper, step_.rows());
            all.weights += seconds * even;
            all.imbalance += seconds * (1 - even);
        } else {
            all.weights += seconds;
        }
    }

    double SyncSeconds() const {
        if (const Measured* measured = place_.measured(); measured != nullptr) {
            return measured->sync.value;
        }
        const bool within = place_.tensor.hosts == 1;
        return within ? place_.runtime->sync_within.value : place_.runtime->sync.value;
    }

    // What ops that are neither products nor attention take was measured by their bytes.
    bool ByBytes(const program::Op& op) const {
        return rates_ != nullptr && rates_->rest && !op.Is(Trait::kByFlops);
    }

    // Reading and writing, by what the runtime reaches of the memory's bandwidth.
    double MemorySeconds(const program::Program& list, const program::Op& op,
                         const program::OpCost& cost) const {
        const auto bytes = static_cast<double>(cost.read_bytes + cost.written_bytes);
        const double rate = place_.machine->sustained_bytes_per_s();
        if (rates_ != nullptr) {
            if (op.Is(Trait::kAttention)) return bytes / rates_->CacheRate(CacheType(list, op));
            return bytes / (ByBytes(op) ? rates_->rest->value : rate);
        }
        const Runtime& runtime = *place_.runtime;
        if (op.Is(Trait::kAttention)) {
            const bool grouped = heads() == Heads::kGrouped;
            const Figure& share = grouped ? runtime.grouped_share : runtime.cache_share;
            return bytes / (rate * share.value) * (grouped ? CacheReads() : 1);
        }
        if (!op.Is(Trait::kProduct)) return bytes / (rate * runtime.rest_share.value);
        const DType type = list.value(program::WeightOf(op)).dtype;
        const double seconds = bytes / runtime.WeightRate(*place_.machine, type, IsOfExperts(op));
        return IsOfExperts(op) ? seconds * MetShare(list, op) : seconds;
    }

    // As many query heads of a group as a power of two divides share a read of their keys; the
    // others read them again, from nearer by.
    double CacheReads() const {
        const auto group = static_cast<uint64_t>(place_.hyper->heads / place_.hyper->kv_heads);
        const auto reads = static_cast<double>(group >> std::countr_zero(group));
        return 1 + (reads - 1) * place_.runtime->reread_share.value;
    }

    Heads heads() const {
        if (place_.hyper->latent.rank > 0) return Heads::kLatent;
        return place_.hyper->heads > place_.hyper->kv_heads ? Heads::kGrouped : Heads::kOwn;
    }

    // Of attention.
    static DType CacheType(const program::Program& list, const program::Op& op) {
        for (const program::ValueId id : op.inputs) {
            const program::Value& value = list.value(id);
            if (value.storage == program::Storage::kState) return value.dtype;
        }
        return DType::kF16;
    }

    // Of the experts that rows would meet which choose evenly, those that they do meet.
    double MetShare(const program::Program& list, const program::Op& op) const {
        const double even = EvenlyMet(list, op);
        return even > 0 ? Met(list, op) / even : 1;
    }
    double EvenlyMet(const program::Program& list, const program::Op& op) const {
        const model::Moe& moe = place_.hyper->moe;
        const auto held = static_cast<double>(list.value(program::WeightOf(op)).shape[0]);
        return program::DistinctExperts(held, static_cast<double>(moe.experts),
                                        static_cast<double>(moe.used),
                                        static_cast<double>(step_.rows()))
            .mean;
    }
    double Met(const program::Program& list, const program::Op& op) const {
        const auto held = static_cast<double>(list.value(program::WeightOf(op)).shape[0]);
        if (rates_ != nullptr) return EvenlyMet(list, op);
        const model::Moe& moe = place_.hyper->moe;
        const double one = static_cast<double>(moe.used) / static_cast<double>(moe.experts);
        const auto rows = static_cast<double>(step_.rows());
        if (rows < place_.runtime->experts_anew) return held * rows * one;
        const double scale = std::pow(1 - std::min(one, 0.999), -1 / kPopularity) - 1;
        return held * (1 - std::pow(1 + rows * scale, -kPopularity));
    }

    // A product of weights whose rate was measured: its overhead is part of that.
    bool AddProduct(const program::Program& list, const program::Op& op,
                    const program::OpCost& cost, Breakdown& all) const {
        if (!op.Is(Trait::kProduct)) return false;
        const program::Value& weight = list.value(program::WeightOf(op));
        const double rows = RowsOf(list, op);
        const auto rate = IsOfExperts(op) ? rates_->ExpertFlops(weight.dtype, rows)
                                          : rates_->ProductFlops(weight.dtype, rows);
        if (!rate) return false;
        const double seconds = cost.flops / *rate;
        (rows > kVectorRows ? all.compute : all.weights) += seconds;
        if (IsOfExperts(op)) {
            const double even = EvenShare(list, op, *place_.hyper, step_.rows());
            all.imbalance += seconds * (1 / even - 1);
        }
        return true;
    }

    // Attention of few rows, whose parts were measured: its overhead is part of them.
    bool AddRowAttention(const program::Program& list, const program::Op& op,
                         const program::OpCost& cost, Breakdown& all) const {
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
        const auto bytes = static_cast<double>(cost.read_bytes + cost.written_bytes);
        const double seconds =
            bytes / rates_->CacheRate(CacheType(list, op)) + cost.flops / rates_->scores->value;
        all.cache += seconds * (1 + rates_->positions / static_cast<double>(seen));
        return true;
    }

    // Of products: what the runtime reaches with weights of that type and in so many rows.
    double FlopsPerSecond(const program::Program& list, const program::Op& op) const {
        const Runtime& runtime = *place_.runtime;
        if (rates_ != nullptr) {
            return op.Is(Trait::kAttention) ? rates_->AttentionFlops(CacheType(list, op))
                                            : place_.machine->compute.value;
        }
        if (op.Is(Trait::kAttention)) return runtime.AttentionFlops(*place_.machine, heads());
        if (!op.Is(Trait::kProduct)) return runtime.ProductFlops(*place_.machine, DType::kF16);
        const program::Value& weight = list.value(program::WeightOf(op));
        const double rows = RowsOf(list, op);
        if (rows <= kVectorRows && runtime.vector_share) {
            return runtime.Most(*place_.machine).value * runtime.vector_share->value;
        }
        return runtime.ProductFlops(*place_.machine, weight.dtype, IsOfExperts(op)) *
               FilledShare(rows, IsOfExperts(op));
    }

    // Of a product; of one of experts those that an expert gets which gets any.
    double RowsOf(const program::Program& list, const program::Op& op) const {
        if (!IsOfExperts(op)) {
            const program::Shape& out = list.value(op.outputs[0]).shape;
            const int64_t elements = out.Elements(step_.rows(), step_.outputs);
            return static_cast<double>(elements / out[out.rank - 1]);
        }
        const model::Moe& moe = place_.hyper->moe;
        const auto held = static_cast<double>(list.value(program::WeightOf(op)).shape[0]);
        const auto all = static_cast<double>(moe.experts), used = static_cast<double>(moe.used);
        const auto rows = static_cast<double>(step_.rows());
        const double met = Met(list, op);
        return met > 0 ? rows * used * held / all / met : 1;
    }

    // What of whole tiles is filled with rows. An expert's rows are as many as chance will have it:
    // half a tile is empty on average.
    double FilledShare(double rows, bool expert) const {
        const Runtime& runtime = *place_.runtime;
        const auto tile =
            static_cast<double>(expert ? runtime.expert_tile_rows : runtime.tile_rows);
        if (tile <= 1 || rows <= kVectorRows) return 1;
        return rows / (expert ? rows + tile / 2 : std::ceil(rows / tile) * tile);
    }

    double WireSeconds(const program::Program& list, const program::Op& op,
                       const program::OpCost& cost) const {
        double bytes = static_cast<double>(cost.wire_bytes);
        if (const Measured* measured = place_.measured(); measured != nullptr) {
            const bool sums = op.Is(Trait::kAllReduce);
            const auto seconds = sums ? measured->AllReduceSeconds(place_.tensor.ranks, bytes)
                                      : measured->AllGatherSeconds(place_.tensor.ranks, bytes);
            if (seconds) return *seconds;
        }
        if (place_.runtime->value_bytes > 0) {
            const program::Value& sum = list.value(op.outputs[0]);
            bytes = static_cast<double>(sum.shape.Elements(step_.rows(), step_.outputs) *
                                        place_.runtime->value_bytes);
        }
        if (place_.runtime->star) {
            const coll::Tier& tier = place_.tensor.far;
            const double others = place_.tensor.ranks - 1;
            const double share = others > kSwitchSenders ? place_.runtime->crowd_share.value : 1;
            return 2 * (tier.latency_s + others * bytes / (tier.bytes_per_s * share));
        }
        return op.Is(Trait::kAllReduce)
                   ? coll::AllReduceSeconds(place_.tensor, coll::Algorithm::kAuto, bytes)
                   : coll::AllGatherSeconds(place_.tensor, bytes);
    }

    const program::StepShape& step_;
    const StepPlace& place_;
    const MeasuredRates* rates_;
};

Breakdown TimeWith(const RankWork& work, const program::StepShape& step, const StepPlace& place,
                   const MeasuredRates* rates, bool with_last) {
    Breakdown all;
    const StepTimer timer(step, place, rates);
    bool with_layers = false;
    for (const Piece& piece : work.pieces) {
        if (piece.last && !with_last) continue;
        with_layers |= !piece.last;
        all += timer.Piece(piece.program) * static_cast<double>(piece.count);
    }
    if (rates != nullptr && with_layers) all.overhead += rates->step.value;
    return all;
}

}  // namespace

const Measured* StepPlace::measured() const {
    return machine->measured && runtime->name == kOwnRuntime ? &*machine->measured : nullptr;
}

std::span<const BreakdownRow> BreakdownRows() {
    return kBreakdownRows;
}

double Breakdown::total() const {
    double total = 0;
    for (const BreakdownRow& row : kBreakdownRows) total += this->*row.seconds;
    return total;
}

Breakdown& Breakdown::operator+=(const Breakdown& other) {
    for (const BreakdownRow& row : kBreakdownRows) this->*row.seconds += other.*row.seconds;
    return *this;
}

Breakdown Breakdown::operator*(double factor) const {
    Breakdown scaled = *this;
    for (const BreakdownRow& row : kBreakdownRows) scaled.*row.seconds *= factor;
    return scaled;
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

Result<ModelWalk> ModelWalk::Make(const model_files::ModelSource& source, DType kv_dtype) {
    ModelWalk walk;
    walk.source_ = &source;
    WEFT_ASSIGN(walk.hyper_, model::ReadHyper(source));
    walk.options_.kv_dtype = kv_dtype;
    walk.kind_of_layer_ = KindsOf(source, walk.hyper_);
    return walk;
}

Result<RankWork> ModelWalk::WorkOf(const model::Shard& shard) const {
    RankWork work;
    const auto add = [&](int stage, model::Span layers, int64_t count) -> Status {
        WEFT_ASSIGN(program::Program list,
                    model::BuildProgram(hyper_, PartOf(shard, stage, layers), *source_, options_));
        work.pieces.push_back({std::move(list), count, stage == 2});
        return {};
    };
    if (shard.first_stage()) WEFT_TRY(add(0, {0, 0}, 1));
    std::map<int, std::pair<int64_t, int64_t>> kinds;  // the first layer, and how many
    for (int64_t layer = shard.layers.begin; layer < shard.layers.end; ++layer) {
        const int kind = kind_of_layer_[static_cast<size_t>(layer)];
        ++kinds.emplace(kind, std::pair(layer, int64_t{0})).first->second.second;
    }
    for (const auto& [kind, layers] : kinds) {
        WEFT_TRY(add(1, {layers.first, layers.first + 1}, layers.second));
    }
    if (shard.last_stage()) WEFT_TRY(add(2, {hyper_.layers, hyper_.layers}, 1));
    std::set<std::string> ends;  // an embedding that is the output matrix, too, counts once
    for (const Piece& piece : work.pieces) {
        for (const program::Value& value : piece.program.values) {
            if (value.storage != program::Storage::kWeight) continue;
            const std::string& name = value.slice.name;
            // (Of tables by layer each piece has the columns of its own.)
            const bool layer = name.starts_with("blk.") || name.starts_with("per_layer_");
            if (!layer && !ends.insert(name).second) continue;
            work.weight_bytes += static_cast<uint64_t>(
                piece.count * RowBytes(value.dtype, value.shape.Elements(0, 0)));
        }
    }
    return work;
}

Result<RankWork> ModelWalk::DraftHeadWork(const model::Shard& shard) const {
    model::BuildOptions options = options_;
    options.draft_head = true;
    const model::Shard part = PartOf(shard, 2, {hyper_.layers, hyper_.layers});
    WEFT_ASSIGN(program::Program list, model::BuildProgram(hyper_, part, *source_, options));
    const auto behind = static_cast<std::ptrdiff_t>(model::DraftHeadOf(list).first.begin);
    list.ops.erase(list.ops.begin(), list.ops.begin() + behind);
    RankWork work;
    work.pieces.push_back({std::move(list)});
    return work;
}

Breakdown TimeStep(const RankWork& work, const program::StepShape& step, const StepPlace& place,
                   bool with_last) {
    const Measured* measured = place.measured();
    Breakdown together = TimeWith(work, step, place, measured, with_last);
    if (measured != nullptr) {
        together = together * measured->Turns(place.tensor.ranks, static_cast<double>(step.rows()));
    }
    if (measured == nullptr || !measured->alone || place.busy >= 1) return together;
    Breakdown all = TimeWith(work, step, place, &*measured->alone, with_last) * (1 - place.busy);
    all += together * place.busy;
    return all;
}

}  // namespace weft::plan
