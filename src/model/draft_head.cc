#include "model/draft_head.h"

#include <algorithm>

#include "model/builder.h"
#include "model/layers.h"
#include "model_files/draft_source.h"

namespace weft::model {

using program::kOutputs;
using program::kTokens;
using program::Shape;
using program::ValueId;

namespace {

constexpr const char* kState = "draft.state";
constexpr const char* kMade = "draft.made";
constexpr const char* kLogits = "draft.logits";
// A DFlash head drafts a block: its embedded rows, and their logits.
constexpr const char* kBlock = "draft.block";
constexpr const char* kBlockLogits = "draft.block_logits";

}  // namespace

DraftHeadOps DraftHeadOf(const program::Program& program) {
    DraftHeadOps head;
    head.state = program.Find(kState);
    head.made = program.Find(kMade);
    const ValueId of_blocks = program.Find(kBlockLogits);
    head.logits = of_blocks == program::kNoValue ? program.Find(kLogits) : of_blocks;
    const auto begin = std::ranges::find_if(program.ops, [&](const program::Op& op) {
        return std::ranges::any_of(op.outputs, [&](ValueId id) {
            return program.value(id).name.starts_with(model_files::kDraftPrefix);
        });
    });
    const auto index = [&](auto at) { return static_cast<size_t>(at - program.ops.begin()); };
    // The op that makes a value; if none does, the head's first op.
    const auto maker = [&](ValueId value) {
        const auto made = [&](const program::Op& op) {
            return std::ranges::find(op.outputs, value) != op.outputs.end();
        };
        const auto at = std::ranges::find_if(program.ops, made);
        return index(at == program.ops.end() ? begin : at);
    };
    const size_t end = program.ops.size();
    head.step = {0, index(begin)};
    head.first = {index(begin), end};
    head.next = {maker(head.state) + (head.state == program::kNoValue ? 0 : 1), end};
    if (of_blocks != program::kNoValue) {
        head.next.begin = head.first.end = maker(program.Find(kBlock));
        if (head.first.end > head.first.begin) {
            head.between = program.ops[head.first.end - 1].outputs[0];
        }
    }
    return head;
}

ValueId Builder::BeginDraftHead(ValueId x) {
    const int64_t columns = hyper_.hidden;
    const Slice vector{{0, columns}, {}, columns, 0};
    layer_ = -1;
    const ValueId norm = Weight(OutputNorm() + ".weight", vector);
    const ValueId state = program_.Emit(NormOf(columns), {x, norm}, kState, {kTokens, columns});
    const std::string own_table = fmt::format("blk.{}.nextn.embed_tokens", hyper_.layers);
    const bool own = source_.FindTensor(own_table + ".weight") != nullptr;
    const ValueId embedded = Embedded(own ? own_table : "token_embd", "draft.embedded");
    BeginLayer(hyper_.layers);
    shard_.layers = {layer_, layer_ + 1};
    const ValueId token = Norm(embedded, "nextn.enorm", columns);
    const ValueId before = Norm(state, "nextn.hnorm", columns);
    return ToAll(Joined({token, before}, Local("nextn.joined")), "nextn.eh_proj", columns,
                 2 * columns);
}

void Builder::EndDraftHead(ValueId x) {
    const int64_t columns = hyper_.hidden;
    const bool own = Has("nextn.shared_head_norm.weight");
    const std::string norm = own ? Tensor("nextn.shared_head_norm") : OutputNorm();
    const bool own_output = Has("nextn.shared_head_head.weight");
    const std::string output = own_output ? Tensor("nextn.shared_head_head") : OutputMatrix();
    shard_.layers = own_layers_;
    layer_ = -1;
    x = program_.Emit(program::SelectRows{}, {x, output_rows_}, "draft.selected",
                      {kOutputs, columns});
    const ValueId weight = Weight(norm + ".weight", {{0, columns}, {}, columns, 0});
    x = program_.Emit(NormOf(columns), {x, weight}, kMade, {kOutputs, columns});
    ToLogits(x, output, kLogits);
}

void Builder::RecvDraftHead() {
    if (shard_.rank != 0) return;
    const int sender = (shard_.layout.pp - 1) * shard_.layout.tp;
    const int64_t vocab = hyper_.head.empty() ? hyper_.vocab : hyper_.head[0].vocab;
    program_.Emit(program::Recv{sender}, {}, hyper_.block_rows() > 0 ? kBlockLogits : kLogits,
                  {kOutputs, vocab});
}

ValueId Builder::Joined(const std::vector<ValueId>& parts, const std::string& name) {
    Shape shape = program_.value(parts[0]).shape;
    shape.dims[1] = 0;
    for (const ValueId part : parts) shape.dims[1] += program_.value(part).shape[1];
    ValueId all = program::kNoValue;
    int64_t begin = 0;
    for (size_t i = 0; i < parts.size(); ++i) {
        const ValueId padded = program_.Emit(program::PadColumns{begin}, {parts[i]},
                                             fmt::format("{}.{}", name, i), shape);
        begin += program_.value(parts[i]).shape[1];
        const std::string sum = fmt::format("{}.{}.sum", name, i);
        all = i == 0 ? padded : program_.Emit(program::Add{}, {all, padded}, sum, shape);
    }
    return all;
}

// ---- Separate heads -----------------------------------------------------------------------------

namespace {

// The shard of a head's layer on a rank of the model's last stage.
Result<Shard> ShardOfHead(const Hyper& head, const model_files::ModelSource& source,
                          const Shard& model) {
    Layout layout;
    layout.tp = model.layout.tp;
    layout.tp_shares = model.layout.tp_shares;
    WEFT_ASSIGN(const ShardPlan plan, PlanShards(head, source, layout));
    Shard shard = plan.shards[static_cast<size_t>(model.tensor_rank)];
    shard.rank = model.rank;
    shard.stage = model.stage;
    shard.layout = model.layout;
    return shard;
}

}  // namespace

Builder::Builder(Builder& model, const Hyper& head, const Shard& shard,
                 const model_files::ModelSource& source)
    : hyper_(head),
      shard_(shard),
      source_(source),
      options_(model.options_),
      program_(model.program_),
      prefix_(model_files::kDraftPrefix),
      tokens_(model.tokens_),
      positions_(model.positions_),
      output_rows_(model.output_rows_),
      own_layers_(shard.layers) {}

std::vector<int64_t> Builder::ReadsBefore(int64_t end) const {
    if (!options_.draft_head || hyper_.head.empty()) return {};
    std::vector<int64_t> layers = hyper_.head[0].reads;
    std::erase_if(layers, [&](int64_t layer) { return layer >= end; });
    return layers;
}

Status Builder::AddSeparateHead() {
    layer_ = -1;
    if (!shard_.last_stage()) {
        RecvDraftHead();
        return {};
    }
    const model_files::DraftHeadSource source(source_);
    const Hyper& own = hyper_.head[0];
    WEFT_ASSIGN(const Shard shard, ShardOfHead(own, source, shard_));
    Builder head(*this, own, shard, source);
    std::vector<ValueId> inputs;
    for (const int64_t layer : own.reads) inputs.push_back(reads_.at(layer));
    const int64_t columns = std::ssize(inputs) * hyper_.hidden;
    const Slice fc{{0, own.hidden}, {0, columns}, own.hidden, columns};
    const bool blocks = own.block > 0;
    const ValueId state = head.MatMul(head.Joined(inputs, "draft.inputs"), "fc", fc, {}, false,
                                      blocks ? "draft.projected" : kState);
    if (blocks) head.KeepContext(state);
    // A token's row is not scaled, as in training.
    const bool table = source.FindTensor("token_embd.weight") != nullptr;
    const ValueId embedded =
        (table ? head : *this)
            .LookUp("token_embd", blocks ? kBlock : "draft.embedded", shard_.vocab, hyper_.vocab);
    if (blocks) {
        const ValueId x = head.BlockLayers(embedded);
        const bool output = source.FindTensor("output.weight") != nullptr;
        (output ? head : *this).ToLogits(x, output ? "output" : OutputMatrix(), kBlockLogits);
    } else {
        head.EagleLayer(state, embedded);
    }
    WEFT_TRY(std::move(head.status_));
    return head.CheckAllUsed();
}

void Builder::EagleLayer(ValueId state, ValueId embedded) {
    const int64_t hidden = hyper_.hidden;
    BeginLayer(0);
    const ValueId token = Norm(embedded, "attn_norm", hidden);
    const ValueId normed = Norm(state, "hidden_norm", hidden);
    const ValueId h = Joined({token, normed}, Local("joined"));
    ValueId x =
        Add(hyper_.norm_before_residual ? normed : state, RotatedAttention(*this, h, false));
    x = Add(x, DenseMlp(Norm(x, "ffn_norm", hidden)));
    layer_ = -1;
    const bool norm = hyper_.norm_output;  // further drafts read the normed row
    x = program_.Emit(program::SelectRows{}, {x, output_rows_}, norm ? "draft.selected" : kMade,
                      {kOutputs, hidden});
    x = NormBy(x, "output_norm", "weight", hidden, norm ? kMade : "");
    ToLogits(x, "output", kLogits);
}

// ---- DFlash -------------------------------------------------------------------------------------

// Attention within a window of one key reads only the row itself; nothing reads its result.
void Builder::Keep(ValueId k, ValueId v) {
    const HeadShape shape = Heads();
    program::Attention attributes;
    attributes.heads = attributes.kv_heads = KvHeads().size();
    attributes.head_dim = shape.head_dim;
    attributes.value_dim = shape.v_head_dim;
    attributes.first_head = attributes.first_kv_head = KvHeads().begin;
    attributes.window = 1;
    KeysAndValues& kv = kv_.try_emplace(layer_, KeysAndValues{k, v, {}}).first->second;
    if (kv.caches.empty()) kv.caches = Caches(layer_);
    std::vector<ValueId> inputs = {k, k, v};
    inputs.insert(inputs.end(), kv.caches.begin(), kv.caches.end());
    program_.Emit(attributes, std::move(inputs), Local("kept"),
                  {kTokens, attributes.heads * attributes.ValueDim()});
}

void Builder::KeepContext(ValueId states) {
    part_ = "context.";
    const ValueId x = NormBy(states, "hidden_norm", "weight", hyper_.hidden, "draft.context");
    for (int64_t layer = 0; layer < hyper_.layers; ++layer) {
        BeginLayer(layer);
        const ValueId k = Norm(ToKvHeads(x, "attn_k", false), "attn_k_norm", hyper_.head_dim);
        Keep(Rope(k, false), ToKvHeads(x, "attn_v", false));
    }
    part_ = "";
    layer_ = -1;
}

ValueId Builder::BlockLayers(ValueId embedded) {
    const ValueId x = PreNormLayers(*this, Scale(embedded, hyper_.embedding_scale),
                                    [&](ValueId h) { return NormedAttention(*this, h, true); });
    layer_ = -1;
    const ValueId rows = program_.Emit(program::SelectRows{}, {x, output_rows_}, "draft.selected",
                                       {kOutputs, hyper_.hidden});
    return NormBy(rows, "output_norm", "weight", hyper_.hidden);
}

}  // namespace weft::model
