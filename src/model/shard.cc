#include "model/shard.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <map>
#include <numeric>

#include "model/architecture.h"

namespace weft::model {
namespace {

// Divides `units` by shares, with rounded boundaries; each share gets at least one unit.
std::vector<Span> CutUnits(int64_t units, const std::vector<double>& shares) {
    const double total = std::accumulate(shares.begin(), shares.end(), 0.0);
    const int64_t parts = static_cast<int64_t>(shares.size());
    std::vector<Span> spans;
    double sum = 0;
    int64_t begin = 0;
    for (int64_t i = 0; i < parts; ++i) {
        sum += shares[static_cast<size_t>(i)];
        int64_t end = std::llround(static_cast<double>(units) * sum / total);
        end = std::clamp(end, begin + 1, units - (parts - 1 - i));
        if (i == parts - 1) end = units;
        spans.push_back({begin, end});
        begin = end;
    }
    return spans;
}

struct CutRequest {
    const char* what;       // "query heads"
    int64_t total;          // elements
    int64_t unit;           // cuts fall on multiples of this
    int64_t ideal_unit;     // the unit without quantization blocks
    const char* tensor;     // whose block makes the unit larger
    const char* hint = "";  // a use for more ranks, other than stages

    std::string Reason() const {
        return unit == ideal_unit ? "" : fmt::format(" (the quantization block of {})", tensor);
    }
};

// Adds notes on cuts that the unit moved from the positions that the shares ask for.
void NoteMovedCuts(const CutRequest& request, const std::vector<Span>& spans,
                   const std::vector<double>& shares, std::vector<std::string>& notes) {
    const std::vector<Span> ideal = CutUnits(request.total / request.ideal_unit, shares);
    for (size_t i = 0; i + 1 < spans.size(); ++i) {
        const int64_t wanted = ideal[i].end * request.ideal_unit;
        if (wanted == spans[i].end) continue;
        notes.push_back(fmt::format("cut {} of {} {} moved from {} to {}, a multiple of {}{}",
                                    i + 1, request.total, request.what, wanted, spans[i].end,
                                    request.unit, request.Reason()));
    }
}

// Cuts `total` at multiples of `unit`; the last part takes the remainder.
Result<std::vector<Span>> Cut(const CutRequest& request, const std::vector<double>& shares,
                              std::vector<std::string>& notes) {
    const int64_t units = (request.total + request.unit - 1) / request.unit;
    const int64_t parts = static_cast<int64_t>(shares.size());
    if (units < parts) {
        return MakeError(
            ErrorCode::kUnsupported,
            "{} {} cannot be cut into {} parts: cuts must be multiples of {}{}. At most --tp {} "
            "works for this model; use --pp for more ranks{}.",
            request.total, request.what, parts, request.unit, request.Reason(), units,
            request.hint);
    }
    std::vector<Span> spans = CutUnits(units, shares);
    for (Span& span : spans) {
        span.begin = std::min(span.begin * request.unit, request.total);
        span.end = std::min(span.end * request.unit, request.total);
    }
    if (request.unit != request.ideal_unit) NoteMovedCuts(request, spans, shares, notes);
    return spans;
}

std::vector<double> SharesOrEven(const std::vector<double>& shares, int parts) {
    return shares.empty() ? std::vector<double>(static_cast<size_t>(parts), 1.0) : shares;
}

// Sizes of the blocks that cuts may not divide.
struct Blocks {
    const model_files::ModelSource& source;
    int64_t layers;
    bool whole;  // Layout::whole_blocks

    // The largest block of a tensor ("attn_output") over all layers (files mix types); 0: no layer
    // has it.
    int64_t Largest(const char* name) const {
        int64_t block = 0;
        for (int64_t layer = 0; layer < layers; ++layer) {
            const auto* tensor = source.FindTensor(fmt::format("blk.{}.{}.weight", layer, name));
            if (tensor == nullptr) continue;
            block = std::max(block, whole ? Info(tensor->dtype).block_elements
                                          : CutBlock(tensor->dtype, tensor->cols));
        }
        return block;
    }
};

// Moves cuts so that no value but the residual stream passes from a stage to the next: each begins
// with a layer that has its own indexer, and with the first one of two that share experts.
Result<std::vector<Span>> MoveCuts(const Hyper& hyper, std::vector<Span> spans,
                                   std::vector<std::string>& notes) {
    const bool choices = !hyper.indexer.own.empty() && hyper.indexer.block == 0;
    const int64_t together = TraitsOf(hyper.architecture).layers_together;
    if (!choices && together == 1) return spans;
    const char* const what = choices ? "layer with its own indexer" : "pair of layers";
    std::vector<int64_t> own;
    for (int64_t layer = 0; layer < hyper.layers; layer += together) {
        if (!choices || hyper.indexer.IsOwn(layer)) own.push_back(layer);
    }
    if (own.size() < spans.size()) {
        return MakeError(ErrorCode::kUnsupported,
                         "{} layers cannot be cut into {} pipeline stages that begin with a {}: "
                         "use --pp {} or fewer",
                         hyper.layers, spans.size(), what, own.size());
    }
    size_t used = 0;  // index into `own`
    for (size_t stage = 1; stage < spans.size(); ++stage) {
        const auto distance = [&](int64_t layer) { return std::abs(layer - spans[stage].begin); };
        const auto first = own.begin() + static_cast<std::ptrdiff_t>(used) + 1;
        const auto end = own.end() - static_cast<std::ptrdiff_t>(spans.size() - stage - 1);
        const auto nearest = std::ranges::min_element(first, end, {}, distance);
        used = static_cast<size_t>(nearest - own.begin());
        if (*nearest != spans[stage].begin) {
            notes.push_back(
                fmt::format("pipeline cut {} of {} layers moved from {} to {}, before a {}", stage,
                            hyper.layers, spans[stage].begin, *nearest, what));
        }
        spans[stage - 1].end = spans[stage].begin = *nearest;
    }
    return spans;
}

// Elements of each layer's weights, if some layers have state; else empty: all layers count the
// same.
std::vector<double> LayerSizes(const Hyper& hyper, const model_files::ModelSource& source) {
    std::vector<double> sizes;
    if (hyper.recurrent.heads == 0) return sizes;
    sizes.resize(static_cast<size_t>(hyper.layers));
    for (const model_files::TensorInfo& tensor : source.tensors()) {
        size_t layer = sizes.size();
        if (!tensor.name.starts_with("blk.")) continue;
        std::from_chars(tensor.name.data() + 4, tensor.name.data() + tensor.name.size(), layer);
        if (layer < sizes.size()) sizes[layer] += static_cast<double>(tensor.rows * tensor.cols);
    }
    if (std::ranges::find(sizes, 0.0) != sizes.end()) sizes.clear();  // (a model without weights)
    return sizes;
}

// Layers of each stage. On the last stage, the output matrix counts as layers of the same size.
Result<std::vector<Span>> CutLayers(const Hyper& hyper, const model_files::ModelSource& source,
                                    const Layout& layout) {
    if (hyper.layers < layout.pp) {
        return MakeError(ErrorCode::kUnsupported,
                         "{} layers cannot be cut into {} pipeline stages: use --pp {} or fewer",
                         hyper.layers, layout.pp, hyper.layers);
    }
    if (!layout.pp_shares.empty()) return CutUnits(hyper.layers, layout.pp_shares);
    const double attention = static_cast<double>(hyper.hidden * hyper.head_dim) *
                             static_cast<double>(2 * hyper.heads + 2 * hyper.kv_heads);
    const int64_t columns = hyper.moe.experts > 0
                                ? hyper.moe.experts * hyper.moe.ffn + hyper.moe.shared_ffn
                                : hyper.ffn;
    const double mlp = 3.0 * static_cast<double>(hyper.hidden * columns);
    std::vector<double> sizes = LayerSizes(hyper, source);
    double head = static_cast<double>(hyper.hidden * hyper.vocab);
    if (sizes.empty()) {
        sizes.assign(static_cast<size_t>(hyper.layers), 1);
        head /= attention + mlp;
    }
    const double each = (std::accumulate(sizes.begin(), sizes.end(), 0.0) + head) / layout.pp;
    std::vector<Span> spans;
    int64_t begin = 0, next = 0;
    double passed = 0;  // by `next`
    for (int stage = 0; stage < layout.pp; ++stage) {
        // The end nearest to an equal share.
        while (next < hyper.layers) {
            const double size = sizes[static_cast<size_t>(next)];
            if (passed + size / 2 > each * (stage + 1)) break;
            passed += size;
            ++next;
        }
        int64_t end = next;
        end = std::clamp(end, begin + 1, hyper.layers - (layout.pp - 1 - stage));
        if (stage == layout.pp - 1) end = hyper.layers;
        spans.push_back({begin, end});
        begin = end;
    }
    return spans;
}

// The cuts over the tensor ranks, equal in all stages.
struct TensorCuts {
    std::vector<Span> heads, ffn, vocab, experts, expert_ffn, shared_ffn, windowed_heads,
        recurrent_heads;
    std::map<int64_t, std::vector<Span>> layer_ffn;  // by MLP columns, if layers differ
};

// Query heads: cuts fall between heads, and between blocks of attn_output.
Status CutHeads(const Hyper& hyper, const Blocks& blocks, const std::vector<double>& shares,
                TensorCuts& cuts, std::vector<std::string>& notes) {
    const int64_t block = std::max<int64_t>(1, blocks.Largest("attn_output"));
    const auto unit_of = [&](int64_t dim) { return std::lcm(dim, block) / dim; };
    const auto cut = [&](const char* what, int64_t heads, int64_t unit) {
        return Cut({what, heads, unit, 1, "attn_output"}, shares, notes);
    };
    if (const Windowing& w = hyper.windowing; w.out_groups > 0) {
        const int64_t of_b = std::max<int64_t>(1, blocks.Largest("attn_output_b"));
        const int64_t group = hyper.heads / w.out_groups;
        const int64_t unit = std::lcm(w.out_rank, of_b) / w.out_rank * group;
        WEFT_ASSIGN(cuts.heads,
                    Cut({"query heads", hyper.heads, unit, group, "attn_output_b"}, shares, notes));
        cuts.windowed_heads = cuts.heads;
        return {};
    }
    const int64_t unit = unit_of(hyper.value_dim()), windowed = hyper.WindowedQueryHeads();
    const int64_t other =
        hyper.windowed_heads.head_dim != 0 ? unit_of(hyper.windowed_heads.ValueDim()) : unit;
    if (windowed == hyper.heads) {
        WEFT_ASSIGN(cuts.heads, cut("query heads", hyper.heads, std::lcm(unit, other)));
        cuts.windowed_heads = cuts.heads;
        return {};
    }
    WEFT_ASSIGN(cuts.heads, cut("query heads", hyper.heads, unit));
    WEFT_ASSIGN(cuts.windowed_heads, cut("query heads of windowed layers", windowed, other));
    return {};
}

// Cuts the columns of MLPs whose down projection is `tensor`; empty if no layer has one.
Result<std::vector<Span>> CutMlp(const char* what, int64_t columns, const char* tensor,
                                 const char* hint, const Blocks& blocks,
                                 const std::vector<double>& shares,
                                 std::vector<std::string>& notes) {
    const int64_t block = blocks.Largest(tensor);
    if (block == 0) return std::vector<Span>(shares.size());
    const int64_t ideal = ColumnUnit(columns);
    return Cut({what, columns, std::max(block, ideal), ideal, tensor, hint}, shares, notes);
}

// Each expert group gets whole experts, by the sum of its ranks' shares; within a group, ranks
// share columns.
Status CutExperts(const Hyper& hyper, const Blocks& blocks, const Layout& layout,
                  const std::vector<double>& shares, TensorCuts& cuts,
                  std::vector<std::string>& notes) {
    const int64_t ranks = layout.tp / layout.ep;  // per group
    const auto group = [&](int64_t g) { return shares.begin() + g * ranks; };
    std::vector<double> sums;
    for (int64_t g = 0; g < layout.ep; ++g) {
        sums.push_back(std::accumulate(group(g), group(g + 1), 0.0));
    }
    if (layout.ep > 1 && hyper.moe.experts < layout.ep) {
        return MakeError(hyper.moe.experts == 0 ? ErrorCode::kUsage : ErrorCode::kUnsupported,
                         "--ep {} needs a model with at least that many experts; {} has {}",
                         layout.ep, blocks.source.name(), hyper.moe.experts);
    }
    if (hyper.moe.experts == 0) {
        cuts.experts = cuts.expert_ffn = cuts.shared_ffn = std::vector<Span>(shares.size());
        return {};
    }
    const std::vector<Span> experts = CutUnits(hyper.moe.experts, sums);
    for (int64_t g = 0; g < layout.ep; ++g) {
        const std::vector<double> own(group(g), group(g + 1));
        WEFT_ASSIGN(const std::vector<Span> columns,
                    CutMlp("columns of an expert", hyper.moe.ffn, "ffn_down_exps",
                           ", or --ep, which keeps experts whole", blocks, own, notes));
        for (const Span& span : columns) {
            cuts.experts.push_back(experts[static_cast<size_t>(g)]);
            cuts.expert_ffn.push_back(span);
        }
    }
    WEFT_ASSIGN(cuts.shared_ffn, CutMlp("columns of the shared expert", hyper.moe.shared_ffn,
                                        "ffn_down_shexp", "", blocks, shares, notes));
    return {};
}

// Value heads: whole blocks of the output projection's columns; and whole key heads, if ssm_ba
// stores their value heads together or a norm spans them.
Status CutRecurrent(const Hyper& hyper, const Blocks& blocks, const std::vector<double>& shares,
                    TensorCuts& cuts, std::vector<std::string>& notes) {
    const Recurrent& r = hyper.recurrent;
    cuts.recurrent_heads.resize(shares.size());
    if (r.heads == 0) return {};
    const int64_t block = std::max<int64_t>(1, blocks.Largest(r.OutputTensor()));
    const int64_t ideal = r.whole_groups ? r.group() : 1;
    const int64_t unit = std::lcm(std::lcm(r.value_dim, block) / r.value_dim, ideal);
    const bool columns = r.kind == Recurrent::Kind::kShortConv;
    const char* what =
        columns ? "column blocks of convolutions" : "value heads of recurrent layers";
    WEFT_ASSIGN(cuts.recurrent_heads,
                Cut({what, r.heads, unit, ideal, r.OutputTensor()}, shares, notes));
    return {};
}

Result<TensorCuts> CutTensors(const Hyper& hyper, const model_files::ModelSource& source,
                              const Layout& layout, std::vector<std::string>& notes) {
    const std::vector<double> shares = SharesOrEven(layout.tp_shares, layout.tp);
    if (layout.tp == 1) {
        return TensorCuts{{{0, hyper.heads}},
                          {{0, hyper.ffn}},
                          {{0, hyper.vocab}},
                          {{0, hyper.moe.experts}},
                          {{0, hyper.moe.ffn}},
                          {{0, hyper.moe.shared_ffn}},
                          {{0, hyper.WindowedQueryHeads()}},
                          {{0, hyper.recurrent.heads}},
                          {}};
    }
    const Blocks blocks{source, hyper.layers, layout.whole_blocks};
    TensorCuts cuts;
    WEFT_TRY(CutHeads(hyper, blocks, shares, cuts, notes));
    WEFT_ASSIGN(cuts.ffn, CutMlp("MLP columns", hyper.ffn, "ffn_down", "", blocks, shares, notes));
    for (const int64_t columns : hyper.ffn_columns) {
        if (columns == 0 || cuts.layer_ffn.contains(columns)) continue;
        std::vector<std::string> of_the_widest;  // dropped: notes on the widest MLP are enough
        WEFT_ASSIGN(cuts.layer_ffn[columns],
                    CutMlp("MLP columns", columns, "ffn_down", "", blocks, shares, of_the_widest));
    }
    WEFT_TRY(CutExperts(hyper, blocks, layout, shares, cuts, notes));
    WEFT_TRY(CutRecurrent(hyper, blocks, shares, cuts, notes));
    WEFT_ASSIGN(cuts.vocab, Cut({"vocabulary rows", hyper.vocab, 16, 16, nullptr}, shares, notes));
    return cuts;
}

// The key heads that some value heads use; all of them if the assignment cycles.
Span KeyHeadsOf(const Recurrent& r, const Span& heads) {
    if (heads.size() == 0) return {};
    if (!r.cycles) return {heads.begin / r.group(), (heads.end - 1) / r.group() + 1};
    const int64_t begin = heads.begin % r.key_heads, end = begin + heads.size();
    return end > r.key_heads ? Span{0, r.key_heads} : Span{begin, end};
}

// The cuts with the layout's expert groups; if it does not set them, with the fewest groups that
// work.
Result<TensorCuts> ChooseCuts(const Hyper& hyper, const model_files::ModelSource& source,
                              Layout& layout, std::vector<std::string>& notes) {
    const bool open = layout.ep == 0;
    layout.ep = std::max(1, layout.ep);
    Result<TensorCuts> cuts = CutTensors(hyper, source, layout, notes);
    if (open && !cuts.ok() && hyper.moe.experts > 0) {
        for (Layout other = layout; ++other.ep <= other.tp;) {
            std::vector<std::string> own;
            if (other.tp % other.ep != 0) continue;
            Result<TensorCuts> found = CutTensors(hyper, source, other, own);
            if (!found.ok()) continue;
            layout = other;
            notes = std::move(own);
            cuts = std::move(found);
            break;
        }
    }
    if (cuts.ok() && layout.ep > 1) {
        std::string text;
        for (int g = 0; g < layout.ep; ++g) {
            const Span& held = cuts->experts[static_cast<size_t>(g * (layout.tp / layout.ep))];
            text += fmt::format("{}{}-{}", text.empty() ? "" : ", ", held.begin, held.end - 1);
        }
        notes.push_back(fmt::format("{} experts whole in {} groups of {} tensor rank{}: {}",
                                    hyper.moe.experts, layout.ep, layout.tp / layout.ep,
                                    layout.tp == layout.ep ? "" : "s", text));
    }
    return cuts;
}

}  // namespace

// One share for each tensor rank and each stage of the largest job (cluster::kMostRanks).
static constexpr size_t kMostShares = 8192;

Result<std::vector<double>> ParseShares(const std::string& text) {
    std::vector<double> shares;
    if (text.empty()) return shares;
    for (const char* at = text.c_str();;) {
        char* end = nullptr;
        const double share = std::strtod(at, &end);
        if (end == at || !(share > 0) || share > 1e6 || (*end != ',' && *end != '\0') ||
            shares.size() == kMostShares) {
            return MakeError(ErrorCode::kUsage,
                             "--tensor-split {}: expected up to {} positive numbers separated by "
                             "commas, such as 3,2,1",
                             text.substr(0, 80), kMostShares);
        }
        shares.push_back(share);
        if (*end == '\0') return shares;
        at = end + 1;
    }
}

Result<Layout> MakeLayout(int ranks, int tp, int pp, const std::vector<double>& shares, int ep) {
    Layout layout;
    layout.tp = tp > 0 ? tp : pp > 0 ? ranks / pp : ranks;
    layout.pp = pp > 0 ? pp : tp > 0 ? ranks / tp : 1;
    if (layout.size() != ranks || ranks < 1) {
        return MakeError(ErrorCode::kUsage,
                         "{} ranks do not make --tp {} x --pp {}: start tp x pp ranks (with "
                         "--local or --hosts), or change the layout",
                         ranks, std::max(tp, layout.tp), std::max(pp, layout.pp));
    }
    layout.ep = ep;
    if (ep > 0 && layout.tp % ep != 0) {
        return MakeError(ErrorCode::kUsage,
                         "--ep {} does not divide --tp {}: expert groups are made of tensor ranks",
                         layout.ep, layout.tp);
    }
    if (shares.empty()) return layout;
    const size_t tensor_ranks = static_cast<size_t>(layout.tp);
    const size_t stages = static_cast<size_t>(layout.pp);
    if (shares.size() == tensor_ranks && layout.tp > 1) {
        layout.tp_shares = shares;
    } else if (shares.size() == stages) {
        layout.pp_shares = shares;
    } else if (layout.tp > 1 && layout.pp > 1 && shares.size() == tensor_ranks + stages) {
        layout.tp_shares.assign(shares.begin(), shares.begin() + layout.tp);
        layout.pp_shares.assign(shares.begin() + layout.tp, shares.end());
    } else {
        std::string needs = fmt::format("{} (one per tensor rank)", layout.tp);
        if (layout.pp > 1) needs = fmt::format("{} (one per stage)", layout.pp);
        if (layout.pp > 1 && layout.tp > 1) {
            needs = fmt::format(
                "{} (one per tensor rank), {} (one per stage), or {} (tensor ranks, then stages)",
                layout.tp, layout.pp, layout.tp + layout.pp);
        }
        return MakeError(ErrorCode::kUsage,
                         "--tensor-split has {} shares; --tp {} --pp {} needs {}", shares.size(),
                         layout.tp, layout.pp, needs);
    }
    return layout;
}

int64_t CutBlock(DType dtype, int64_t columns) {
    const int64_t block = dtype == DType::kBF16 ? 32 : Info(dtype).block_elements;
    if (columns >= 16 * block) return block;
    const bool even = columns % (4 * block) == 0;  // for 2 and 4 ranks
    if (columns >= 8 * block && even) return block;
    // Blocks of 256 have a scale for every 32 columns.
    return std::min<int64_t>(block, columns >= 4 * block ? 128 : 32);
}

int64_t ColumnUnit(int64_t columns) {
    for (int64_t unit : {64, 32}) {
        if (columns % unit == 0) return unit;
    }
    return columns >= 256 ? 32 : columns >= 64 ? 8 : 2;
}

Result<ShardPlan> PlanShards(const Hyper& hyper, const model_files::ModelSource& source,
                             const Layout& wanted) {
    Layout layout = wanted;
    ShardPlan plan;
    WEFT_ASSIGN(const TensorCuts cuts, ChooseCuts(hyper, source, layout, plan.notes));
    WEFT_ASSIGN(std::vector<Span> layers, CutLayers(hyper, source, layout));
    WEFT_ASSIGN(layers, MoveCuts(hyper, std::move(layers), plan.notes));
    int64_t kv_held = 0;
    for (int rank = 0; rank < layout.size(); ++rank) {
        Shard shard;
        shard.rank = rank;
        shard.stage = rank / layout.tp;
        shard.tensor_rank = rank % layout.tp;
        shard.layout = layout;
        const size_t t = static_cast<size_t>(shard.tensor_rank);
        shard.layers = layers[static_cast<size_t>(shard.stage)];
        shard.heads = cuts.heads[t];
        shard.windowed_heads = cuts.windowed_heads[t];
        shard.kv_heads = {shard.heads.begin / hyper.group(),
                          (shard.heads.end - 1) / hyper.group() + 1};
        shard.ffn = cuts.ffn[t];
        for (const int64_t columns : hyper.ffn_columns) {
            const auto cut = cuts.layer_ffn.find(columns);
            shard.layer_ffn.push_back(cut == cuts.layer_ffn.end() ? Span{0, columns}
                                                                  : cut->second[t]);
        }
        shard.experts = cuts.experts[t];
        shard.expert_ffn = cuts.expert_ffn[t];
        shard.shared_ffn = cuts.shared_ffn[t];
        shard.recurrent_heads = cuts.recurrent_heads[t];
        shard.recurrent_keys = KeyHeadsOf(hyper.recurrent, shard.recurrent_heads);
        shard.vocab = cuts.vocab[t];
        for (const Span& part : cuts.vocab) shard.vocab_parts.push_back(part.size());
        kv_held += shard.stage == 0 ? shard.kv_heads.size() : 0;
        plan.shards.push_back(std::move(shard));
    }
    for (Shard& shard : plan.shards) shard.kv_replicated = kv_held > hyper.kv_heads;
    return plan;
}

}  // namespace weft::model
